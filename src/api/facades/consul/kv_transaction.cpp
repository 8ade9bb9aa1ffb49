#include "api/facades/consul/kv_encoding.h"
#include "api/facades/consul/kv_state.h"

#include <fmt/format.h>

#include <optional>

/// Operations on keys: planned on the index in memory, written as one transaction of the store.
namespace orrery::api::consul {

namespace {

/// The keys after the operations of a transaction so far.
class Overlay {
public:
    explicit Overlay(const std::map<std::string, Entry, std::less<>>& base) : base_(base) {}
    const Entry* find(const std::string& key) const {
        if (const auto at = changed_.find(key); at != changed_.end()) return at->second ? &*at->second : nullptr;
        const auto at = base_.find(key);
        return at == base_.end() ? nullptr : &at->second;
    }
    void put(Entry entry) { changed_[entry.key] = std::move(entry); }
    void remove(const std::string& key) { changed_[key] = std::nullopt; }
    std::vector<std::string> keys_below(const std::string& prefix) const {
        std::set<std::string> out;
        for (auto at = base_.lower_bound(prefix); at != base_.end() && at->first.starts_with(prefix); ++at) out.insert(at->first);
        for (const auto& [key, entry] : changed_) {
            if (!key.starts_with(prefix)) continue;
            if (entry)
                out.insert(key);
            else
                out.erase(key);
        }
        return {out.begin(), out.end()};
    }
    const std::map<std::string, std::optional<Entry>>& changed() const { return changed_; }

private:
    const std::map<std::string, Entry, std::less<>>& base_;
    std::map<std::string, std::optional<Entry>> changed_;
};

/// The audit event of a transaction. It never contains values.
resource::EventDraft event_of(const std::map<std::string, std::optional<Entry>>& changed,
                              const std::map<std::string, std::string_view>& actions, const Context& ctx, const std::string& peer) {
    const auto action_of = [&](const std::string& key, const std::optional<Entry>& now) -> std::string_view {
        const auto at = actions.find(key);
        return !now || at == actions.end() ? "removed" : at->second;
    };
    if (changed.size() == 1) {
        const auto& [key, now] = *changed.begin();
        json::object more;
        if (now) more["bytes"] = now->value.size();
        if (now && !now->session.empty()) more["session"] = now->session;
        return {"Key/" + key, std::string(action_of(key, now)), {}, kv_evidence(peer, std::move(more))};
    }
    json::object keys;
    for (const auto& [key, now] : changed) keys[key] = action_of(key, now);
    return {"Transaction/" + ctx.id(), "applied", {}, kv_evidence(peer, {{"keys", std::move(keys)}})};
}

/// Plans the operations of one transaction, one verb at a time. The texts of failures are those of Consul.
class TransactionPlanner {
public:
    using Verb = Operation::Verb;
    using Entries = std::map<std::string, Entry, std::less<>>;
    using Sessions = std::map<std::string, Session, std::less<>>;

    TransactionPlanner(const store::Store& store, const Entries& entries, const Sessions& sessions, bool single)
        : store_(store), entries_(entries), sessions_(sessions), single_(single), overlay_(entries) {}

    /// `invalid`: a session that does not exist. Other failures are collected.
    Result<Unit> add(std::size_t number, const Operation& op) {
        number_ = number;
        op_ = &op;
        now_ = overlay_.find(op.key);
        used_keys_.insert(op.key);
        switch (op.verb) {
        case Verb::set: write(now_ != nullptr ? now_->session : "", 0); break; // as in Consul: only locks count lock_index
        case Verb::cas: compare_and_set(); break;
        case Verb::lock: return lock();
        case Verb::unlock: return unlock();
        case Verb::get:
        case Verb::get_or_empty:
        case Verb::get_tree: get(); break;
        case Verb::check_index:
        case Verb::check_session:
        case Verb::check_not_exists: check(); break;
        case Verb::remove:
        case Verb::remove_cas:
        case Verb::remove_tree: remove(); break;
        }
        return Unit{};
    }

    std::vector<Entry> results;
    std::vector<KeyValues::Failure> failures;
    std::vector<std::size_t> written_results;

    /// Adds the changes, and a comparison for everything that the plan depends on.
    void build(store::Transaction& transaction) const {
        auto keys = used_keys_;
        for (const auto& [key, entry] : overlay_.changed()) {
            keys.insert(key);
            const auto stored = store_key(kv_prefix, key);
            if (entry)
                transaction.put(stored, to_value(*entry));
            else if (entries_.contains(key))
                transaction.remove(stored);
        }
        for (const auto& key : keys) {
            const auto base = entries_.find(key);
            transaction.expect(store_key(kv_prefix, key), base != entries_.end() ? base->second.modified : 0);
        }
        for (const auto& key : locks_) transaction.expect(store_key(delay_prefix, key), 0);
        for (const auto& id : used_sessions_)
            transaction.expect(store_key(session_prefix, id), sessions_.find(id)->second.modified);
    }

    resource::EventDraft event(const Context& ctx, const std::string& peer) const {
        return event_of(overlay_.changed(), actions_, ctx, peer);
    }

private:
    void fail(std::string message) { failures.push_back({number_, std::move(message)}); }
    bool has_index() const { return now_ != nullptr && static_cast<std::uint64_t>(now_->modified) == op_->index; }

    void add_result(Entry entry, bool written, bool with_value) {
        if (!with_value) entry.value.clear();
        if (written) written_results.push_back(results.size());
        results.push_back(std::move(entry));
    }

    void write(std::string session, std::uint64_t lock_index) {
        actions_[op_->key] = op_->verb == Verb::lock     ? "locked"
                             : op_->verb == Verb::unlock ? "unlocked"
                             : now_ == nullptr           ? "created"
                                                         : "updated";
        Entry entry{op_->key,
                    op_->value,
                    op_->flags,
                    lock_index,
                    std::move(session),
                    now_ != nullptr ? now_->created : 0,
                    now_ != nullptr ? now_->modified : 0};
        const bool same = now_ != nullptr && now_->value == entry.value && now_->flags == entry.flags &&
                          now_->session == entry.session && now_->lock_index == entry.lock_index;
        if (!same) {
            entry.modified = 0;
            overlay_.put(entry);
        }
        add_result(entry, !same || entry.modified == 0, false);
    }

    void compare_and_set() {
        if (op_->index == 0 ? now_ != nullptr : !has_index())
            fail(fmt::format("failed to set key \"{}\", index is stale", op_->key));
        else
            write(now_ != nullptr ? now_->session : "", 0);
    }

    Result<Unit> lock() {
        if (!sessions_.contains(op_->session)) return Error{Code::invalid, fmt::format("invalid session \"{}\"", op_->session)};
        used_sessions_.insert(op_->session);
        locks_.insert(op_->key);
        const bool delayed = store_.find(store_key(delay_prefix, op_->key)) != nullptr;
        const bool own = now_ != nullptr && now_->session == op_->session;
        if (delayed || (now_ != nullptr && !now_->session.empty() && !own))
            fail(fmt::format("failed to lock key \"{}\", lock is already held", op_->key));
        else
            write(op_->session, (now_ != nullptr ? now_->lock_index : 0) + (own ? 0 : 1));
        return Unit{};
    }

    Result<Unit> unlock() {
        if (!sessions_.contains(op_->session) && single_ && op_->session.empty()) return Error{Code::invalid, "missing session"};
        if (now_ == nullptr || now_->session.empty() || now_->session != op_->session)
            fail(fmt::format("failed to unlock key \"{}\", lock isn't held, or is held by another session", op_->key));
        else
            write("", now_->lock_index);
        return Unit{};
    }

    void get() {
        if (op_->verb == Verb::get_tree) {
            for (const auto& key : overlay_.keys_below(op_->key)) {
                const auto& entry = *overlay_.find(key);
                add_result(entry, entry.modified == 0, true);
            }
        } else if (now_ != nullptr) {
            add_result(*now_, now_->modified == 0, true);
        } else if (op_->verb == Verb::get_or_empty) {
            add_result(Entry{.key = op_->key}, false, true);
        } else {
            fail(fmt::format("key \"{}\" doesn't exist", op_->key));
        }
    }

    void check() {
        if (op_->verb == Verb::check_not_exists) {
            if (now_ != nullptr) fail(fmt::format("key \"{}\" exists", op_->key));
            return;
        }
        const bool index = op_->verb == Verb::check_index;
        if (now_ == nullptr)
            fail(fmt::format("failed to check {}, key \"{}\" doesn't exist", index ? "index" : "session", op_->key));
        else if (index && !has_index())
            fail(fmt::format("failed index check for key \"{}\", current modify index {} != {}", op_->key, now_->modified,
                             op_->index));
        else if (!index && now_->session != op_->session)
            fail(fmt::format("failed session check for key \"{}\", current session \"{}\" != \"{}\"", op_->key, now_->session,
                             op_->session));
        else
            add_result(*now_, false, false);
    }

    void remove() {
        if (op_->verb == Verb::remove_tree) {
            for (const auto& key : overlay_.keys_below(op_->key)) overlay_.remove(key);
        } else if (op_->verb == Verb::remove || has_index()) {
            if (now_ != nullptr) overlay_.remove(op_->key);
        } else if (now_ != nullptr || op_->index != 0) {
            fail(fmt::format("failed to delete key \"{}\", index is stale", op_->key));
        }
    }

    const store::Store& store_;
    const Entries& entries_;
    const Sessions& sessions_;
    bool single_; ///< the only operation of the request
    Overlay overlay_;
    std::size_t number_ = 0;
    const Operation* op_ = nullptr;
    const Entry* now_ = nullptr; ///< the key before the operation
    std::set<std::string> used_sessions_, locks_, used_keys_;
    std::map<std::string, std::string_view> actions_; ///< by key, for the event
};

} // namespace

Result<KeyValues::Plan> KeyValues::State::plan(const Context& ctx, const std::string& peer,
                                               const std::vector<Operation>& operations) const {
    TransactionPlanner planner(store, entries, sessions, operations.size() == 1);
    for (std::size_t i = 0; i < operations.size(); ++i) {
        TRY(std::ignore, planner.add(i, operations[i]));
    }
    Plan plan;
    plan.done.revision = revision;
    plan.done.failures = std::move(planner.failures);
    if (!plan.done.failures.empty()) return plan;
    plan.done.results = std::move(planner.results);
    plan.written_results = std::move(planner.written_results);
    auto& transaction = plan.transaction;
    planner.build(transaction);
    if (transaction.changes.empty()) return plan;
    if (transaction.changes.size() >= store::max_changes || transaction.compares.size() >= store::max_changes)
        return Error{Code::too_large,
                     fmt::format("a transaction may use at most {} keys, locks and sessions", store::max_changes - 1)};
    plan.event = planner.event(ctx, peer);
    return plan;
}

Task<KeyValues::Done> KeyValues::apply(Context ctx, std::string peer, std::vector<Operation> operations) {
    auto& state = *state_;
    for (int attempt = 0; attempt < 20; ++attempt) {
        CO_TRY(auto plan, state.plan(ctx, peer, operations));
        auto& done = plan.done;
        if (plan.transaction.changes.empty()) co_return std::move(done);
        resource::add_event(ctx, state.clock, std::move(plan.event), plan.transaction);
        auto applied = co_await state.store.apply(ctx, std::move(plan.transaction));
        if (applied.ok()) {
            done.revision = *applied;
            for (const auto result : plan.written_results) {
                auto& entry = done.results[result];
                if (entry.created == 0) entry.created = *applied;
                entry.modified = *applied;
            }
            co_return std::move(done);
        }
        if (applied.error().code != Code::conflict) co_return std::move(applied).error();
        CO_TRY(std::ignore, co_await state.store.catch_up(ctx));
    }
    co_return Error{Code::unavailable, "these keys change too often", "try again"};
}

Task<Unit> KeyValues::remove_tree(Context ctx, std::string peer, std::string prefix) {
    auto& state = *state_;
    for (;;) {
        store::Transaction transaction;
        json::array keys;
        for (const auto* entry : tree(prefix)) {
            if (transaction.changes.size() == max_keys_per_batch) break;
            transaction.remove(store_key(kv_prefix, entry->key));
            keys.emplace_back(entry->key);
        }
        if (transaction.changes.empty()) co_return Unit{};
        resource::add_event(ctx, state.clock,
                            {"Key/" + prefix, "removed-below", {}, kv_evidence(peer, {{"keys", std::move(keys)}})}, transaction);
        CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    }
}

} // namespace orrery::api::consul
