#pragma once

#include "core/clock.h"
#include "store/mirror.h"
#include "store/store.h"

#include <boost/asio/any_io_executor.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace orrery::store {

struct SqliteOptions {
    std::filesystem::path path;
    Clock* clock = &real_clock(); ///< for leases
    Mirror::Options mirror;
    std::size_t queue_transactions = 50'000; ///< more than this waiting: `throttled`
    std::size_t queue_bytes = 64u << 20;
    std::size_t batch_transactions = 4'096; ///< at most this many share one commit
    std::size_t batch_bytes = 8u << 20;
    std::size_t min_garbage = 10'000;   ///< superseded rows are deleted when there are more than this,
    double garbage_share = 2;           ///< and more than this times the live ones
    std::size_t garbage_chunk = 2'000;  ///< so many in one commit
    std::size_t log_pages = 2'048;      ///< the write-ahead log is folded into the file beyond this (8 KiB each)
    std::chrono::microseconds spin{20}; ///< how long the writer looks for more before it sleeps
};

/// The engine for one machine: one file, every write on the disk before it is acknowledged.
///
/// Transactions queue on the loop; whenever the writer's thread is idle all that wait are evaluated (a stale one fails alone) and
/// go to it as one commit, so that one sync of the disk carries as many as there are. The file is a log without an index on keys,
/// and reads come from the mirror: a write costs the same with a thousand keys and with a million. Superseded rows are deleted
/// later, many at a time.
///
/// Makes the file if there is none. Refuses, and leaves as it is, one that is damaged (`internal`), of a newer format or not ours
/// (`unsupported`), in use by another server (`conflict`), or moved to another store (`unsupported`).
Task<std::unique_ptr<Store>> open_sqlite(Context ctx, asio::any_io_executor executor, SqliteOptions options);

/// Where the store in this file was moved to; nothing if it was not. Does not open it for use: may be asked while a server runs.
Result<std::optional<std::string>> sqlite_moved_to(const std::filesystem::path& path);
/// Notes in a file that nobody uses that it has moved: it will not be opened for use again.
Result<Unit> mark_moved(const std::filesystem::path& path, std::string_view where);
/// The same for a store that runs, in turn with its writes: everything acknowledged before is at or before the revision returned,
/// and every write after it is refused with a sentence that says where to go. `invalid` for a store that is not in SQLite.
Task<Revision> seal_moved(Context ctx, Store& store, std::string where);

} // namespace orrery::store
