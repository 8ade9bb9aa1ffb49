#pragma once

#include "store/store.h"

#include <filesystem>
#include <optional>
#include <string>

/// Copies of a store in one file, which is itself a store: to look into, to keep, to put back.
namespace orrery::store {

/// Writes a backup of a running store to `to`, and returns the revision it holds: everything up to it and nothing after. Writes go
/// on meanwhile. The file appears under its name when it is finished and on the disk; what stood there before is replaced.
/// `invalid` for a store that is not in SQLite, `no_space` where it does not fit.
Task<Revision> backup_to(Context ctx, Store& store, std::filesystem::path to);

enum class Overwrite { no, yes };

/// What was found in a store's file or a backup.
struct Verified {
    std::string identity;
    Revision revision = 0;
    Revision compacted = 0;
    std::size_t keys = 0;
    std::size_t leases = 0;
    std::optional<std::string> moved_to;
};

/// Puts a backup in place of the store at `path`, which no server may be running on (`conflict`). What is there already is kept
/// unless it may be overwritten. The backup is verified first, and the file is exchanged in one step. The restored store has a new
/// identity: revisions that clients remember from before may have been taken by other changes. Blocks: for a pool, or the command
/// line.
Result<Verified> restore_sqlite(const std::filesystem::path& backup, const std::filesystem::path& path, Overwrite overwrite);

/// Reads everything and checks it: SQLite's own structure, each row's sum, that no revision is missing. Changes nothing; a server
/// may be running on it. Blocks. `not_found` where there is no file.
Result<Verified> verify_sqlite(const std::filesystem::path& path);

} // namespace orrery::store
