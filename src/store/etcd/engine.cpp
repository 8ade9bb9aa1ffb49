#include "store/etcd/engine.h"

#include "core/ids.h"
#include "core/log.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <random>

namespace orrery::store {

using namespace std::chrono_literals;

namespace etcd {

Task<Unit> RevisionGate::wait(Revision revision, SteadyTime until) {
    if (reached_ >= revision) co_return Unit{};
    if (closed_) co_return Error{Code::cancelled, "the store was closed"};
    auto waiter = std::make_shared<Waiter>(Waiter{asio::steady_timer(executor_, until)});
    auto place = waiting_.emplace(revision, waiter);
    auto [error] = co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (waiter->told) {
        if (reached_ >= revision) co_return Unit{};
        co_return Error{Code::cancelled, "the store was closed"};
    }
    waiting_.erase(place);
    if (error) co_return Error{Code::cancelled, "the wait was cancelled"};
    co_return Error{Code::timeout, "the deadline passed"};
}

void RevisionGate::reached(Revision revision) {
    reached_ = std::max(reached_, revision);
    while (!waiting_.empty() && (closed_ || waiting_.begin()->first <= reached_)) {
        auto waiter = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        waiter->told = true;
        waiter->timer.cancel();
    }
}

void RevisionGate::close() {
    closed_ = true;
    reached(reached_);
}

Engine::Engine(asio::any_io_executor executor, EtcdOptions options, std::unique_ptr<Members> members)
    : executor_(executor),
      options_(std::move(options)),
      members_(std::move(members)),
      mirror_(executor, options_.mirror),
      gate_(executor),
      changed_(executor),
      tasks_(executor),
      session_(random_id()) {}

Engine::~Engine() {
    if (stream_) stream_->cancel();
}

Task<Unit> Engine::start(Context ctx) {
    const auto until = ctx.deadline().value_or(std::chrono::steady_clock::now() + 3 * options_.dial_timeout);
    tasks_.spawn(feed());
    while (!connected_) {
        if (fatal_) co_return *fatal_;
        auto waited = co_await changed_.wait(ctx.with_deadline(until));
        if (waited.ok()) continue;
        if (waited.error().code != Code::timeout) co_return waited.error();
        co_return Error{
            Code::unavailable,
            fmt::format("no etcd member could serve in time ({})", lost_reason_.empty() ? "none answered" : lost_reason_),
            "check that etcd runs, has a leader, and that the store's endpoints are right"};
    }
    tasks_.spawn(keep_session());
    // Here rather than at the first write, so that writes take one revision after the other.
    CO_TRY(auto bound, co_await fence_off(ctx.with_deadline(until), 0));
    CO_TRY(std::ignore, co_await gate_.wait(bound, until));
    co_return Unit{};
}

SteadyTime Engine::until_of(const Context& ctx) const {
    return ctx.deadline() ? *ctx.deadline() : std::chrono::steady_clock::now() + options_.give_up;
}

bool Engine::out_of_patience() const {
    if (stopping_ || fatal_) return true;
    if (!lost_since_) return false;
    return unreachable_.size() >= members_->size() || std::chrono::steady_clock::now() - *lost_since_ >= options_.patience;
}

Error Engine::lost_error(const Error& last) const {
    if (fatal_) return *fatal_;
    if (stopping_) return Error{Code::unavailable, "the store is being closed"};
    if (last.code == Code::timeout) return last;
    return Error{Code::unavailable, last.message, "check that etcd runs and has a leader; it is tried again all the time"};
}

void Engine::note_loss(const Error& why, bool unreachable) {
    if (!lost_since_) lost_since_ = std::chrono::steady_clock::now();
    lost_reason_ = why.message;
    if (unreachable) unreachable_.insert(members_->address());
}

void Engine::note_success() {
    heard_at_ = std::chrono::steady_clock::now();
    if (!connected_) {
        // Answers come, but the copy does not follow yet: what patience there is runs on.
        unreachable_.clear();
        return;
    }
    lost_since_.reset();
    unreachable_.clear();
}

Task<Unit> Engine::settle(Context ctx, Revision revision) {
    if (mirror_.revision() >= revision) co_return Unit{};
    const auto until = until_of(ctx);
    const auto now = std::chrono::steady_clock::now();
    if (now >= strangers_until_) {
        auto reached = co_await gate_.wait(revision, std::min(until, now + 50ms));
        if (reached.ok() || reached.error().code != Code::timeout) co_return reached;
    }
    // Either the watch is behind or the revision is a stranger's and will never come. A write of our own comes after both.
    while (barrier_ < revision) {
        if (barring_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx.with_deadline(until)));
        } else {
            CO_TRY(std::ignore, co_await raise_barrier(ctx));
        }
    }
    auto reached = co_await gate_.wait(revision, until);
    if (!reached.ok() && reached.error().code == Code::timeout)
        co_return Error{Code::unavailable, fmt::format("this server's copy did not reach revision {} in time ({})", revision,
                                                       lost_reason_.empty() ? "the watch is behind" : lost_reason_)};
    co_return reached;
}

Task<Unit> Engine::raise_barrier(Context ctx) {
    EngineTurn turn(barring_, changed_);
    pb::PutRequest request;
    request.set_key(path(mark_key));
    request.set_value(session_ + ".0");
    ++counts_.barriers;
    CO_TRY(auto response,
           co_await ask<pb::PutRequest, pb::PutResponse>(ctx, std::move(request), [](Line& line, auto& c, auto done) {
               line.kv->async()->Put(&c.context, &c.request, &c.response, std::move(done));
           }));
    barrier_ = std::max(barrier_, static_cast<Revision>(response.header().revision()));
    co_return Unit{};
}

Task<Revision> Engine::catch_up(Context ctx) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    // Only a read that starts from here on has seen all that was acknowledged before.
    const auto wanted = reads_started_ + 1;
    while (reads_done_ < wanted) {
        if (fatal_) co_return *fatal_;
        if (!connected_ && out_of_patience()) co_return lost_error(Error{Code::unavailable, lost_reason_});
        if (reading_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx));
            continue;
        }
        EngineTurn turn(reading_, changed_);
        const auto number = ++reads_started_;
        pb::RangeRequest request;
        request.set_key(path(identity_key));
        request.set_count_only(true);
        CO_TRY(auto response,
               co_await ask<pb::RangeRequest, pb::RangeResponse>(ctx, std::move(request), [](Line& line, auto& c, auto done) {
                   line.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done));
               }));
        read_revision_ = std::max(read_revision_, static_cast<Revision>(response.header().revision()));
        reads_done_ = std::max(reads_done_, number);
    }
    CO_TRY(std::ignore, co_await settle(ctx, read_revision_));
    co_return mirror_.revision();
}

Task<Unit> Engine::compact(Context ctx, Revision revision) {
    if (revision > mirror_.revision())
        co_return Error{Code::invalid,
                        fmt::format("revision {} is not there yet, the store is at {}", revision, mirror_.revision())};
    if (revision <= 0) co_return Unit{};
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    pb::CompactionRequest request;
    request.set_revision(revision);
    auto done =
        co_await ask<pb::CompactionRequest, pb::CompactionResponse>(ctx, std::move(request), [](Line& line, auto& c, auto finish) {
            line.kv->async()->Compact(&c.context, &c.request, &c.response, std::move(finish));
        });
    // Compacted already, by another server or by the attempt before this one.
    if (!done.ok() && done.error().code != Code::compacted) co_return done.error();
    mirror_.compact(revision);
    co_return Unit{};
}

Task<LeaseId> Engine::grant(Context ctx, Duration ttl) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    co_return co_await grant_lease(ctx, ttl);
}

Task<LeaseId> Engine::grant_lease(Context ctx, Duration ttl) {
    if (ttl <= Duration::zero()) co_return Error{Code::invalid, "a lease must last longer than nothing"};
    // We choose the number, so that a second attempt finds what the first one made.
    static std::mt19937_64 random{std::random_device{}()};
    pb::LeaseGrantRequest request;
    request.set_id(static_cast<LeaseId>(random() >> 1) | 1);
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
    const LeaseId lease = request.id();
    auto granted =
        co_await ask<pb::LeaseGrantRequest, pb::LeaseGrantResponse>(ctx, std::move(request), [](Line& line, auto& c, auto done) {
            line.lease->async()->LeaseGrant(&c.context, &c.request, &c.response, std::move(done));
        });
    if (!granted.ok() && granted.error().code != Code::conflict) co_return granted.error();
    co_return lease;
}

Task<Unit> Engine::keep_alive(Context ctx, LeaseId lease) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    co_return co_await renew_lease(ctx, lease);
}

Task<Unit> Engine::renew_lease(Context ctx, LeaseId lease) {
    pb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    CO_TRY(auto response, co_await ask<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse>(
                              ctx, std::move(request), [](Line& line, auto& c, auto done) {
                                  line.lease->async()->LeaseKeepAlive(&c.context, &c.request, &c.response, std::move(done));
                              }));
    if (response.ttl() <= 0) co_return Error{Code::not_found, fmt::format("the lease {:x} has expired or was revoked", lease)};
    co_return Unit{};
}

Task<Unit> Engine::revoke(Context ctx, LeaseId lease) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    co_return co_await revoke_lease(ctx, lease);
}

Task<Unit> Engine::revoke_lease(Context ctx, LeaseId lease) {
    pb::LeaseRevokeRequest request;
    request.set_id(lease);
    auto revoked =
        co_await ask<pb::LeaseRevokeRequest, pb::LeaseRevokeResponse>(ctx, std::move(request), [](Line& line, auto& c, auto done) {
            line.lease->async()->LeaseRevoke(&c.context, &c.request, &c.response, std::move(done));
        });
    if (!revoked.ok()) {
        if (revoked.error().code == Code::not_found)
            co_return Error{Code::not_found, fmt::format("the lease {:x} has expired or was revoked", lease)};
        co_return revoked.error();
    }
    // Its keys are gone when this returns, in our copy too.
    co_return co_await settle(ctx, revoked->header().revision());
}

Result<Unit> Engine::health() const {
    if (fatal_) return *fatal_;
    if (stopping_) return Error{Code::unavailable, "the store is being closed"};
    if (connected_) return Unit{};
    return Error{Code::unavailable, fmt::format("etcd is out of reach ({})", lost_reason_),
                 fmt::format("reads go on at revision {}; check that etcd runs and has a leader", mirror_.revision())};
}

std::vector<std::pair<std::string, double>> Engine::metrics() const {
    auto all = mirror_.metrics();
    all.insert(all.end(), {{"revision", static_cast<double>(mirror_.revision())},
                           {"etcd_connected", connected_ ? 1.0 : 0.0},
                           {"etcd_connects_total", counts_.connects},
                           {"etcd_failovers_total", counts_.failovers},
                           {"etcd_lists_total", counts_.lists},
                           {"etcd_fences_total", counts_.fences},
                           {"etcd_lost_answers_resolved_total", counts_.resolved},
                           {"etcd_barriers_total", counts_.barriers},
                           {"etcd_writes_underway", static_cast<double>(underway_.size())}});
    return all;
}

asio::awaitable<void> Engine::stop() {
    // What was accepted may finish; what comes now is refused.
    closing_ = true;
    const auto ctx = Context::background().with_timeout(5s);
    while (visits_ > 0) {
        auto waited = co_await changed_.wait(ctx);
        if (!waited.ok()) break;
    }
    if (session_lease_ != 0 && connected_)
        std::ignore = co_await revoke_lease(Context::background().with_timeout(1s), session_lease_);
    stopping_ = true;
    mirror_.close(Error{Code::cancelled, "the store was closed"});
    if (stream_) stream_->cancel();
    for (auto* call : calls_) call->TryCancel();
    changed_.notify_all();
    gate_.close();
    while (visits_ > 0) std::ignore = co_await changed_.wait(Context::background());
    co_await tasks_.stop();
}

} // namespace etcd

Task<std::unique_ptr<Store>> open_etcd(Context ctx, asio::any_io_executor executor, EtcdOptions options) {
    if (options.prefix.empty() || options.prefix.back() != '/') options.prefix += '/';
    CO_TRY(auto members, etcd::Members::make(options));
    auto engine = std::make_unique<etcd::Engine>(executor, std::move(options), std::move(members));
    // The engine must be stopped also when the caller is cancelled meanwhile, so nothing may throw here.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    auto started = co_await engine->start(ctx);
    if (!started.ok()) co_await engine->stop();
    co_await asio::this_coro::throw_if_cancelled(throwing);
    if (!started.ok()) co_return started.error();
    co_return std::unique_ptr<Store>(std::move(engine));
}

bool outcome_unknown(const Error& error) { return error.remedy.starts_with(etcd::unknown_outcome); }

} // namespace orrery::store
