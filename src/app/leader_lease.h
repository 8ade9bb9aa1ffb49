#pragma once

#include "core/task.h"
#include "store/leadership.h"
#include "store/store.h"

#include <filesystem>

namespace orrery::app {

/// Lets a leader that was killed lead again right after its restart, without waiting for its old lease to expire. The id of the
/// lease is in a file of the data folder, which the process keeps locked. A process that gets the lock knows that the previous
/// owner of the lease is dead, and may revoke the lease.
class LeaderLease {
public:
    explicit LeaderLease(std::filesystem::path folder);
    ~LeaderLease();
    LeaderLease(const LeaderLease&) = delete;
    LeaderLease& operator=(const LeaderLease&) = delete;

    /// Revokes the lease of the previous process if it still holds the key of the leader. Call it before the campaign of this
    /// server.
    Task<Unit> release_previous(Context ctx, store::Store& store);
    /// Stores the id of each lease with which this server leads. Runs until cancelled. All must outlive it.
    asio::awaitable<void> run(Context ctx, store::Store& store, store::Leadership& leadership, Pool& pool);

private:
    int file_ = -1; ///< open and locked; -1: another process has the lock, or the folder is not writable
};

} // namespace orrery::app
