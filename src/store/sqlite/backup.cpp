#include "store/sqlite/backup.h"

#include "core/ids.h"
#include "store/sqlite/engine.h"
#include "store/sqlite/format.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <fcntl.h>
#include <unistd.h>
#include <unordered_set>

namespace orrery::store {

namespace {

constexpr int pages_at_a_time = 1024;

void remove_database(const std::string& path) {
    for (const auto* suffix : {"", "-journal", "-wal", "-shm"}) ::unlink((path + suffix).c_str());
}

/// Copies a whole database as one reader sees it, however long that takes and whatever others write.
Result<Unit> copy_database(Context ctx, const std::string& from, const std::string& to) {
    TRY(auto source, Database::open(from, Database::Mode::read_only));
    // The transaction holds the snapshot; without it the copy would begin anew whenever somebody writes.
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
        stepped = sqlite3_backup_step(copy, pages_at_a_time);
        late = ctx.deadline() && *ctx.deadline() < std::chrono::steady_clock::now();
    }
    if (sqlite3_backup_finish(copy) != SQLITE_OK) return target.last_error(fmt::format("cannot copy to {}", to));
    if (late && stepped != SQLITE_DONE) return Error{Code::timeout, "the deadline passed before the copy was finished"};
    // One file, without a log beside it.
    return target.run("PRAGMA journal_mode=DELETE");
}

Result<Revision> last_revision(Database& database) {
    TRY(const auto meta, read_meta(database));
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

Verified verified_of(const FileContents& contents) {
    Verified verified{contents.meta.identity, contents.revision,     contents.meta.compacted, 0,
                      contents.leases.size(), contents.meta.moved_to};
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

/// Gives a copy a name of its own, so that nobody takes its revisions for those of the store it was copied from.
Result<Unit> rename_store(const std::string& path, const std::string& identity) {
    TRY(auto database, Database::open(path, Database::Mode::read_write));
    TRY(std::ignore, database.run("PRAGMA synchronous=FULL"));
    return database.run(
        fmt::format("BEGIN; UPDATE meta SET value='{}' WHERE name='identity'; DELETE FROM meta WHERE name='moved_to'; COMMIT",
                    identity)
            .c_str());
}

/// Out of the way, but there until the new one stands.
Result<Unit> set_aside(const std::string& path, const std::string& aside) {
    remove_database(aside);
    for (const auto* suffix : {"", "-wal"})
        if (std::filesystem::exists(path + suffix)) {
            TRY(std::ignore, rename_durably(path + suffix, aside + suffix));
        }
    ::unlink((path + "-shm").c_str());
    return Unit{};
}

} // namespace

Task<Revision> backup_to(Context ctx, Store& store, std::filesystem::path to) {
    const auto* engine = dynamic_cast<const SqliteEngine*>(&store);
    if (!engine)
        co_return Error{Code::invalid, "only a store in SQLite is backed up by its server", "use etcdctl snapshot for etcd"};
    const auto from = engine->path().string();
    std::error_code ignored;
    if (std::filesystem::equivalent(from, to, ignored)) co_return Error{Code::invalid, "a store cannot be backed up onto itself"};
    Pool pool(1);
    auto work = [ctx, from, target = to.string()] { return make_backup(ctx, from, target); };
    co_return co_await blocking(pool, std::move(work));
}

Result<Verified> verify_sqlite(const std::filesystem::path& path) {
    const auto name = path.string();
    TRY(const auto state, look_at(name));
    if (state == FileState::absent) return Error{Code::not_found, fmt::format("there is no store at {}", name)};
    // A store that nobody runs on is left without a trace of our reading. A backup has no lock and needs none.
    std::optional<FileLock> lock;
    if (std::filesystem::exists(name + ".lock"))
        if (auto taken = FileLock::take(name); taken.ok()) lock = std::move(*taken);
    const auto tidy = lock ? Tidy::yes : Tidy::no;
    TRY(const auto contents, read_contents(name, tidy));
    return verified_of(contents);
}

Result<Verified> restore_sqlite(const std::filesystem::path& backup, const std::filesystem::path& path, Overwrite overwrite) {
    const auto name = path.string(), unfinished = name + ".restoring", aside = name + ".replaced";
    TRY(const auto lock, FileLock::take(name));
    const bool something = std::filesystem::exists(path) || std::filesystem::exists(name + "-wal");
    if (something && overwrite == Overwrite::no)
        return Error{Code::conflict, fmt::format("there is a store at {} already", name),
                     "restore to another path, or say with --force that it may be overwritten"};
    TRY(auto verified, verify_sqlite(backup));
    auto prepare = [&]() -> Result<Unit> {
        TRY(std::ignore, copy_database(Context::background(), backup.string(), unfinished));
        return rename_store(unfinished, verified.identity);
    };
    verified.identity = random_id();
    verified.moved_to.reset();
    auto prepared = prepare();
    if (!prepared.ok()) {
        remove_database(unfinished);
        return std::move(prepared).error().within("the backup could not be restored");
    }
    if (something) {
        TRY(std::ignore, set_aside(name, aside));
    }
    TRY(std::ignore, rename_durably(unfinished, name));
    remove_database(aside);
    return verified;
}

} // namespace orrery::store
