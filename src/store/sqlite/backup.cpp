#include "store/sqlite/backup.h"

#include "core/ids.h"
#include "store/sqlite/file_contents.h"
#include "store/sqlite/file_lock.h"
#include "store/sqlite/sqlite_engine.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <fcntl.h>
#include <unistd.h>
#include <unordered_set>

namespace orrery::store {

namespace {

constexpr int pages_per_step = 1024;
constexpr const char* restoring_suffix = ".restoring"; ///< the copy of the backup, until it becomes the store
constexpr const char* replaced_suffix = ".replaced";   ///< the previous store, until the copy has replaced it

void remove_database(const std::string& path) {
    for (const auto* suffix : {"", "-journal", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
}

/// Copies a whole database from one read snapshot, independent of concurrent writes.
Result<Unit> copy_database(Context ctx, const std::string& from, const std::string& to) {
    TRY(auto source, Database::open(from, Database::Mode::read_only));
    // The transaction holds the snapshot. Without it, each concurrent write would restart the copy.
    TRY(std::ignore, source.run("BEGIN"));
    TRY(std::ignore, source.number("SELECT count(*) FROM meta"));
    remove_database(to);
    ::close(::open(to.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    TRY(auto target, Database::open(to, Database::Mode::create));
    // Synced once, at the end.
    TRY(std::ignore, target.run("PRAGMA synchronous=OFF"));
    auto* copy = sqlite3_backup_init(target.handle(), "main", source.handle(), "main");
    if (!copy) return target.last_error("cannot begin the copy");
    int stepped = SQLITE_OK;
    bool late = false;
    while (stepped == SQLITE_OK && !late) {
        stepped = sqlite3_backup_step(copy, pages_per_step);
        late = ctx.deadline() && *ctx.deadline() < std::chrono::steady_clock::now();
    }
    if (sqlite3_backup_finish(copy) != SQLITE_OK) return target.last_error(fmt::format("cannot copy to {}", to));
    if (late && stepped != SQLITE_DONE) return Error{Code::timeout, "the deadline passed before the copy was finished"};
    // One file, without a write-ahead log.
    return target.run("PRAGMA journal_mode=DELETE");
}

Result<Revision> last_revision(Database& database) {
    TRY(const auto meta, read_metadata(database));
    TRY(const auto seq, database.number("SELECT ifnull(max(seq), 0) FROM log"));
    return std::max(meta.compacted, revision_of(seq));
}

Result<Revision> make_backup(Context ctx, const std::string& from, const std::string& to) {
    const auto unfinished = to + ".partial";
    auto copied = copy_database(ctx, from, unfinished);
    if (!copied.ok()) {
        remove_database(unfinished);
        return std::move(copied).error().within("the backup failed");
    }
    Revision revision = 0;
    {
        TRY(auto database, Database::open(unfinished, Database::Mode::read_only));
        TRY(revision, last_revision(database));
    }
    TRY(std::ignore, rename_durably(unfinished, to));
    return revision;
}

StoreFileSummary summarize(const FileContents& contents) {
    StoreFileSummary verified{contents.meta.identity, contents.revision,        contents.meta.compacted, 0,
                              contents.leases.size(), contents.meta.migrated_to};
    std::unordered_set<std::string_view> keys;
    for (const auto& record : contents.records) keys.insert(record->key);
    for (const auto& event : contents.changes) {
        if (event.record)
            keys.insert(event.key);
        else
            keys.erase(event.key);
    }
    verified.keys = keys.size();
    return verified;
}

/// Gives a copy a new identity, so that its revisions are not confused with those of the original store.
Result<Unit> rename_store(const std::string& path, const std::string& identity) {
    TRY(auto database, Database::open(path, Database::Mode::read_write));
    TRY(std::ignore, database.run("PRAGMA synchronous=FULL"));
    return database.run(
        fmt::format("BEGIN; UPDATE meta SET value='{}' WHERE name='identity'; DELETE FROM meta WHERE name='moved_to'; COMMIT",
                    identity)
            .c_str());
}

/// Renames the existing store. It is deleted when the new one is in place.
Result<Unit> rename_existing(const std::string& path, const std::string& replaced) {
    // If only the log exists, an interrupted restore has already renamed the store.
    if (std::filesystem::exists(path)) remove_database(replaced);
    for (const auto* suffix : {"", "-wal"})
        if (std::filesystem::exists(path + suffix)) {
            TRY(std::ignore, rename_durably(path + suffix, replaced + suffix));
        }
    ::unlink((path + "-shm").c_str());
    return Unit{};
}

} // namespace

Task<Revision> backup_to(Context ctx, Store& store, std::filesystem::path to) {
    const auto* engine = dynamic_cast<const SqliteEngine*>(&store);
    if (!engine) co_return Error{Code::invalid, "orrery backs up only SQLite stores", "use etcdctl snapshot for etcd"};
    const auto from = engine->path().string();
    std::error_code ignored;
    if (std::filesystem::equivalent(from, to, ignored)) co_return Error{Code::invalid, "a store cannot be backed up onto itself"};
    Pool pool(1);
    auto work = [ctx, from, target = to.string()] { return make_backup(ctx, from, target); };
    co_return co_await blocking(pool, std::move(work));
}

Result<StoreFileSummary> verify_sqlite(const std::filesystem::path& path) {
    const auto name = path.string();
    TRY(const auto state, inspect_file(name));
    if (state == FileState::absent) return Error{Code::not_found, fmt::format("there is no store at {}", name)};
    // In a store that no server uses, remove the side files of this read. A backup has no lock file and needs none.
    std::optional<FileLock> lock;
    if (std::filesystem::exists(name + ".lock"))
        if (auto taken = FileLock::acquire(name); taken.ok()) lock = std::move(*taken);
    const auto side_files = lock ? SideFiles::remove : SideFiles::keep;
    TRY(const auto contents, read_contents(name, side_files));
    return summarize(contents);
}

Result<Unit> check_no_interrupted_restore(const std::filesystem::path& path) {
    const auto name = path.string(), restoring = name + restoring_suffix, replaced = name + replaced_suffix;
    const bool has_copy = std::filesystem::exists(restoring), has_store = std::filesystem::exists(path),
               has_previous = std::filesystem::exists(replaced);
    if (!has_copy && (has_store || !has_previous)) return Unit{};
    const auto alternative =
        has_store      ? fmt::format("to keep the store from before the restore, remove {}", restoring)
        : has_previous ? fmt::format("to keep the store from before the restore, rename {0} to {1} (and {0}-wal to {1}-wal if it "
                                     "exists) and remove {2}",
                                     replaced, name, restoring)
                       : fmt::format("to start with an empty store, remove {}", restoring);
    return Error{Code::conflict, fmt::format("a restore of the store {} was interrupted", name),
                 fmt::format("run \"orrery store restore BACKUP --force\" again; {}", alternative)};
}

Result<StoreFileSummary> restore_sqlite(const std::filesystem::path& backup, const std::filesystem::path& path, Overwrite overwrite,
                                        const RestoreHook& hook) {
    const auto name = path.string(), restoring = name + restoring_suffix, replaced = name + replaced_suffix;
    TRY(const auto lock, FileLock::acquire(name));
    const bool exists = std::filesystem::exists(path) || std::filesystem::exists(name + "-wal");
    if (exists && overwrite == Overwrite::no)
        return Error{Code::conflict, fmt::format("a store already exists at {}", name),
                     "restore to another path, or overwrite the store with --force"};
    TRY(auto verified, verify_sqlite(backup));
    auto prepare = [&]() -> Result<Unit> {
        TRY(std::ignore, copy_database(Context::background(), backup.string(), restoring));
        TRY(std::ignore, rename_store(restoring, verified.identity));
        if (!hook) return Unit{};
        const auto changed = hook(restoring);
        ::unlink((restoring + ".lock").c_str());
        TRY(std::ignore, changed);
        // One file, without a write-ahead log.
        {
            TRY(auto database, Database::open(restoring, Database::Mode::read_write));
            TRY(std::ignore, database.run("PRAGMA journal_mode=DELETE"));
        }
        TRY(verified, verify_sqlite(restoring));
        return Unit{};
    };
    verified.identity = random_id();
    verified.migrated_to.reset();
    auto prepared = prepare();
    if (!prepared.ok()) {
        remove_database(restoring);
        return std::move(prepared).error().within("cannot restore the backup");
    }
    if (exists) {
        TRY(std::ignore, rename_existing(name, replaced));
    }
    TRY(std::ignore, rename_durably(restoring, name));
    remove_database(replaced);
    return verified;
}

} // namespace orrery::store
