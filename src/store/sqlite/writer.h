#pragma once

#include "store/sqlite/format.h"

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

/// One row of the log. The event belongs to whoever made the batch, and stays until it is done.
struct LogRow {
    std::int64_t seq = 0;
    const Event* event = nullptr;
};

/// All that one commit writes.
struct Batch {
    std::vector<LogRow> rows;
    std::vector<StoredLease> granted;
    std::vector<LeaseId> revoked;
    std::optional<Revision> compacted;
    std::vector<std::int64_t> garbage; ///< rows to delete, in their order
    std::optional<std::string> moved_to;

    bool empty() const { return rows.empty() && granted.empty() && revoked.empty() && !compacted && garbage.empty() && !moved_to; }
};

/// The thread that owns the connection that writes. It commits one batch at a time: whole, and on the disk when it says so.
class Writer {
public:
    struct Options {
        std::size_t log_pages = 2048;       ///< the write-ahead log is folded into the file when it has more
        std::chrono::microseconds spin{20}; ///< looks this long for the next batch before it sleeps
    };
    using Done = std::function<void(Result<Unit>)>;

    /// `done` is called on the writer's thread after each batch.
    Writer(Database database, Options options, Done done);
    /// Waits for the batch at hand, folds the log in and closes the file.
    ~Writer();

    /// Gives it a batch, which must stay until `done`. Only when none is at hand.
    void submit(const Batch& batch);
    /// Ends the thread once the batch at hand is done; called from elsewhere than the destructor to let it take its time.
    void stop();

    static Result<Database> open(const std::string& path);

    std::int64_t folds() const { return folds_.load(std::memory_order_relaxed); }

private:
    struct Statements;
    void work();
    const Batch* next();
    Result<Unit> commit(Statements& statements, const Batch& batch);
    Result<Unit> write(Statements& statements, const Batch& batch);
    void fold_log();
    /// Gives the log its full length once. To sync a write within a file is much cheaper than to sync one that makes it longer,
    /// because the file system then has nothing of its own to write. Zeros at the end of a log mean nothing to SQLite.
    void lay_out_log();

    Database database_;
    Options options_;
    Done done_;
    std::mutex mutex_;
    std::condition_variable given_, taken_;
    std::atomic<const Batch*> at_hand_ = nullptr; // changed under the mutex; looked at without it
    std::size_t pages_in_log_ = 0;
    std::size_t fold_at_;
    std::atomic<std::int64_t> folds_ = 0;
    std::thread thread_;
};

} // namespace orrery::store
