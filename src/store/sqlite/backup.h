#pragma once

#include "store/store.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

/// Backup, verification and restore of SQLite stores. A backup is one file, which is itself a store.
namespace orrery::store {

/// Writes a backup of a running store to `to` and returns its revision: the backup has every change up to it and none after. Writes
/// continue in the meantime. The file appears under its name when it is complete and on disk, and replaces an existing file.
/// `invalid`: the store is not on SQLite. `no_space`: the disk is full.
Task<Revision> backup_to(Context ctx, Store& store, std::filesystem::path to);

enum class Overwrite { no, yes };

/// `conflict` with a remedy if a restore to `path` was interrupted: then it is unclear which store is wanted, the old one or the
/// backup. `open_sqlite` calls it first.
Result<Unit> check_no_interrupted_restore(const std::filesystem::path& path);

/// A summary of a verified store file or backup.
struct StoreFileSummary {
    std::string identity;
    Revision revision = 0;
    Revision compacted = 0;
    std::size_t keys = 0;
    std::size_t leases = 0;
    std::optional<std::string> migrated_to;
};

/// Changes the copy of a backup before it becomes the store. The copy is a store that no other process has open.
using RestoreHook = std::function<Result<Unit>(const std::filesystem::path& copy)>;

/// Restores a backup as the store at `path`, which no server may use (`conflict`). An existing store is replaced only with
/// Overwrite::yes. The backup is verified first, then `hook` (optional) changes its copy, and then the file is replaced atomically.
/// The restored store has a new identity, because clients may remember revisions of the old store. Blocks: call it on a pool thread
/// or from the command line.
Result<StoreFileSummary> restore_sqlite(const std::filesystem::path& backup, const std::filesystem::path& path, Overwrite overwrite,
                                        const RestoreHook& hook = {});

/// Reads and verifies a whole file: SQLite's structure, the checksum of each row, and the sequence of revisions. Changes nothing; a
/// server may be using the file. Blocks. `not_found`: there is no file.
Result<StoreFileSummary> verify_sqlite(const std::filesystem::path& path);

} // namespace orrery::store
