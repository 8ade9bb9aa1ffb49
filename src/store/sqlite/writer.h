#pragma once

#include "store/sqlite/file_format.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace orrery::store {

/// One row of the log. The event belongs to the creator of the batch and must stay valid until the batch is done.
struct LogRow {
    std::int64_t seq = 0;
    const Event* event = nullptr;
};

/// The contents of one commit.
struct Batch {
    std::vector<LogRow> rows;
    std::vector<StoredLease> granted;
    std::vector<LeaseId> revoked;
    std::optional<Revision> compacted;
    std::vector<std::int64_t> deleted_rows; ///< superseded rows to delete, in file order
    std::optional<std::string> migrated_to;

    bool empty() const {
        return rows.empty() && granted.empty() && revoked.empty() && !compacted && deleted_rows.empty() && !migrated_to;
    }
};

/// The thread that owns the writing connection. Commits one batch at a time, atomically; the batch is on disk when `done` is
/// called.
class Writer {
public:
    struct Options {
        std::size_t wal_pages = 2048;       ///< the write-ahead log is checkpointed beyond this size
        std::chrono::microseconds spin{20}; ///< polls this long for the next batch before it sleeps
    };
    using Done = std::function<void(Result<Unit>)>;

    /// `done` is called on the writer's thread after each batch.
    Writer(Database database, Options options, Done done);
    /// Waits for the current batch, checkpoints the log and closes the file. May block for seconds.
    ~Writer();

    /// Starts writing a batch, which must stay valid until `done`. Only one batch at a time.
    void submit(const Batch& batch);
    /// Makes the thread end after the current batch. The destructor calls it.
    void stop();

    static Result<Database> open(const std::string& path);

    std::int64_t checkpoints() const { return checkpoints_.load(std::memory_order_relaxed); }

private:
    struct Statements;
    void work();
    const Batch* next();
    Result<Unit> commit(Statements& statements, const Batch& batch);
    Result<Unit> write(Statements& statements, const Batch& batch);
    void checkpoint_wal();
    /// Extends the write-ahead log to its full length once. Syncing a write inside a file is much cheaper than syncing one that
    /// extends it, because the file system then has no metadata to write. SQLite ignores zeros at the end of the log.
    void preallocate_wal();

    Database database_;
    Options options_;
    Done done_;
    std::mutex mutex_;
    std::condition_variable submitted_, finished_;
    std::atomic<const Batch*> current_batch_ = nullptr; // written under the mutex, read without it
    std::size_t wal_pages_used_ = 0;
    std::size_t checkpoint_at_;
    std::atomic<std::int64_t> checkpoints_ = 0;
    std::thread thread_;
};

} // namespace orrery::store
