// Transactions, each applied exactly once. An etcd client whose connection breaks cannot know what became of its request, and one
// that asks again may do things twice. So each write carries two things more:
//   - a mark, "<session>.<number>" put at one key in the same transaction, which comes back by the watch: then it was applied, and
//   where;
//   - a bond: it holds only while our session's key has the revision we know. To settle a lost write we write that key again. After
//   that
//     the lost one can no longer be applied, and once the watch has passed that point without its mark, it never was: it may be
//     sent anew.

#include "core/log.h"
#include "store/etcd/engine.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::store::etcd {

using namespace std::chrono_literals;

/// An entry in `underway_` for as long as a write lasts, however it ends.
class Engine::Registered {
public:
    explicit Registered(Engine& engine) : engine_(engine), underway(std::make_shared<Underway>()) {
        underway->number = ++engine_.numbers_;
        engine_.underway_.emplace(underway->number, underway);
    }
    ~Registered() { engine_.underway_.erase(underway->number); }
    Registered(const Registered&) = delete;
    Registered& operator=(const Registered&) = delete;

private:
    Engine& engine_;

public:
    std::shared_ptr<Underway> underway;
};

namespace {

void add_compares(pb::TxnRequest& request, const Transaction& transaction, const std::string& prefix) {
    for (const auto& wanted : transaction.compares) {
        auto& compare = *request.add_compare();
        compare.set_key(prefix + wanted.key);
        compare.set_result(pb::Compare::EQUAL);
        if (wanted.what == Compare::What::modified) {
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

/// What a lost write's error says.
Error lost_write(const Error& why) {
    return Error{
        Code::unavailable, why.message,
        fmt::format("{}: etcd was asked to write, and its answer was lost; read again before you repeat it", unknown_outcome)};
}

} // namespace

std::shared_ptr<Engine::TxnCall> Engine::build(const Transaction& transaction, std::uint64_t number) const {
    auto call = std::make_shared<TxnCall>();
    auto& request = call->request;
    const auto session = path(session_key) + session_;
    auto& bond = *request.add_compare();
    bond.set_key(session);
    bond.set_result(pb::Compare::EQUAL);
    bond.set_target(pb::Compare::MOD);
    bond.set_mod_revision(epoch_);
    auto& bond_now = *request.add_failure()->mutable_request_range();
    bond_now.set_key(session);
    bond_now.set_keys_only(true);
    add_compares(request, transaction, options_.prefix);
    for (const auto& change : transaction.changes) {
        auto& operation = *request.add_success();
        if (change.what == Change::What::put) {
            auto& put = *operation.mutable_request_put();
            put.set_key(options_.prefix + change.key);
            put.set_value(change.value);
            put.set_lease(change.lease);
        } else {
            operation.mutable_request_delete_range()->set_key(options_.prefix + change.key);
        }
    }
    auto& mark = *request.add_success()->mutable_request_put();
    mark.set_key(path(mark_key));
    mark.set_value(fmt::format("{}.{}", session_, number));
    return call;
}

Task<Revision> Engine::apply(Context ctx, Transaction transaction) {
    CO_TRY(std::ignore, validate(transaction));
    if (closing_) co_return Error{Code::unavailable, "the store is being closed"};
    Visit visit(*this);
    if (transaction.changes.empty()) co_return co_await check_only(ctx, std::move(transaction));
    const auto absent = [this](const Change& change) { return change.what == Change::What::remove && !mirror_.find(change.key); };
    if (std::ranges::all_of(transaction.changes, absent) &&
        transaction.changes.size() + transaction.compares.size() <= max_changes) {
        // There is nothing to remove, it seems. Then nothing shall be written either, not even our mark.
        Transaction nothing{transaction.compares, {}};
        for (const auto& change : transaction.changes) nothing.expect_created(change.key, 0);
        auto checked = co_await check_only(ctx, std::move(nothing));
        if (checked.ok() || checked.error().code != Code::conflict) co_return checked;
    }
    co_return co_await write(ctx, std::move(transaction), until_of(ctx));
}

Task<Revision> Engine::write(Context ctx, Transaction transaction, SteadyTime until) {
    Duration pause = 5ms;
    for (int logins = 0;;) {
        if (!connected_ && out_of_patience()) co_return lost_error(Error{Code::unavailable, lost_reason_});
        if (epoch_ == 0) {
            CO_TRY(std::ignore, co_await fence_off(ctx.with_deadline(until), 0));
        }
        const Revision sent_with = epoch_;
        Registered registered(*this);
        auto call = build(transaction, registered.underway->number);
        auto outcome = co_await attempt<pb::TxnRequest, pb::TxnResponse>(call, until, [](Line& line, auto& c, auto done) {
            line.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
        });
        const auto& response = call->response;
        switch (outcome.what) {
        case Outcome::What::done: {
            if (response.succeeded()) co_return co_await shown(ctx, response.header().revision(), until);
            const auto& bond = response.responses(0).response_range();
            const Revision now_bound_to = bond.kvs_size() > 0 ? bond.kvs(0).mod_revision() : 0;
            if (now_bound_to == sent_with) co_return co_await refuse_conflict(ctx, call, std::move(transaction), 1);
            // Fenced off together with a lost write: surely not applied.
            epoch_ = std::max(epoch_, now_bound_to);
            if (epoch_ == sent_with) {
                CO_TRY(std::ignore, co_await fence_off(ctx.with_deadline(until), sent_with));
            }
            continue;
        }
        case Outcome::What::refused: co_return outcome.error;
        case Outcome::What::not_done: break;
        case Outcome::What::unknown: {
            if (outcome.error.code == Code::cancelled)
                co_return Error{Code::cancelled, outcome.error.message, lost_write(outcome.error).remedy};
            auto found = co_await resolve(ctx.with_deadline(until), registered.underway, sent_with);
            if (!found.ok())
                co_return lost_write(
                    Error{Code::unavailable, fmt::format("{}; then {}", outcome.error.message, found.error().message)});
            ++counts_.resolved;
            if (*found != 0) co_return co_await shown(ctx, *found, until);
            break;
        }
        }
        if (outcome.log_in_again && logins++ < 3) {
            CO_TRY(std::ignore, co_await members_->log_in(ctx.with_deadline(until)));
            continue;
        }
        if (std::chrono::steady_clock::now() + pause >= until || out_of_patience()) co_return lost_error(outcome.error);
        CO_TRY(std::ignore, co_await real_clock().sleep(pause));
        pause = std::min<Duration>(pause * 2, 200ms);
    }
}

Task<Revision> Engine::shown(Context ctx, Revision revision, SteadyTime until) {
    auto reached = co_await gate_.wait(revision, until);
    if (reached.ok()) co_return revision;
    co_return Error{Code::unavailable,
                    fmt::format("it was written as revision {}, but this server's copy does not show it yet ({})", revision,
                                lost_reason_.empty() ? reached.error().message : lost_reason_),
                    fmt::format("{} to this server only: do not repeat it, read again later", unknown_outcome)};
}

Task<Revision> Engine::check_only(Context ctx, Transaction transaction) {
    if (!connected_ && out_of_patience()) co_return lost_error(Error{Code::unavailable, lost_reason_});
    auto call = std::make_shared<TxnCall>();
    add_compares(call->request, transaction, options_.prefix);
    CO_TRY(call->response, co_await ask<pb::TxnRequest, pb::TxnResponse>(ctx, call->request, [](Line& line, auto& c, auto done) {
               line.kv->async()->Txn(&c.context, &c.request, &c.response, std::move(done));
           }));
    if (!call->response.succeeded()) co_return co_await refuse_conflict(ctx, call, std::move(transaction), 0);
    CO_TRY(std::ignore, co_await settle(ctx, call->response.header().revision()));
    co_return mirror_.revision();
}

Task<Revision> Engine::refuse_conflict(Context ctx, std::shared_ptr<TxnCall> call, Transaction transaction,
                                       std::size_t first_answer) {
    // The caller will read the copy and try again: it should find there what it lost to.
    const auto& response = call->response;
    Revision newest = 0;
    bool vanished = false;
    Error conflict{Code::conflict, "a comparison did not hold"};
    bool named = false;
    for (std::size_t i = 0; i < transaction.compares.size(); ++i) {
        const auto& compare = transaction.compares[i];
        const auto& answer = response.responses(static_cast<int>(i + first_answer)).response_range();
        const auto* kv = answer.kvs_size() > 0 ? &answer.kvs(0) : nullptr;
        const Revision found = kv == nullptr                             ? 0
                               : compare.what == Compare::What::modified ? kv->mod_revision()
                                                                         : kv->create_revision();
        if (kv != nullptr) newest = std::max(newest, static_cast<Revision>(kv->mod_revision()));
        vanished = vanished || (kv == nullptr && mirror_.find(compare.key) != nullptr);
        if (found == compare.revision || named) continue;
        named = true;
        if (kv == nullptr)
            conflict.message = fmt::format("\"{}\" does not exist any more", compare.key);
        else if (compare.revision == 0)
            conflict.message = fmt::format("\"{}\" exists already", compare.key);
        else
            conflict.message =
                fmt::format("\"{}\" was changed: it is at revision {}, not {}", compare.key, found, compare.revision);
    }
    // A deletion leaves no revision behind; it is not later than this answer.
    if (vanished) {
        CO_TRY(std::ignore, co_await settle(ctx, response.header().revision()));
    }
    CO_TRY(std::ignore, co_await gate_.wait(newest, until_of(ctx)));
    co_return conflict;
}

Task<Revision> Engine::resolve(Context ctx, std::shared_ptr<Underway> underway, Revision sent_with) {
    if (underway->applied != 0) co_return underway->applied;
    CO_TRY(auto bound, co_await fence_off(ctx, sent_with));
    CO_TRY(std::ignore, co_await gate_.wait(bound, until_of(ctx)));
    if (underway->applied != 0) co_return underway->applied;
    if (underway->blind) co_return Error{Code::unavailable, "etcd compacted the history before this server saw it"};
    co_return Revision{0};
}

Task<Revision> Engine::fence_off(Context ctx, Revision old) {
    while (epoch_ <= old) {
        if (fencing_) {
            CO_TRY(std::ignore, co_await changed_.wait(ctx));
            continue;
        }
        EngineTurn turn(fencing_, changed_);
        // The session's key goes away some time after its server has.
        if (session_lease_ == 0) {
            CO_TRY(session_lease_, co_await grant_lease(ctx, 1h));
        }
        pb::PutRequest request;
        request.set_key(path(session_key) + session_);
        request.set_lease(session_lease_);
        ++counts_.fences;
        auto put = co_await ask<pb::PutRequest, pb::PutResponse>(ctx, std::move(request), [](Line& line, auto& c, auto done) {
            line.kv->async()->Put(&c.context, &c.request, &c.response, std::move(done));
        });
        if (!put.ok() && put.error().code == Code::not_found) {
            session_lease_ = 0;
            continue;
        }
        if (!put.ok()) co_return put.error();
        epoch_ = std::max(epoch_, static_cast<Revision>(put->header().revision()));
    }
    co_return epoch_;
}

asio::awaitable<void> Engine::keep_session() {
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!stopping_) {
        auto slept = co_await real_clock().sleep(15min);
        if (!slept.ok() || stopping_) co_return;
        if (session_lease_ == 0) continue;
        const auto lease = session_lease_;
        auto kept = co_await renew_lease(Context::background().with_timeout(options_.request_timeout), lease);
        if (!kept.ok() && kept.error().code == Code::not_found && session_lease_ == lease) session_lease_ = 0;
    }
}

} // namespace orrery::store::etcd
