// The migration marker: the metadata row "moved_to" of a store that was migrated to another engine.

#include "store/sqlite/file_format.h"
#include "store/sqlite/file_lock.h"
#include "store/sqlite/sqlite_store.h"

#include <fmt/format.h>

namespace orrery::store {

Result<std::optional<std::string>> sqlite_migration_target(const std::filesystem::path& path) {
    TRY(const auto state, inspect_file(path.string()));
    if (state == FileState::absent) return std::optional<std::string>();
    TRY(auto database, Database::open(path.string(), Database::Mode::read_only));
    auto meta = read_metadata(database);
    if (meta.ok()) return std::move(meta->migrated_to);
    if (meta.error().code == Code::internal) return damaged_file(path.string(), meta.error().message);
    return std::move(meta).error();
}

Result<Unit> mark_migrated(const std::filesystem::path& path, std::string_view where) {
    TRY(const auto lock, FileLock::acquire(path.string()));
    TRY(const auto state, inspect_file(path.string()));
    if (state == FileState::absent) return Error{Code::not_found, fmt::format("there is no store at {}", path.string())};
    TRY(auto database, Database::open(path.string(), Database::Mode::read_write));
    TRY(std::ignore, database.run("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"));
    TRY(auto insert, database.prepare("INSERT OR REPLACE INTO meta(name, value) VALUES ('moved_to', ?)"));
    insert.bind_text(1, where);
    TRY(std::ignore, insert.step());
    return Unit{};
}

} // namespace orrery::store
