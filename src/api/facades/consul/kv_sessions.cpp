#include "api/facades/consul/kv_encoding.h"
#include "api/facades/consul/kv_state.h"

#include <fmt/format.h>

/// Sessions: creation, renewal, end, and the release of their locks.
namespace orrery::api::consul {

void KeyValues::State::release(store::Transaction& transaction, const Entry& entry, const Session& holder) const {
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

Task<Unit> KeyValues::State::delay_locks(Context ctx, const Session& holder, std::vector<std::string> keys) {
    if (holder.lock_delay <= Duration::zero() || keys.empty()) co_return Unit{};
    CO_TRY(const auto lease, co_await store.grant(ctx, std::max<Duration>(holder.lock_delay, std::chrono::seconds(1))));
    store::Transaction transaction;
    for (const auto& key : keys) transaction.put(store_key(delay_prefix, key), "1", lease);
    CO_TRY(std::ignore, co_await store.apply(ctx, std::move(transaction)));
    co_return Unit{};
}

Task<Unit> KeyValues::State::release_all(Context ctx, std::string peer, Session holder, const store::Fence* fence) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        const auto mine = locked_keys.find(holder.id);
        if (mine == locked_keys.end()) co_return Unit{};
        std::vector<std::string> keys;
        store::Transaction transaction;
        for (const auto& key : mine->second) {
            if (keys.size() == max_keys_per_batch) break;
            keys.push_back(key);
            release(transaction, entries.at(key), holder);
        }
        // The delay comes first, so that no client can take the lock between the two writes.
        CO_TRY(std::ignore, co_await delay_locks(ctx, holder, keys));
        if (fence != nullptr) fence->guard(transaction);
        resource::add_event(ctx, clock,
                            {"Session/" + holder.id, holder.deletes ? "keys-removed" : "keys-released", "the session ended",
                             kv_evidence(peer, {{"keys", json::array(keys.begin(), keys.end())}})},
                            transaction);
        auto done = co_await store.apply(ctx, std::move(transaction));
        if (!done.ok() && done.error().code != Code::conflict) co_return std::move(done).error();
    }
    co_return Error{Code::conflict, "the keys of this session change too often"};
}

Task<Unit> KeyValues::create_session(Context ctx, std::string peer, Session session) {
    auto& state = *state_;
    store::LeaseId lease = 0;
    // As in Consul, a session expires after twice its TTL.
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
                         kv_evidence(peer, {{"name", session.name}, {"node", session.node}, {"ttl", session.ttl_text}})},
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

Task<Unit> KeyValues::destroy_session(Context ctx, std::string peer, std::string id, std::string reason) {
    auto& state = *state_;
    const auto* known = session(id);
    if (known == nullptr) co_return Unit{};
    const auto copy = *known;
    CO_TRY(std::ignore, co_await state.release_all(ctx, peer, copy, nullptr));
    store::Transaction transaction;
    transaction.remove(store_key(session_prefix, id));
    resource::add_event(ctx, state.clock, {"Session/" + id, "removed", std::move(reason), kv_evidence(peer, {})}, transaction);
    CO_TRY(std::ignore, co_await state.store.apply(ctx, std::move(transaction)));
    // Keys that the session locked meanwhile.
    co_return co_await state.release_all(ctx, peer, copy, nullptr);
}

Task<Unit> KeyValues::free_orphans(Context ctx, const store::Fence* fence) {
    auto& state = *state_;
    std::vector<Session> ended;
    for (const auto& [id, keys] : state.locked_keys) {
        if (state.sessions.contains(id)) continue;
        const auto known = state.ended_sessions.find(id);
        Session holder;
        holder.id = id;
        ended.push_back(known == state.ended_sessions.end() ? holder : known->second);
    }
    for (auto& holder : ended) {
        CO_TRY(std::ignore, co_await state.release_all(ctx, {}, std::move(holder), fence));
    }
    std::erase_if(state.ended_sessions, [&](const auto& entry) { return !state.locked_keys.contains(entry.first); });
    co_return Unit{};
}

} // namespace orrery::api::consul
