#include "store/sqlite/writer.h"

#include "core/log.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace orrery::store {

namespace {

/// Submitted in place of a batch to end the thread.
const Batch stop_marker;

int record_wal_size(void* size, sqlite3*, const char*, int pages) {
    *static_cast<std::size_t*>(size) = static_cast<std::size_t>(pages);
    return SQLITE_OK;
}

} // namespace

void Writer::preallocate_wal() {
    const std::string path = sqlite3_filename_wal(sqlite3_db_filename(database_.handle(), "main"));
    struct statvfs disk{};
    struct stat log{};
    const auto wanted = static_cast<off_t>(options_.wal_pages * 8192);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    const bool roomy = ::fstatvfs(fd, &disk) == 0 && disk.f_bavail * disk.f_frsize > 16 * static_cast<std::uint64_t>(wanted);
    if (roomy && ::fstat(fd, &log) == 0) {
        const std::string zeros(1 << 20, '\0');
        for (auto end = log.st_size; end < wanted;) {
            const auto written =
                ::pwrite(fd, zeros.data(), std::min<std::size_t>(zeros.size(), static_cast<std::size_t>(wanted - end)), end);
            if (written <= 0) break;
            end += written;
        }
        ::fsync(fd);
    }
    ::close(fd);
}

struct Writer::Statements {
    Statement begin, commit, rollback, insert, grant, revoke, compact, collect, move;
};

Result<Database> Writer::open(const std::string& path) {
    TRY(auto database, Database::open(path, Database::Mode::read_write));
    // FULL in WAL mode syncs the log at every commit. Checkpoints are made here, between batches.
    TRY(std::ignore,
        database.run("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-16384;"
                     "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864"));
    TRY(const auto mode, database.text("PRAGMA journal_mode"));
    if (mode != "wal")
        return Error{Code::unavailable, fmt::format("{} does not support a write-ahead log", path), "use a local disk"};
    return database;
}

Writer::Writer(Database database, Options options, Done done)
    : database_(std::move(database)), options_(options), done_(std::move(done)), checkpoint_at_(options.wal_pages) {
    sqlite3_wal_hook(database_.handle(), &record_wal_size, &wal_pages_used_);
    thread_ = std::thread([this] { work(); });
}

Writer::~Writer() {
    stop();
    if (thread_.joinable()) thread_.join();
}

void Writer::submit(const Batch& batch) {
    {
        std::lock_guard lock(mutex_);
        current_batch_.store(&batch, std::memory_order_release);
    }
    submitted_.notify_one();
}

void Writer::stop() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    // The current batch is finished first.
    finished_.wait(lock, [this] { return current_batch_ == nullptr || current_batch_ == &stop_marker; });
    current_batch_ = &stop_marker;
    submitted_.notify_one();
}

void Writer::work() {
    ::pthread_setname_np(::pthread_self(), "store-writer");
    preallocate_wal();
    auto prepared = [&](const char* sql) {
        auto statement = database_.prepare(sql);
        if (!statement.ok()) {
            log::error(Context::background(), "cannot prepare the statements of the store: {}", statement.error().text());
            std::abort();
        }
        return std::move(*statement);
    };
    Statements statements{prepared("BEGIN IMMEDIATE"),
                          prepared("COMMIT"),
                          prepared("ROLLBACK"),
                          prepared("INSERT INTO log(seq, key, value, created, version, lease, sum) VALUES (?, ?, ?, ?, ?, ?, ?)"),
                          prepared("INSERT OR REPLACE INTO lease(id, ttl_ms) VALUES (?, ?)"),
                          prepared("DELETE FROM lease WHERE id=?"),
                          prepared("UPDATE meta SET value=? WHERE name='compacted'"),
                          prepared("DELETE FROM log WHERE seq=?"),
                          prepared("INSERT OR REPLACE INTO meta(name, value) VALUES ('moved_to', ?)")};
    for (;;) {
        const auto* batch = next();
        if (batch == &stop_marker) return;
        auto outcome = commit(statements, *batch);
        const bool full = !outcome.ok() && outcome.error().code == Code::no_space;
        {
            std::lock_guard lock(mutex_);
            current_batch_ = nullptr;
        }
        finished_.notify_one();
        done_(std::move(outcome));
        // On a full disk, a checkpoint makes the space of the log usable again.
        if (wal_pages_used_ >= checkpoint_at_ || full) checkpoint_wal();
    }
}

const Batch* Writer::next() {
    // A single client sends its next write some microseconds after the previous result: polling saves two context switches. There
    // is no yield in the loop, because on a busy host it would cost milliseconds.
    const auto until = std::chrono::steady_clock::now() + options_.spin;
    do {
        if (const auto* batch = current_batch_.load(std::memory_order_acquire)) return batch;
    } while (std::chrono::steady_clock::now() < until);
    std::unique_lock lock(mutex_);
    submitted_.wait(lock, [this] { return current_batch_ != nullptr; });
    return current_batch_;
}

Result<Unit> Writer::commit(Statements& statements, const Batch& batch) {
    auto outcome = write(statements, batch);
    if (outcome.ok()) return outcome;
    if (!sqlite3_get_autocommit(database_.handle())) {
        (void)statements.rollback.step();
        statements.rollback.reset();
    }
    return outcome;
}

Result<Unit> Writer::write(Statements& statements, const Batch& batch) {
    auto run = [&](Statement& statement) -> Result<Unit> {
        auto stepped = statement.step();
        statement.reset();
        if (!stepped.ok()) return std::move(stepped).error().within("cannot write to the store");
        return Unit{};
    };
    TRY(std::ignore, run(statements.begin));
    auto& insert = statements.insert;
    for (const auto& row : batch.rows) {
        insert.bind(1, row.seq);
        const auto& key = row.event->key;
        insert.bind_text(2, key);
        if (row.event->record) {
            const auto& record = *row.event->record;
            const std::string_view value = record.value;
            insert.bind_blob(3, value);
            insert.bind(4, record.created);
            insert.bind(5, record.version);
            insert.bind(6, record.lease);
            insert.bind(7, row_checksum(row.seq, key, &value, record.created, record.version, record.lease));
        } else {
            insert.bind_null(3);
            for (int index : {4, 5, 6}) insert.bind(index, 0);
            insert.bind(7, row_checksum(row.seq, key, nullptr, 0, 0, 0));
        }
        TRY(std::ignore, run(insert));
    }
    for (const auto& lease : batch.granted) {
        statements.grant.bind(1, lease.id);
        statements.grant.bind(2, lease.ttl_ms);
        TRY(std::ignore, run(statements.grant));
    }
    for (const auto lease : batch.revoked) {
        statements.revoke.bind(1, lease);
        TRY(std::ignore, run(statements.revoke));
    }
    if (batch.compacted) {
        statements.compact.bind(1, *batch.compacted);
        TRY(std::ignore, run(statements.compact));
    }
    for (const auto seq : batch.deleted_rows) {
        statements.collect.bind(1, seq);
        TRY(std::ignore, run(statements.collect));
    }
    if (batch.migrated_to) {
        statements.move.bind_text(1, *batch.migrated_to);
        TRY(std::ignore, run(statements.move));
    }
    return run(statements.commit);
}

void Writer::checkpoint_wal() {
    int left = 0, folded = 0;
    const int outcome = sqlite3_wal_checkpoint_v2(database_.handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, &left, &folded);
    checkpoints_.fetch_add(1, std::memory_order_relaxed);
    // A complete checkpoint: the next commit restarts the log. Otherwise (a backup reads it, or the disk is full) retry later.
    checkpoint_at_ = outcome == SQLITE_OK && left == folded ? options_.wal_pages : wal_pages_used_ + options_.wal_pages / 4;
    if (outcome == SQLITE_OK && left == folded) wal_pages_used_ = 0;
}

} // namespace orrery::store
