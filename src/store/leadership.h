#pragma once

#include "core/task.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace orrery::store {

/// Proof of leadership that a write carries: the transaction holds only while the leader's key is the one that was won.
class Fence {
public:
    Fence(std::string key, Revision created) : Fence(std::move(key), created, false) {}
    /// Another proof: only while nobody has written that key since.
    static Fence unwritten(std::string key, Revision modified) { return {std::move(key), modified, true}; }
    /// Adds the compare to `transaction` and returns it.
    Transaction& guard(Transaction& transaction) const {
        return modified_ ? transaction.expect(key_, revision_) : transaction.expect_created(key_, revision_);
    }

private:
    Fence(std::string key, Revision revision, bool modified) : key_(std::move(key)), revision_(revision), modified_(modified) {}
    std::string key_;
    Revision revision_;
    bool modified_;
};

/// One leader a role among the servers that share a store ("sys/leader/<role>", held by a lease). On SQLite there is one server,
/// and it is elected at once. Loop thread only.
class Leadership {
public:
    struct Options {
        std::string role = "controllers";
        std::string server; ///< the name written into the key, for people
        Duration ttl = std::chrono::seconds(10);
        /// Nobody else can have this store open (SQLite): a lease found at the start is that of a server that was killed, and is
        /// not waited for.
        bool alone = false;
        Clock* clock = &real_clock();
    };
    Leadership(asio::any_io_executor executor, Store& store, Options options);
    ~Leadership();

    /// Campaigns, renews, and campaigns again when the lease is lost, until it is cancelled; then gives the lease back.
    asio::awaitable<void> run(Context ctx);

    /// The fence of the present term; nothing while another leads. A holder stops seeing itself as leader before its lease can have
    /// expired.
    std::optional<Fence> fence() const;
    bool leads() const { return fence().has_value(); }
    /// Who leads, as far as this server's copy of the store shows; empty if nobody.
    std::string leader() const;
    /// Waits until this server leads; the fence of that term.
    Task<Fence> elected(Context ctx);
    /// Waits until the term that began with `elected` is over.
    Task<Unit> deposed(Context ctx);
    /// For each term of this server: `begin` spawns the term's work into a group of its own; when the term is over the group is
    /// stopped and waited for, and then `end`. Until it is cancelled, which ends a term in the same way.
    using BeginTerm = std::function<void(TaskGroup& term, Fence fence)>;
    using EndTerm = std::function<asio::awaitable<void>()>;
    asio::awaitable<void> each_term(Context ctx, BeginTerm begin, EndTerm end);

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::store
