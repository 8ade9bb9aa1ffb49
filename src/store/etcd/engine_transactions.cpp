// Transactions with exactly-once semantics. A client whose connection breaks does not know whether its request was applied, and a
// retry may apply it twice. Each write therefore carries two additions in its own etcd transaction:
//   - a marker: the put of "<session>.<number>" to one key. The watch delivers it if the write was applied, with the revision;
//   - a session check: a compare on the revision of the session's key. To resolve a lost write, the engine rewrites that key (a
//     fence). The lost write can then no longer be applied. If the watch passes the fence without the marker, the write was not
//     applied and may be sent again.

#include "core/log.h"
#include "store/etcd/engine.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

/// Keeps an entry in `pending_writes_` for the duration of a write.
class Engine::PendingWriteGuard {
public:
    explicit PendingWriteGuard(Engine& engine) : engine_(engine), pending(std::make_shared<PendingWrite>()) {
        pending->number = ++engine_.last_write_number_;
        engine_.pending_writes_.emplace(pending->number, pending);
    }
    ~PendingWriteGuard() { engine_.pending_writes_.erase(pending->number); }
    PendingWriteGuard(const PendingWriteGuard&) = delete;
    PendingWriteGuard& operator=(const PendingWriteGuard&) = delete;

private:
    Engine& engine_;

public:
    std::shared_ptr<PendingWrite> pending;
};

namespace {

void add_compares(pb::TxnRequest& request, const Transaction& transaction, const std::string& prefix) {
    for (const auto& wanted : transaction.compares) {
        auto& compare = *request.add_compare();
        compare.set_key(prefix + wanted.key);
        compare.set_result(pb::Compare::EQUAL);
        if (wanted.target == Compare::Target::modified) {
            compare.set_target(pb::Compare::MOD);
            compare.set_mod_revision(wanted.revision);
        } else {
            compare.set_target(pb::Compare::CREATE);
            compare.set_create_revision(wanted.revision);
        }
        auto& range = *request.add_failure()->mutable_request_range();
        range.set_key(prefix + wanted.key);
        range.set_keys_only(true);
    }
}

/// The error of a write whose outcome is unknown.
Error lost_write(const Error& why) {
    return Error{
        Code::unavailable, why.message,
        fmt::format("{}: the write was sent to etcd and its response was lost; read the key again before you repeat the write",
                    unknown_outcome)};
}

} // namespace

std::shared_ptr<Engine::TxnCall> Engine::build_request(const Transaction& transaction, std::uint64_t number) const {
    auto call = std::make_shared<TxnCall>();
    auto& request = call->request;
    const auto session = path(session_key) + session_;
    auto& session_check = *request.add_compare();
    session_check.set_key(session);
    session_check.set_result(pb::Compare::EQUAL);
    session_check.set_target(pb::Compare::MOD);
    session_check.set_mod_revision(session_revision_);
    auto& session_read = *request.add_failure()->mutable_request_range();
    session_read.set_key(session);
    session_read.set_keys_only(true);
    add_compares(request, transaction, options_.prefix);
    for (const auto& change : transaction.changes) {
        auto& operation = *request.add_success();
        if (change.op == Change::Op::put) {
            auto& put = *operation.mutable_request_put();
            put.set_key(options_.prefix + change.key);
            put.set_value(change.value);
            put.set_lease(change.lease);
        } else {
            operation.mutable_request_delete_range()->set_key(options_.prefix + change.key);
        }
    }
    auto& mark = *request.add_success()->mutable_request_put();
    mark.set_key(path(write_marker_key));
    mark.set_value(fmt::format("{}.{}", session_, number));
    return call;
}

Task<Revision> Engine::apply(Context ctx, Transaction transaction) {
    CO_TRY(std::ignore, validate(transaction));
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    ActiveCall active(*this);
    if (transaction.changes.empty()) co_return co_await check_compares(ctx, std::move(transaction));
    const auto absent = [this](const Change& change) { return change.op == Change::Op::remove && !mirror_.find(change.key); };
    if (std::ranges::all_of(transaction.changes, absent) &&
        transaction.changes.size() + transaction.compares.size() <= max_changes) {
        // According to the copy there is nothing to remove. Check that, so that nothing is written, not even the marker.
        Transaction nothing{transaction.compares, {}};
        for (const auto& change : transaction.changes) nothing.expect_created(change.key, 0);
        auto checked = co_await check_compares(ctx, std::move(nothing));
        if (checked.ok() || checked.error().code != Code::conflict) co_return checked;
    }
    co_return co_await write(ctx, std::move(transaction), deadline_of(ctx));
}

Task<Revision> Engine::write(Context ctx, Transaction transaction, SteadyTime until) {
    Duration pause = 5ms;
    for (int logins = 0;;) {
        if (!connected_ && retries_exhausted()) co_return unavailable_error(Error{Code::unavailable, last_failure_});
        if (session_revision_ == 0) {
            CO_TRY(std::ignore, co_await fence(ctx.with_deadline(until), 0));
        }
        const Revision sent_revision = session_revision_;
        PendingWriteGuard guard(*this);
        auto call = build_request(transaction, guard.pending->number);
        auto outcome =
            co_await call_once<pb::TxnRequest, pb::TxnResponse>(call, until, [](MemberConnection& connection, auto& c, auto done) {
                connection.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
            });
        const auto& response = call->response;
        switch (outcome.status) {
        case CallOutcome::Status::done: {
            if (response.succeeded()) co_return co_await wait_until_visible(ctx, response.header().revision(), until);
            const auto& session_check = response.responses(0).response_range();
            const Revision current_session = session_check.kvs_size() > 0 ? session_check.kvs(0).mod_revision() : 0;
            if (current_session == sent_revision) co_return co_await conflict_error(ctx, call, std::move(transaction), 1);
            // Rejected by a fence for another lost write, so it was not applied.
            session_revision_ = std::max(session_revision_, current_session);
            if (session_revision_ == sent_revision) {
                CO_TRY(std::ignore, co_await fence(ctx.with_deadline(until), sent_revision));
            }
            continue;
        }
        case CallOutcome::Status::refused: co_return outcome.error;
        case CallOutcome::Status::not_done: break;
        case CallOutcome::Status::unknown: {
            if (outcome.error.code == Code::cancelled)
                co_return Error{Code::cancelled, outcome.error.message, lost_write(outcome.error).remedy};
            auto found = co_await resolve_lost_write(ctx.with_deadline(until), guard.pending, sent_revision);
            if (!found.ok())
                co_return lost_write(
                    Error{Code::unavailable, fmt::format("{}; then {}", outcome.error.message, found.error().message)});
            ++counts_.resolved;
            if (*found != 0) co_return co_await wait_until_visible(ctx, *found, until);
            break;
        }
        }
        if (outcome.log_in_again && logins++ < 3) {
            CO_TRY(std::ignore, co_await members_->log_in(ctx.with_deadline(until)));
            continue;
        }
        if (std::chrono::steady_clock::now() + pause >= until || retries_exhausted()) co_return unavailable_error(outcome.error);
        CO_TRY(std::ignore, co_await real_clock().sleep(pause));
        pause = std::min<Duration>(pause * 2, 200ms);
    }
}

Task<Revision> Engine::wait_until_visible(Context ctx, Revision revision, SteadyTime until) {
    auto reached = co_await revision_waiters_.wait(revision, until);
    if (reached.ok()) co_return revision;
    co_return Error{Code::unavailable,
                    fmt::format("written at revision {}, but not yet visible in this server's copy ({})", revision,
                                last_failure_.empty() ? reached.error().message : last_failure_),
                    fmt::format("{} to this server only: do not repeat the write, read again later", unknown_outcome)};
}

Task<Revision> Engine::check_compares(Context ctx, Transaction transaction) {
    if (!connected_ && retries_exhausted()) co_return unavailable_error(Error{Code::unavailable, last_failure_});
    auto call = std::make_shared<TxnCall>();
    add_compares(call->request, transaction, options_.prefix);
    CO_TRY(call->response, co_await call_with_retry<pb::TxnRequest, pb::TxnResponse>(
                               ctx, call->request, [](MemberConnection& connection, auto& c, auto done) {
                                   connection.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
                               }));
    if (!call->response.succeeded()) co_return co_await conflict_error(ctx, call, std::move(transaction), 0);
    CO_TRY(std::ignore, co_await wait_for_revision(ctx, call->response.header().revision()));
    co_return mirror_.revision();
}

Task<Revision> Engine::conflict_error(Context ctx, std::shared_ptr<TxnCall> call, Transaction transaction,
                                      std::size_t first_answer) {
    // The caller will read the copy and retry, so the copy must first have the change that caused the conflict.
    const auto& response = call->response;
    Revision newest = 0;
    bool removed = false;
    Error conflict{Code::conflict, "a comparison did not hold"};
    bool described = false;
    for (std::size_t i = 0; i < transaction.compares.size(); ++i) {
        const auto& compare = transaction.compares[i];
        const auto& answer = response.responses(static_cast<int>(i + first_answer)).response_range();
        const auto* kv = answer.kvs_size() > 0 ? &answer.kvs(0) : nullptr;
        const Revision found = kv == nullptr                                 ? 0
                               : compare.target == Compare::Target::modified ? kv->mod_revision()
                                                                             : kv->create_revision();
        if (kv != nullptr) newest = std::max(newest, static_cast<Revision>(kv->mod_revision()));
        removed = removed || (kv == nullptr && mirror_.find(compare.key) != nullptr);
        if (found == compare.revision || described) continue;
        described = true;
        if (kv == nullptr)
            conflict.message = fmt::format("\"{}\" no longer exists", compare.key);
        else if (compare.revision == 0)
            conflict.message = fmt::format("\"{}\" already exists", compare.key);
        else
            conflict.message =
                fmt::format("\"{}\" was changed: it is at revision {}, not {}", compare.key, found, compare.revision);
    }
    // A deleted key has no revision. The deletion is not later than the revision of this response.
    if (removed) {
        CO_TRY(std::ignore, co_await wait_for_revision(ctx, response.header().revision()));
    }
    CO_TRY(std::ignore, co_await revision_waiters_.wait(newest, deadline_of(ctx)));
    co_return conflict;
}

Task<Revision> Engine::resolve_lost_write(Context ctx, std::shared_ptr<PendingWrite> pending, Revision sent_revision) {
    if (pending->applied != 0) co_return pending->applied;
    CO_TRY(auto fenced_at, co_await fence(ctx, sent_revision));
    CO_TRY(std::ignore, co_await revision_waiters_.wait(fenced_at, deadline_of(ctx)));
    if (pending->applied != 0) co_return pending->applied;
    if (pending->history_gap) co_return Error{Code::unavailable, "etcd compacted the history before this server saw it"};
    co_return Revision{0};
}

Task<Revision> Engine::fence(Context ctx, Revision old) {
    while (session_revision_ <= old) {
        if (fencing_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx));
            continue;
        }
        SingleFlight flight(fencing_, changed_);
        // The lease removes the session's key after the server is gone.
        if (session_lease_ == 0) {
            CO_TRY(session_lease_, co_await grant_lease(ctx, 1h));
        }
        pb::PutRequest request;
        request.set_key(path(session_key) + session_);
        request.set_lease(session_lease_);
        ++counts_.fences;
        auto put = co_await call_with_retry<pb::PutRequest, pb::PutResponse>(
            ctx, std::move(request), [](MemberConnection& connection, auto& c, auto done) {
                connection.kv->async()->Put(&c.context, &c.request, &c.response, std::move(done));
            });
        if (!put.ok() && put.error().code == Code::not_found) {
            session_lease_ = 0;
            continue;
        }
        if (!put.ok()) co_return put.error();
        session_revision_ = std::max(session_revision_, static_cast<Revision>(put->header().revision()));
    }
    co_return session_revision_;
}

asio::awaitable<void> Engine::renew_session() {
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!stopping_) {
        auto slept = co_await real_clock().sleep(15min);
        if (!slept.ok() || stopping_) co_return;
        if (session_lease_ == 0) continue;
        const auto lease = session_lease_;
        auto renewed = co_await renew_lease(Context::background().with_timeout(options_.request_timeout), lease);
        if (!renewed.ok() && renewed.error().code == Code::not_found && session_lease_ == lease) session_lease_ = 0;
    }
}

} // namespace orrery::store::etcd
