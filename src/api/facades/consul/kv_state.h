#pragma once

#include "api/facades/consul/kv.h"
#include "resource/events.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// Private to KeyValues: its index in memory, shared by kv.cpp, kv_transaction.cpp and kv_sessions.cpp.
namespace orrery::api::consul {

/// Maximum number of keys that one transaction of remove_tree and of release_all changes.
constexpr std::size_t max_keys_per_batch = 100;

/// The evidence of an event, with the address of the client if there is one.
json::object kv_evidence(const std::string& peer, json::object fields);

/// The effect of operations on the keys as they are now. Computed without suspension, then written; computed again after a
/// conflict.
struct KeyValues::Plan {
    Done done;
    store::Transaction transaction;           ///< without changes: nothing to write
    std::vector<std::size_t> written_results; ///< results that get the revision of the transaction
    resource::EventDraft event;
};

struct KeyValues::State {
    State(asio::any_io_executor executor, store::Store& store, const Clock& clock);

    void key_changed(const store::Event& event);
    void session_changed(const store::Event& event);
    void remove_holder(const std::string& key);

    Result<Plan> plan(const Context& ctx, const std::string& peer, const std::vector<Operation>& operations) const;

    /// Releases or removes a key whose session ends, as the session's behavior demands.
    void release(store::Transaction& transaction, const Entry& entry, const Session& holder) const;
    /// Writes the lock-delay keys, which refuse new locks until their lease expires.
    Task<Unit> delay_locks(Context ctx, const Session& holder, std::vector<std::string> keys);
    /// Releases all keys of a session, in batches.
    Task<Unit> release_all(Context ctx, std::string peer, Session holder, const store::Fence* fence);

    store::Store& store;
    const Clock& clock;
    Notifier changed;
    bool loading = false;
    std::map<std::string, Entry, std::less<>> entries;
    std::map<std::string, std::string> by_store_key;
    std::map<std::string, Revision, std::less<>> tombstones;
    std::map<std::string, std::set<std::string>> locked_keys; ///< by session
    std::map<std::string, Session, std::less<>> sessions;
    std::map<std::string, Session> ended_sessions;               ///< sessions whose keys may still have to be released
    std::map<std::string, Revision, std::less<>> tree_revisions; ///< cache for blocking queries, cleared by each change
    /// Removals up to `floor` are unknown: they are from before the start, or there were too many. Any key may have changed then.
    Revision revision = 1, sessions_revision = 1, floor = 1;
    std::vector<std::shared_ptr<void>> observers;
};

} // namespace orrery::api::consul
