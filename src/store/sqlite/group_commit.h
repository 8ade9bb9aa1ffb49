#pragma once

#include "core/task.h"
#include "store/mirror.h"
#include "store/sqlite/batch_evaluator.h"
#include "store/sqlite/lease_table.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/writer.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::store {

/// Group commit: one disk sync carries all writes that wait at that moment.
///
/// Operations queue on the loop. When the writer thread is idle, the queue is evaluated in order (a stale transaction fails without
/// affecting the others) and handed to the writer as one batch, which is one SQLite transaction. When the batch is on disk, the
/// delegate applies it to memory, and then every caller gets its result. While one batch is written, the next one fills.
///
/// Loop thread only. The delegate, the mirror and the lease table must outlive it.
class GroupCommit {
public:
    struct Options {
        std::size_t max_queued_transactions; ///< beyond this many waiting: `throttled`
        std::size_t max_queued_bytes;
        std::size_t max_batch_transactions; ///< this many share one commit
        std::size_t max_batch_bytes;
    };

    /// The store behind the batches. All calls come on the loop thread.
    class Delegate {
    public:
        virtual ~Delegate() = default;
        /// The error for all operations of a store that takes no more writes.
        virtual std::optional<Error> write_refusal() const = 0;
        /// Adds maintenance (deletions of superseded rows) to a batch that has its operations.
        virtual void add_maintenance(Batch& batch) = 0;
        /// The result of each commit, before anything else happens to the batch. Not called for a batch that wrote nothing.
        virtual void on_commit(const Result<Unit>& outcome) = 0;
        /// The batch is on disk: applies it to memory. The operations are answered after this returns.
        virtual void apply_batch(Batch& batch, std::vector<EvaluatedOperation>& operations) = 0;
        /// The batch failed, and nothing of it was written.
        virtual void discard_batch(const Batch& batch) = 0;
        /// All operations of a batch were answered. True: commit another batch even if the queue is empty.
        virtual bool wants_another_batch() = 0;
    };

    GroupCommit(asio::any_io_executor executor, const Mirror& mirror, LeaseTable& leases, Options options, Delegate& delegate);
    GroupCommit(const GroupCommit&) = delete;
    GroupCommit& operator=(const GroupCommit&) = delete;

    /// Starts the writer thread. No operation may be submitted before.
    void start(Database database, Writer::Options options);
    /// Queues the operation and waits for its commit. A queued operation cannot be withdrawn. `throttled` when the queue is full.
    Task<Revision> submit(Operation operation);
    /// Starts a batch soon, if none is being written.
    void schedule();
    /// Waits until the queue is empty and no batch is being written.
    asio::awaitable<void> drain();
    /// Hands over the writer, whose destructor may block: it checkpoints and closes the file. Call after `drain`.
    std::unique_ptr<Writer> release_writer() { return std::move(writer_); }

    std::size_t queued() const { return queue_.size(); }
    std::size_t queued_bytes() const { return queued_bytes_; }
    std::int64_t checkpoints() const { return writer_ ? writer_->checkpoints() : 0; }

private:
    void start_batch();
    void finish_batch(Result<Unit> outcome);

    asio::any_io_executor executor_;
    Options options_;
    Delegate& delegate_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true); // the writer's result may arrive after the destructor

    std::deque<std::unique_ptr<PendingOperation>> queue_;
    std::size_t queued_bytes_ = 0;
    bool scheduled_ = false;
    Notifier idle_;

    // The current batch.
    bool writing_ = false;
    std::optional<asio::executor_work_guard<asio::any_io_executor>> loop_guard_; // keeps the loop alive while the writer works
    Batch batch_;
    BatchEvaluator evaluator_;
    std::vector<EvaluatedOperation> evaluated_;
    std::vector<std::pair<std::unique_ptr<PendingOperation>, Error>> refused_;
    std::unique_ptr<Writer> writer_; // after the batch, which it reads
};

} // namespace orrery::store
