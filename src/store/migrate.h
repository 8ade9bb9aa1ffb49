#pragma once

#include "store/freezable_store.h"
#include "store/store.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace orrery::store {

/// Exists in the target while a migration writes to it. A store with this key is incomplete and cannot be opened.
constexpr std::string_view migration_key = "sys/migration";
Error incomplete_migration_error(std::string_view store_name, std::string_view clear_command);

struct MigrationReport {
    std::size_t keys = 0;
    std::size_t bytes = 0;
    std::size_t skipped = 0; ///< keys with a lease: their server creates them again
    std::string digest;      ///< SHA-256 over all keys and values in order, in hexadecimal; equal in both stores
    Revision revision = 0;   ///< revision of the source that was copied
};

/// Copies all keys from one store to an empty one, and verifies the copy: it reads all keys and values back from the target and
/// compares their digests. Writes to `from` are refused in the meantime (`unavailable`, "the store is being migrated").
///
/// On success `from` stays frozen; the caller switches to the new store (seal_migrated on SQLite) or thaws the old one. On failure
/// the target is emptied and `from` is thawed. If the process is killed at any time, the old store stays in use, and the target
/// either has `migration_key` and cannot be opened, or is a complete unused copy.
///
/// The history is not copied: revisions start again in the target, which has another identity. `conflict`: the target is not empty,
/// or another process wrote to the source. No other server may use `from`.
Task<MigrationReport> migrate(Context ctx, FreezableStore& from, Store& to,
                              std::function<void(std::int64_t done, std::int64_t total)> progress = {});

/// Empties the target of an interrupted migration (opened with `allow_incomplete`). `conflict` if the store has no `migration_key`.
Task<Unit> clear_incomplete_migration(Context ctx, Store& target);

} // namespace orrery::store
