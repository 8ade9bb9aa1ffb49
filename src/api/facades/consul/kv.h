#pragma once

#include "core/task.h"
#include "resource/resources.h"
#include "store/leadership.h"
#include "store/store.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::api::consul {

namespace json = boost::json;
using store::Revision;

/// A key of Consul's key-value store.
struct Entry {
    std::string key, value;
    std::uint64_t flags = 0, lock_index = 0;
    std::string session; ///< that holds the lock, or ""
    Revision created = 0, modified = 0;
    json::object to_json() const;
};

/// Keeps locks from being taken for ever: who it is, and until when.
struct Session {
    std::string id, name, node;
    Duration lock_delay = std::chrono::seconds(15);
    bool deletes = false; ///< keys it holds go with it; else they are only freed
    std::optional<Duration> ttl;
    std::string ttl_text;
    std::vector<std::string> node_checks;
    std::vector<std::pair<std::string, std::string>> service_checks; ///< id and namespace
    bool has_service_checks = false;
    store::LeaseId lease = 0;
    Revision created = 0, modified = 0;
    json::object to_json() const;
};

/// One operation on keys, alone or among others that all happen or none.
struct Operation {
    enum class Verb {
        set,
        cas,
        lock,
        unlock,
        get,
        get_or_empty,
        get_tree,
        check_index,
        check_session,
        check_not_exists,
        remove,
        remove_tree,
        remove_cas
    };
    Verb verb = Verb::get;
    std::string key, value, session;
    std::uint64_t flags = 0, index = 0;
};

/// Keys and sessions over the store: an index in memory, fed by the store; writes are transactions on it. Each that changes
/// something leaves an event in the same transaction: who, from where, which keys, how; never a value. Loop thread only.
class KeyValues {
public:
    KeyValues(asio::any_io_executor executor, store::Store& store, const Clock& clock);
    ~KeyValues();

    const Entry* find(std::string_view key) const;
    /// In order.
    std::vector<const Entry*> tree(std::string_view prefix) const;
    const Session* session(std::string_view id) const;
    std::vector<const Session*> sessions() const;

    /// When something below the prefix last changed, removals included; that of all where nothing is known of it.
    Revision tree_revision(std::string_view prefix) const;
    Revision key_revision(std::string_view key) const;
    Revision revision() const;          ///< of all keys
    Revision sessions_revision() const; ///< of all sessions

    struct Failure {
        std::size_t operation;
        std::string what;
    };
    struct Done {
        std::vector<Entry> results; ///< what each that has a result gave, in order
        std::vector<Failure> failures;
        Revision revision = 0;
    };
    /// All or nothing: with failures nothing was done. `invalid`: a session that is not there;
    /// `too_large`: too many keys. `peer` is the address of whoever asks, here and below.
    Task<Done> apply(Context ctx, std::string peer, std::vector<Operation> operations);
    /// In as many steps as it takes.
    Task<Unit> remove_tree(Context ctx, std::string peer, std::string prefix);

    Task<Unit> create_session(Context ctx, std::string peer, Session session);
    /// `not_found` when it is gone.
    Task<Session> renew_session(Context ctx, std::string id);
    /// Frees or removes what it holds, then it. Nothing is wrong with one that is gone.
    Task<Unit> destroy_session(Context ctx, std::string peer, std::string id, std::string because = {});
    /// Frees what is held by sessions that are gone: the leader's work, after each change of sessions.
    Task<Unit> free_orphans(Context ctx, const store::Fence* fence);

    /// Woken after every change.
    Notifier& changed();

private:
    struct State;
    struct Plan;
    std::unique_ptr<State> state_;
};

} // namespace orrery::api::consul
