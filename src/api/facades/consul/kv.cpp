#include "api/facades/consul/kv.h"

#include "api/facades/consul/kv_forms.h"
#include "resource/events.h"

#include <fmt/format.h>

#include <set>

namespace orrery::api::consul {

namespace {

constexpr std::size_t tombstones_kept = 10'000, keys_at_once = 100, tree_revisions_kept = 10'000;

/// The keys as they would be after some operations of a transaction.
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

json::object evidence(const std::string& peer, json::object more) {
    if (!peer.empty()) more["peer"] = peer;
    return more;
}

/// What a transaction did to keys. Their values are nobody's business but their owners'.
resource::EventDraft event_of(const std::map<std::string, std::optional<Entry>>& changed,
                              const std::map<std::string, std::string_view>& deeds, const Context& ctx, const std::string& peer) {
    const auto deed = [&](const std::string& key, const std::optional<Entry>& now) -> std::string_view {
        const auto at = deeds.find(key);
        return !now || at == deeds.end() ? "removed" : at->second;
    };
    if (changed.size() == 1) {
        const auto& [key, now] = *changed.begin();
        json::object more;
        if (now) more["bytes"] = now->value.size();
        if (now && !now->session.empty()) more["session"] = now->session;
        return {"Key/" + key, std::string(deed(key, now)), {}, evidence(peer, std::move(more))};
    }
    json::object keys;
    for (const auto& [key, now] : changed) keys[key] = deed(key, now);
    return {"Transaction/" + ctx.id(), "applied", {}, evidence(peer, {{"keys", std::move(keys)}})};
}

} // namespace

struct KeyValues::State {
    State(asio::any_io_executor executor, store::Store& store_, const Clock& clock_)
        : store(store_), clock(clock_), changed(std::move(executor)) {
        revision = sessions_revision = floor = std::max<Revision>(1, store.revision());
        loading = true;
        observers.push_back(store.observe(kv_prefix, [this](const store::Event& event) { key_changed(event); }));
        observers.push_back(store.observe(session_prefix, [this](const store::Event& event) { session_changed(event); }));
        loading = false;
    }

    static Revision at(const store::Event& event) {
        return event.revision != 0 ? event.revision : event.record ? event.record->modified : 1;
    }

    void key_changed(const store::Event& event) {
        revision = std::max(revision, at(event));
        tree_revisions.clear();
        auto known = by_store_key.find(event.key);
        if (!event.record) {
            if (known == by_store_key.end()) return;
            const auto key = known->second;
            drop_holder(key);
            entries.erase(key);
            by_store_key.erase(known);
            if (tombstones.size() >= tombstones_kept) {
                tombstones.clear();
                floor = revision;
            }
            tombstones[key] = at(event);
        } else if (auto entry = read_entry(*event.record)) {
            const auto key = entry->key;
            drop_holder(key);
            by_store_key[event.key] = key;
            tombstones.erase(key);
            if (!entry->session.empty()) held[entry->session].insert(key);
            entries[key] = std::move(*entry);
        }
        if (!loading) changed.notify_all();
    }

    void drop_holder(const std::string& key) {
        const auto at_key = entries.find(key);
        if (at_key == entries.end() || at_key->second.session.empty()) return;
        const auto holder = held.find(at_key->second.session);
        if (holder == held.end()) return;
        holder->second.erase(key);
        if (holder->second.empty()) held.erase(holder);
    }

    void session_changed(const store::Event& event) {
        sessions_revision = std::max(sessions_revision, at(event));
        const auto id = event.key.substr(session_prefix.size());
        if (!event.record) {
            if (const auto gone = sessions.find(id); gone != sessions.end()) {
                departed[id] = gone->second;
                sessions.erase(gone);
            }
        } else if (auto session = read_session(*event.record)) {
            sessions[id] = std::move(*session);
        }
        if (!loading) changed.notify_all();
    }

    Result<Plan> plan(const Context& ctx, const std::string& peer, const std::vector<Operation>& operations) const;

    /// What becomes of a key whose holder goes: freed or removed, and not to be taken again for a while.
    void let_go(store::Transaction& transaction, const Entry& entry, const Session& holder) const {
        const auto key = store_key(kv_prefix, entry.key);
        transaction.expect(key, entry.modified);
        if (holder.deletes) {
            transaction.remove(key);
        } else {
            auto freed = entry;
            freed.session.clear();
            transaction.put(key, to_value(freed));
        }
    }

    Task<Unit> delay_locks(Context ctx, const Session& holder, std::vector<std::string> keys) {
        if (holder.lock_delay <= Duration::zero() || keys.empty()) co_return Unit{};
        CO_TRY(const auto lease, co_await store.grant(ctx, std::max<Duration>(holder.lock_delay, std::chrono::seconds(1))));
        store::Transaction transaction;
        for (const auto& key : keys) transaction.put(store_key(delay_prefix, key), "1", lease);
        CO_TRY(std::ignore, co_await store.apply(ctx, std::move(transaction)));
        co_return Unit{};
    }

    /// Lets go of everything a session holds, some at a time.
    Task<Unit> free_all(Context ctx, std::string peer, Session holder, const store::Fence* fence) {
        for (int attempt = 0; attempt < 100; ++attempt) {
            const auto mine = held.find(holder.id);
            if (mine == held.end()) co_return Unit{};
            std::vector<std::string> keys;
            store::Transaction transaction;
            for (const auto& key : mine->second) {
                if (keys.size() == keys_at_once) break;
                keys.push_back(key);
                let_go(transaction, entries.at(key), holder);
            }
            // First the delay: between the two nobody may take the lock.
            CO_TRY(std::ignore, co_await delay_locks(ctx, holder, keys));
            if (fence != nullptr) fence->guard(transaction);
            resource::add_event(ctx, clock,
                                {"Session/" + holder.id, holder.deletes ? "keys-removed" : "keys-released", "the session ended",
                                 evidence(peer, {{"keys", json::array(keys.begin(), keys.end())}})},
                                transaction);
            auto done = co_await store.apply(ctx, std::move(transaction));
            if (!done.ok() && done.error().code != Code::conflict) co_return std::move(done).error();
        }
        co_return Error{Code::conflict, "the keys of this session change too often"};
    }

    store::Store& store;
    const Clock& clock;
    Notifier changed;
    bool loading = false;
    std::map<std::string, Entry, std::less<>> entries;
    std::map<std::string, std::string> by_store_key;
    std::map<std::string, Revision, std::less<>> tombstones;
    std::map<std::string, std::set<std::string>> held; ///< session → keys
    std::map<std::string, Session, std::less<>> sessions;
    std::map<std::string, Session> departed;                     ///< sessions that went and whose keys may still have to be freed
    std::map<std::string, Revision, std::less<>> tree_revisions; ///< worked out since the last change, for all who block on one
    /// Removals up to `floor` are not known any more (they are from before the start, or too many): everything may have changed
    /// then.
    Revision revision = 1, sessions_revision = 1, floor = 1;
    std::vector<std::shared_ptr<void>> observers;
};

KeyValues::KeyValues(asio::any_io_executor executor, store::Store& store, const Clock& clock)
    : state_(std::make_unique<State>(std::move(executor), store, clock)) {}
KeyValues::~KeyValues() { state_->observers.clear(); }

const Entry* KeyValues::find(std::string_view key) const {
    const auto at = state_->entries.find(key);
    return at == state_->entries.end() ? nullptr : &at->second;
}

std::vector<const Entry*> KeyValues::tree(std::string_view prefix) const {
    std::vector<const Entry*> out;
    for (auto at = state_->entries.lower_bound(prefix); at != state_->entries.end() && at->first.starts_with(prefix); ++at)
        out.push_back(&at->second);
    return out;
}

const Session* KeyValues::session(std::string_view id) const {
    const auto at = state_->sessions.find(id);
    return at == state_->sessions.end() ? nullptr : &at->second;
}

std::vector<const Session*> KeyValues::sessions() const {
    std::vector<const Session*> out;
    for (const auto& [id, session] : state_->sessions) out.push_back(&session);
    return out;
}

Revision KeyValues::tree_revision(std::string_view prefix) const {
    auto& known = state_->tree_revisions;
    if (const auto at = known.find(prefix); at != known.end()) return at->second;
    Revision last = 0;
    for (auto at = state_->entries.lower_bound(prefix); at != state_->entries.end() && at->first.starts_with(prefix); ++at)
        last = std::max(last, at->second.modified);
    for (auto at = state_->tombstones.lower_bound(prefix); at != state_->tombstones.end() && at->first.starts_with(prefix); ++at)
        last = std::max(last, at->second);
    last = last == 0 ? state_->revision : std::max(last, state_->floor);
    if (known.size() < tree_revisions_kept) known.emplace(prefix, last);
    return last;
}

Revision KeyValues::key_revision(std::string_view key) const {
    const auto* entry = find(key);
    return entry != nullptr ? entry->modified : state_->revision;
}

Revision KeyValues::revision() const { return state_->revision; }
Revision KeyValues::sessions_revision() const { return state_->sessions_revision; }
Notifier& KeyValues::changed() { return state_->changed; }

/// What operations come to on the keys as they stand: worked out without waiting for anything, tried, and worked out anew when
/// somebody was faster.
struct KeyValues::Plan {
    Done done;
    store::Transaction transaction;       ///< without changes: nothing is to be written
    std::vector<std::size_t> written_now; ///< results whose revision will be the transaction's
    resource::EventDraft event;
};

Result<KeyValues::Plan> KeyValues::State::plan(const Context& ctx, const std::string& peer,
                                               const std::vector<Operation>& operations) const {
    using Verb = Operation::Verb;
    Plan plan;
    auto& done = plan.done;
    auto& transaction = plan.transaction;
    Overlay overlay(entries);
    std::set<std::string> sessions_relied_on, locks_taken, keys_relied_on;
    std::map<std::string, std::string_view> deeds; ///< by key, for the event
    auto& written_now = plan.written_now;
    const auto fail = [&](std::size_t operation, std::string what) { done.failures.push_back({operation, std::move(what)}); };
    const auto give = [&](Entry entry, bool written, bool with_value) {
        if (!with_value) entry.value.clear();
        if (written) written_now.push_back(done.results.size());
        done.results.push_back(std::move(entry));
    };
    for (std::size_t at = 0; at < operations.size(); ++at) {
        const auto& op = operations[at];
        const auto* now = overlay.find(op.key);
        keys_relied_on.insert(op.key);
        const auto write = [&](std::string session, std::uint64_t lock_index) {
            deeds[op.key] = op.verb == Verb::lock     ? "locked"
                            : op.verb == Verb::unlock ? "unlocked"
                            : now == nullptr          ? "created"
                                                      : "updated";
            Entry entry{op.key,
                        op.value,
                        op.flags,
                        lock_index,
                        std::move(session),
                        now != nullptr ? now->created : 0,
                        now != nullptr ? now->modified : 0};
            const bool same = now != nullptr && now->value == entry.value && now->flags == entry.flags &&
                              now->session == entry.session && now->lock_index == entry.lock_index;
            if (!same) {
                entry.modified = 0;
                overlay.put(entry);
            }
            give(entry, !same || entry.modified == 0, false);
        };
        switch (op.verb) {
        case Verb::set: write(now != nullptr ? now->session : "", 0); break; // as Consul does: only locking counts locks
        case Verb::cas:
            if (op.index == 0 ? now != nullptr : now == nullptr || static_cast<std::uint64_t>(now->modified) != op.index)
                fail(at, fmt::format("failed to set key \"{}\", index is stale", op.key));
            else
                write(now != nullptr ? now->session : "", 0);
            break;
        case Verb::lock: {
            if (!sessions.contains(op.session)) return Error{Code::invalid, fmt::format("invalid session \"{}\"", op.session)};
            sessions_relied_on.insert(op.session);
            locks_taken.insert(op.key);
            const bool delayed = store.find(store_key(delay_prefix, op.key)) != nullptr;
            if (delayed || (now != nullptr && !now->session.empty() && now->session != op.session))
                fail(at, fmt::format("failed to lock key \"{}\", lock is already held", op.key));
            else
                write(op.session, (now != nullptr ? now->lock_index : 0) + (now != nullptr && now->session == op.session ? 0 : 1));
            break;
        }
        case Verb::unlock:
            if (!sessions.contains(op.session) && operations.size() == 1 && op.session.empty())
                return Error{Code::invalid, "missing session"};
            if (now == nullptr || now->session.empty() || now->session != op.session)
                fail(at, fmt::format("failed to unlock key \"{}\", lock isn't held, or is held by another session", op.key));
            else
                write("", now->lock_index);
            break;
        case Verb::get:
            if (now == nullptr)
                fail(at, fmt::format("key \"{}\" doesn't exist", op.key));
            else
                give(*now, now->modified == 0, true);
            break;
        case Verb::get_or_empty:
            if (now == nullptr)
                give(Entry{.key = op.key}, false, true);
            else
                give(*now, now->modified == 0, true);
            break;
        case Verb::get_tree:
            for (const auto& key : overlay.keys_below(op.key)) give(*overlay.find(key), overlay.find(key)->modified == 0, true);
            break;
        case Verb::check_index:
            if (now == nullptr)
                fail(at, fmt::format("failed to check index, key \"{}\" doesn't exist", op.key));
            else if (static_cast<std::uint64_t>(now->modified) != op.index)
                fail(at, fmt::format("failed index check for key \"{}\", current modify index {} != {}", op.key, now->modified,
                                     op.index));
            else
                give(*now, false, false);
            break;
        case Verb::check_session:
            if (now == nullptr)
                fail(at, fmt::format("failed to check session, key \"{}\" doesn't exist", op.key));
            else if (now->session != op.session)
                fail(at, fmt::format("failed session check for key \"{}\", current session \"{}\" != \"{}\"", op.key, now->session,
                                     op.session));
            else
                give(*now, false, false);
            break;
        case Verb::check_not_exists:
            if (now != nullptr) fail(at, fmt::format("key \"{}\" exists", op.key));
            break;
        case Verb::remove:
            if (now != nullptr) overlay.remove(op.key);
            break;
        case Verb::remove_cas:
            if (now != nullptr && static_cast<std::uint64_t>(now->modified) == op.index)
                overlay.remove(op.key);
            else if (now != nullptr || op.index != 0)
                fail(at, fmt::format("failed to delete key \"{}\", index is stale", op.key));
            break;
        case Verb::remove_tree:
            for (const auto& key : overlay.keys_below(op.key)) overlay.remove(key);
            break;
        }
    }
    if (!done.failures.empty()) {
        done.results.clear();
        done.revision = revision;
        return plan;
    }
    for (const auto& [key, entry] : overlay.changed()) {
        keys_relied_on.insert(key);
        const auto here = store_key(kv_prefix, key);
        if (entry)
            transaction.put(here, to_value(*entry));
        else if (entries.contains(key))
            transaction.remove(here);
    }
    for (const auto& key : keys_relied_on) {
        const auto base = entries.find(key);
        transaction.expect(store_key(kv_prefix, key), base != entries.end() ? base->second.modified : 0);
    }
    for (const auto& key : locks_taken) transaction.expect(store_key(delay_prefix, key), 0);
    for (const auto& id : sessions_relied_on) transaction.expect(store_key(session_prefix, id), sessions.find(id)->second.modified);
    if (transaction.changes.empty()) {
        done.revision = revision;
        return plan;
    }
    if (transaction.changes.size() >= store::max_changes || transaction.compares.size() >= store::max_changes)
        return Error{Code::too_large, fmt::format("a transaction may touch {} keys, locks and sessions", store::max_changes - 1)};
    plan.event = event_of(overlay.changed(), deeds, ctx, peer);
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
            for (const auto result : plan.written_now) {
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
            if (transaction.changes.size() == keys_at_once) break;
            transaction.remove(store_key(kv_prefix, entry->key));
            keys.emplace_back(entry->key);
        }
        if (transaction.changes.empty()) co_return Unit{};
        resource::add_event(ctx, state.clock, {"Key/" + prefix, "removed-below", {}, evidence(peer, {{"keys", std::move(keys)}})},
                            transaction);
        CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    }
}

Task<Unit> KeyValues::create_session(Context ctx, std::string peer, Session session) {
    auto& state = *state_;
    store::LeaseId lease = 0;
    // Consul, too, waits for twice the ttl before it gives a session up.
    if (session.ttl) {
        CO_TRY(lease, co_await state.store.grant(ctx, *session.ttl * 2));
    }
    store::Transaction transaction;
    const auto key = store_key(session_prefix, session.id);
    transaction.expect(key, 0).put(key, to_value(session), lease);
    resource::add_event(ctx, state.clock,
                        {"Session/" + session.id,
                         "created",
                         {},
                         evidence(peer, {{"name", session.name}, {"node", session.node}, {"ttl", session.ttl_text}})},
                        transaction);
    CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    co_return Unit{};
}

Task<Session> KeyValues::renew_session(Context ctx, std::string id) {
    const auto* known = session(id);
    if (known == nullptr) co_return Error{Code::not_found, fmt::format("Session id '{}' not found", id)};
    auto copy = *known;
    if (copy.lease != 0) {
        CO_TRY(std::ignore, co_await state_->store.keep_alive(ctx, copy.lease));
    }
    co_return copy;
}

Task<Unit> KeyValues::destroy_session(Context ctx, std::string peer, std::string id, std::string because) {
    auto& state = *state_;
    const auto* known = session(id);
    if (known == nullptr) co_return Unit{};
    const auto copy = *known;
    CO_TRY(std::ignore, co_await state.free_all(ctx, peer, copy, nullptr));
    store::Transaction transaction;
    transaction.remove(store_key(session_prefix, id));
    resource::add_event(ctx, state.clock, {"Session/" + id, "removed", std::move(because), evidence(peer, {})}, transaction);
    CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    // What it took meanwhile.
    co_return co_await state.free_all(ctx, peer, copy, nullptr);
}

Task<Unit> KeyValues::free_orphans(Context ctx, const store::Fence* fence) {
    auto& state = *state_;
    std::vector<Session> gone;
    for (const auto& [id, keys] : state.held) {
        if (state.sessions.contains(id)) continue;
        const auto known = state.departed.find(id);
        Session holder;
        holder.id = id;
        gone.push_back(known == state.departed.end() ? holder : known->second);
    }
    for (auto& holder : gone) {
        CO_TRY(std::ignore, co_await state.free_all(ctx, {}, std::move(holder), fence));
    }
    std::erase_if(state.departed, [&](const auto& entry) { return !state.held.contains(entry.first); });
    co_return Unit{};
}

} // namespace orrery::api::consul
