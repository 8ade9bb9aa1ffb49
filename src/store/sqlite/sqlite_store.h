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
    std::size_t max_queued_transactions = 50'000; ///< more waiting writes are refused: `throttled`
    std::size_t max_queued_bytes = 64u << 20;
    std::size_t max_batch_transactions = 4'096; ///< at most this many share one group commit
    std::size_t max_batch_bytes = 8u << 20;
    std::size_t min_superseded_rows = 10'000;     ///< superseded rows are deleted when there are more than this
    double superseded_ratio = 2;                  ///< and more than this many per live row
    std::size_t max_deletions_per_commit = 2'000; ///< upper limit of deleted rows per commit
    std::size_t wal_pages = 2'048;                ///< the write-ahead log is checkpointed beyond this size (8 KiB pages)
    std::chrono::microseconds spin{20};           ///< how long the writer thread polls for the next batch before it sleeps
};

/// Opens the engine for a single server: one file, and every write is on disk before it is acknowledged.
///
/// Writes share commits (group_commit.h). The file is a log without an index on keys, and the mirror answers reads, so a write
/// costs the same with a thousand keys and with a million. Superseded rows are deleted later, many per commit.
///
/// Creates the file if it does not exist. Refuses, and does not change, a file that is damaged (`internal`), has a newer format or
/// is not an orrery store (`unsupported`), is in use by another server (`conflict`), or was migrated (`unsupported`).
Task<std::unique_ptr<Store>> open_sqlite(Context ctx, asio::any_io_executor executor, SqliteOptions options);

/// The URL of the store that this file was migrated to; nullopt if it was not migrated. Only reads: a server may be using the file.
Result<std::optional<std::string>> sqlite_migration_target(const std::filesystem::path& path);
/// Writes the migration marker into a file that no server uses. The file cannot be opened for use afterwards.
Result<Unit> mark_migrated(const std::filesystem::path& path, std::string_view where);
/// Writes the migration marker into a running store, in order with its writes: every acknowledged write is at or before the
/// returned revision, and every later write is refused with an error that names the target. `invalid` if the store is not on
/// SQLite.
Task<Revision> seal_migrated(Context ctx, Store& store, std::string where);

} // namespace orrery::store
