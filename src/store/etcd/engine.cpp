#include "store/etcd/engine.h"

#include "core/ids.h"
#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

namespace orrery::store {

using namespace std::chrono_literals;

namespace etcd {

Engine::Engine(asio::any_io_executor executor, EtcdOptions options, std::unique_ptr<Members> members)
    : executor_(executor),
      options_(std::move(options)),
      members_(std::move(members)),
      mirror_(executor, options_.mirror),
      revision_waiters_(executor),
      changed_(executor),
      tasks_(executor),
      session_(random_id()) {}

Engine::~Engine() {
    if (stream_) stream_->cancel();
}

Task<Unit> Engine::start(Context ctx) {
    const auto until = ctx.deadline().value_or(std::chrono::steady_clock::now() + 3 * options_.dial_timeout);
    tasks_.spawn(run_watch());
    while (!connected_) {
        if (fatal_error_) co_return *fatal_error_;
        auto waited = co_await changed_.wait(ctx.with_deadline(until));
        if (waited.ok()) continue;
        if (waited.error().code != Code::timeout) co_return waited.error();
        co_return Error{
            Code::unavailable,
            fmt::format("no etcd member was available in time ({})", last_failure_.empty() ? "no response" : last_failure_),
            "check that etcd is running and has a leader, and check the endpoints of the store"};
    }
    tasks_.spawn(renew_session());
    const auto begun = std::chrono::steady_clock::now();
    // Create the session's key now instead of at the first write, so that the first writes have consecutive revisions.
    CO_TRY(auto fenced_at, co_await fence(ctx.with_deadline(until), 0));
    CO_TRY(std::ignore, co_await revision_waiters_.wait(fenced_at, until));
    verified_at_ = begun;
    tasks_.spawn(verify_copy());
    co_return Unit{};
}

SteadyTime Engine::deadline_of(const Context& ctx) const {
    return ctx.deadline() ? *ctx.deadline() : std::chrono::steady_clock::now() + options_.give_up;
}

bool Engine::retries_exhausted() const {
    if (stopping_ || fatal_error_) return true;
    if (!unavailable_since_) return false;
    return unreachable_.size() >= members_->size() || std::chrono::steady_clock::now() - *unavailable_since_ >= options_.retry_time;
}

Error Engine::unavailable_error(const Error& last) const {
    if (fatal_error_) return *fatal_error_;
    if (stopping_) return Error{Code::unavailable, "the store is being closed"};
    if (last.code == Code::timeout) return last;
    return Error{Code::unavailable, last.message, "check that etcd is running and has a leader; orrery keeps retrying"};
}

void Engine::record_failure(const Error& why, bool unreachable) {
    if (!unavailable_since_) unavailable_since_ = std::chrono::steady_clock::now();
    last_failure_ = why.message;
    if (unreachable) unreachable_.insert(members_->address());
}

void Engine::record_success() {
    last_response_at_ = std::chrono::steady_clock::now();
    if (!connected_) {
        // etcd responds but the watch is not connected yet: the outage continues.
        unreachable_.clear();
        return;
    }
    unavailable_since_.reset();
    unreachable_.clear();
}

Task<Unit> Engine::wait_for_revision(Context ctx, Revision revision, Duration grace) {
    if (mirror_.revision() >= revision) co_return Unit{};
    const auto until = deadline_of(ctx);
    const auto now = std::chrono::steady_clock::now();
    if (now >= foreign_writes_until_) {
        auto reached = co_await revision_waiters_.wait(revision, std::min(until, now + grace));
        if (reached.ok() || reached.error().code != Code::timeout) co_return reached;
    }
    // Either the watch is behind, or the revision belongs to a foreign key and never arrives. A barrier write arrives after both.
    while (barrier_revision_ < revision) {
        if (writing_barrier_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx.with_deadline(until)));
        } else {
            CO_TRY(std::ignore, co_await write_barrier(ctx));
        }
    }
    auto reached = co_await revision_waiters_.wait(revision, until);
    if (!reached.ok() && reached.error().code == Code::timeout)
        co_return Error{Code::unavailable, fmt::format("this server's copy did not reach revision {} in time ({})", revision,
                                                       last_failure_.empty() ? "the watch is behind" : last_failure_)};
    co_return reached;
}

Task<Unit> Engine::write_barrier(Context ctx) {
    SingleFlight flight(writing_barrier_, changed_);
    pb::PutRequest request;
    request.set_key(path(write_marker_key));
    request.set_value(session_ + ".0");
    ++counts_.barriers;
    CO_TRY(auto response, co_await call_with_retry<pb::PutRequest, pb::PutResponse>(
                              ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
                                  connection.kv->async()->Put(&c.context, &c.request, &c.response, std::move(done));
                              }));
    barrier_revision_ = std::max(barrier_revision_, static_cast<Revision>(response.header().revision()));
    co_return Unit{};
}

Task<Revision> Engine::catch_up(Context ctx) {
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    CO_TRY(const auto revision, co_await cluster_revision(ctx));
    CO_TRY(std::ignore, co_await wait_for_revision(ctx, revision));
    co_return mirror_.revision();
}

Task<Revision> Engine::cluster_revision(Context ctx) {
    // Only a read that starts after this call has every write that was acknowledged before it.
    const auto wanted = reads_started_ + 1;
    while (reads_done_ < wanted) {
        if (fatal_error_) co_return *fatal_error_;
        if (!connected_ && retries_exhausted()) co_return unavailable_error(Error{Code::unavailable, last_failure_});
        if (reading_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx));
            continue;
        }
        SingleFlight flight(reading_, changed_);
        const auto number = ++reads_started_;
        pb::RangeRequest request;
        request.set_key(path(identity_key));
        request.set_count_only(true);
        CO_TRY(auto response, co_await call_with_retry<pb::RangeRequest, pb::RangeResponse>(
                                  ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
                                      connection.kv->async()->Range(&c.context, &c.request, &c.response, std::move(done));
                                  }));
        read_revision_ = std::max(read_revision_, static_cast<Revision>(response.header().revision()));
        reads_done_ = std::max(reads_done_, number);
    }
    co_return read_revision_;
}

Task<Unit> Engine::compact(Context ctx, Revision revision) {
    if (revision > mirror_.revision())
        co_return Error{Code::invalid,
                        fmt::format("revision {} is in the future, the store is at {}", revision, mirror_.revision())};
    if (revision <= 0) co_return Unit{};
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    pb::CompactionRequest request;
    request.set_revision(revision);
    auto done = co_await call_with_retry<pb::CompactionRequest, pb::CompactionResponse>(
        ctx, std::move(request), [](MemberConnection& connection, auto& c, auto finish) {
            connection.kv->async()->Compact(&c.context, &c.request, &c.response, std::move(finish));
        });
    // Already compacted, by another server or by the previous attempt.
    if (!done.ok() && done.error().code != Code::compacted) co_return done.error();
    mirror_.compact(revision);
    co_return Unit{};
}

Result<Unit> Engine::health() const {
    if (fatal_error_) return *fatal_error_;
    if (stopping_) return Error{Code::unavailable, "the store is being closed"};
    const auto remedy = [this] {
        return fmt::format("reads continue at revision {}; check that etcd is running and has a leader", mirror_.revision());
    };
    if (!connected_) return Error{Code::unavailable, fmt::format("etcd is unreachable ({})", last_failure_), remedy()};
    if (const auto age = copy_age(); age > options_.stale_after)
        return Error{Code::unavailable,
                     fmt::format("this server's copy of the store is stale: it was last verified {} s ago",
                                 std::chrono::duration_cast<std::chrono::seconds>(age).count()),
                     remedy()};
    return Unit{};
}

std::vector<std::pair<std::string, double>> Engine::metrics() const {
    auto all = mirror_.metrics();
    all.insert(all.end(), {{"revision", static_cast<double>(mirror_.revision())},
                           {"etcd_connected", connected_ ? 1.0 : 0.0},
                           {"etcd_connects_total", counts_.connects},
                           {"etcd_failovers_total", counts_.failovers},
                           {"etcd_lists_total", counts_.lists},
                           {"etcd_fences_total", counts_.fences},
                           {"etcd_lost_responses_resolved_total", counts_.resolved},
                           {"etcd_barriers_total", counts_.barriers},
                           {"etcd_watch_stalls_total", counts_.stalls},
                           {"copy_age_seconds", std::chrono::duration<double>(copy_age()).count()},
                           {"etcd_writes_pending", static_cast<double>(pending_writes_.size())}});
    return all;
}

asio::awaitable<void> Engine::stop() {
    // Accepted calls may finish; new calls are refused.
    closing_ = true;
    const auto ctx = Context::background().with_timeout(5s);
    while (active_calls_ > 0) {
        auto waited = co_await changed_.wait(ctx);
        if (!waited.ok()) break;
    }
    if (session_lease_ != 0 && connected_)
        std::ignore = co_await revoke_lease(Context::background().with_timeout(1s), session_lease_);
    stopping_ = true;
    mirror_.close(Error{Code::cancelled, "the store was closed"});
    if (stream_) stream_->cancel();
    for (auto* call : grpc_calls_) call->TryCancel();
    changed_.notify_all();
    revision_waiters_.close();
    while (active_calls_ > 0) std::ignore = co_await changed_.wait(Context::background());
    co_await tasks_.stop();
}

} // namespace etcd

Task<std::unique_ptr<Store>> open_etcd(Context ctx, asio::any_io_executor executor, EtcdOptions options) {
    if (options.prefix.empty() || options.prefix.back() != '/') options.prefix += '/';
    CO_TRY(auto members, etcd::Members::make(options));
    auto engine = std::make_unique<etcd::Engine>(executor, std::move(options), std::move(members));
    // The engine must be stopped even if the caller is cancelled, so a cancellation must not throw here.
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    auto started = co_await engine->start(ctx);
    if (!started.ok()) co_await engine->stop();
    co_await asio::this_coro::throw_if_cancelled(throws);
    if (!started.ok()) co_return started.error();
    co_return std::unique_ptr<Store>(std::move(engine));
}

bool outcome_unknown(const Error& error) { return error.remedy.starts_with(etcd::unknown_outcome); }

} // namespace orrery::store
