#pragma once

#include "store/gate.h"
#include "store/store.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace orrery::store {

/// Stands in a target while a migration writes to it. A store that has it is no store yet: whoever opens it refuses.
constexpr std::string_view migration_key = "sys/migration";
Error incomplete_migration_error(std::string_view what, std::string_view how_to_clear);

struct MigrationReport {
    std::size_t keys = 0;
    std::size_t bytes = 0;
    std::size_t left_out = 0; ///< keys that hang on a lease: they are some server's, and are made again where it runs
    std::string digest;       ///< SHA-256 over all keys and values in order, in hexadecimal; the same in both stores
    Revision revision = 0;    ///< of the source, which the copy is of
};

/// Copies everything from one store to another that is empty, and proves it: nothing is reported as done before all keys and values
/// were read back from the target and found the same. Writes to `from` are refused meanwhile (`unavailable`, "the store is being
/// moved").
///
/// On success `from` stays frozen, so that nothing is written to it any more; the caller makes the new store the one in force
/// (seal_moved on SQLite) or thaws it. On failure what was written to the target is removed again and `from` is thawed. Killed at
/// any instant, the old store is in force, and the target either has `migration_key` and is refused, or is a whole copy nobody
/// uses.
///
/// Values, not history: revisions begin anew in the target, whose identity tells readers so. `conflict`: the target is not empty,
/// or somebody wrote to the source by another way. No other server may use `from`.
Task<MigrationReport> migrate(Context ctx, Gate& from, Store& to,
                              std::function<void(std::int64_t done, std::int64_t total)> progress = {});

/// Empties what an interrupted migration left (opened with `allow_incomplete`). `conflict` where there is no sign of one.
Task<Unit> clear_incomplete(Context ctx, Store& target);

} // namespace orrery::store
