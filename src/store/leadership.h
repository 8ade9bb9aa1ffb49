#pragma once

#include "core/task.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace orrery::store {

/// Fencing token of a write: the transaction is applied only while the leader's key is the one that this term created.
class Fence {
public:
    Fence(std::string key, Revision created) : Fence(std::move(key), created, false) {}
    /// A fence on any key: the transaction is applied only while the key has this revision.
    static Fence if_unmodified(std::string key, Revision modified) { return {std::move(key), modified, true}; }
    /// Adds the compare to `transaction` and returns it.
    Transaction& guard(Transaction& transaction) const {
        return compare_modified_ ? transaction.expect(key_, revision_) : transaction.expect_created(key_, revision_);
    }

private:
    Fence(std::string key, Revision revision, bool compare_modified)
        : key_(std::move(key)), revision_(revision), compare_modified_(compare_modified) {}
    std::string key_;
    Revision revision_;
    bool compare_modified_;
};

/// Leader election for one role among the servers that share a store. The key "sys/leader/<role>" belongs to the leader's lease. On
/// SQLite there is one server, which is elected immediately. Loop thread only.
class Leadership {
public:
    struct Options {
        std::string role = "controllers";
        std::string server; ///< written into the key, for display
        Duration ttl = std::chrono::seconds(10);
        /// No other server can have this store open (SQLite): a lease that exists at start belongs to a killed process, so it is
        /// revoked instead of waited for.
        bool exclusive = false;
        Clock* clock = &real_clock();
    };
    Leadership(asio::any_io_executor executor, Store& store, Options options);
    ~Leadership();

    /// Campaigns, renews the lease, and campaigns again when it is lost. On cancellation it revokes the lease.
    asio::awaitable<void> run(Context ctx);

    /// Revokes the lease in favour of another server. From then on this server campaigns only if the role has had no leader for
    /// twice the `ttl`, so that a server whose controllers failed leads only if no other server does.
    void yield(std::string reason);

    /// The fence of the current term; nullopt while this server does not lead. A leader stops considering itself the leader before
    /// its lease can have expired.
    std::optional<Fence> fence() const;
    bool leads() const { return fence().has_value(); }
    /// The leader's name according to this server's copy of the store; empty if there is no leader.
    std::string leader() const;
    /// Waits until this server leads. Returns the fence of that term.
    Task<Fence> wait_until_elected(Context ctx);
    /// Waits until the current term of this server ends.
    Task<Unit> wait_until_deposed(Context ctx);
    /// Runs `begin` and `end` around each term of this server until it is cancelled. `begin` spawns the term's tasks into a group;
    /// when the term ends (or on cancellation) the group is stopped and joined, and then `end` runs. An exception of `begin` is
    /// rethrown after that.
    using BeginTerm = std::function<void(TaskGroup& term, Fence fence)>;
    using EndTerm = std::function<asio::awaitable<void>()>;
    asio::awaitable<void> for_each_term(Context ctx, BeginTerm begin, EndTerm end);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::store
