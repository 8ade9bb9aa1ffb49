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
    std::string session; ///< the session that holds the lock, or ""
    Revision created = 0, modified = 0;
    json::object to_json() const;
};

/// A session of Consul: the holder of locks, with a lifetime.
struct Session {
    std::string id, name, node;
    Duration lock_delay = std::chrono::seconds(15);
    bool deletes = false; ///< its end removes the keys that it locks; otherwise it releases them
    std::optional<Duration> ttl;
    std::string ttl_text;
    std::vector<std::string> node_checks;
    std::vector<std::pair<std::string, std::string>> service_checks; ///< id and namespace
    bool has_service_checks = false;
    store::LeaseId lease = 0;
    Revision created = 0, modified = 0;
    json::object to_json() const;
};

/// One operation on keys, alone or as part of an atomic transaction.
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

/// Keys and sessions of Consul over the store: an index in memory that follows the store, and writes as transactions. Each
/// transaction with a change also writes an audit event: actor, client address, keys and actions, never values. Loop thread only.
class KeyValues {
public:
    KeyValues(asio::any_io_executor executor, store::Store& store, const Clock& clock);
    ~KeyValues();

    const Entry* find(std::string_view key) const;
    /// In lexical order.
    std::vector<const Entry*> tree(std::string_view prefix) const;
    const Session* session(std::string_view id) const;
    std::vector<const Session*> sessions() const;

    /// The revision of the last change below the prefix, including removals; the revision of all keys if that is unknown.
    Revision tree_revision(std::string_view prefix) const;
    Revision key_revision(std::string_view key) const;
    Revision revision() const;          ///< of all keys
    Revision sessions_revision() const; ///< of all sessions

    struct Failure {
        std::size_t operation;
        std::string message;
    };
    struct Done {
        std::vector<Entry> results; ///< of the operations that have a result, in order
        std::vector<Failure> failures;
        Revision revision = 0;
    };
    /// Atomic: with failures, nothing is written. `invalid`: a session that does not exist. `too_large`: too many keys. `peer` is
    /// the address of the client, here and below.
    Task<Done> apply(Context ctx, std::string peer, std::vector<Operation> operations);
    /// Removes all keys below the prefix, in several transactions if there are many.
    Task<Unit> remove_tree(Context ctx, std::string peer, std::string prefix);

    Task<Unit> create_session(Context ctx, std::string peer, Session session);
    /// `not_found`: the session has ended.
    Task<Session> renew_session(Context ctx, std::string id);
    /// Releases or removes the keys of the session, then ends it. An ended session is no error.
    Task<Unit> destroy_session(Context ctx, std::string peer, std::string id, std::string reason = {});
    /// Releases the locks of ended sessions. The leader calls it after each change of sessions.
    Task<Unit> free_orphans(Context ctx, const store::Fence* fence);

    /// Notified after every change of keys, sessions or the catalog.
    Notifier& changed();

private:
    struct State;
    struct Plan;
    std::unique_ptr<State> state_;
};

} // namespace orrery::api::consul
