#include "store/sqlite/group_commit.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

namespace orrery::store {

GroupCommit::GroupCommit(asio::any_io_executor executor, const Mirror& mirror, LeaseTable& leases, Options options,
                         Delegate& delegate)
    : executor_(executor), options_(options), delegate_(delegate), idle_(executor), evaluator_(mirror, leases) {}

void GroupCommit::start(Database database, Writer::Options options) {
    auto done = [executor = executor_, alive = std::weak_ptr(alive_), this](Result<Unit> outcome) {
        asio::post(executor, [alive, this, outcome = std::move(outcome)]() mutable {
            if (!alive.expired()) finish_batch(std::move(outcome));
        });
    };
    writer_ = std::make_unique<Writer>(std::move(database), options, std::move(done));
}

Task<Revision> GroupCommit::submit(Operation operation) {
    const auto size = operation.size();
    if (queue_.size() >= options_.max_queued_transactions || queued_bytes_ + size > options_.max_queued_bytes)
        co_return Error{Code::throttled, fmt::format("{} writes already wait for the disk", queue_.size()),
                        "try again in a moment"};
    queued_bytes_ += size;
    auto initiate = [this, &operation](auto handler) {
        queue_.push_back(std::make_unique<PendingOperationFor<decltype(handler)>>(std::move(operation), std::move(handler)));
        schedule();
    };
    co_return co_await asio::async_initiate<const asio::use_awaitable_t<>, void(Result<Revision>)>(std::move(initiate),
                                                                                                   asio::use_awaitable);
}

void GroupCommit::schedule() {
    if (writing_ || scheduled_) return;
    scheduled_ = true;
    // Posted, so that other coroutines that are ready on the loop join the same commit.
    asio::post(executor_, [this, alive = std::weak_ptr(alive_)] {
        if (alive.expired()) return;
        scheduled_ = false;
        start_batch();
    });
}

void GroupCommit::start_batch() {
    if (writing_) return;
    std::size_t bytes = 0;
    while (!queue_.empty() && evaluated_.size() < options_.max_batch_transactions && bytes < options_.max_batch_bytes) {
        auto pending = std::move(queue_.front());
        queue_.pop_front();
        queued_bytes_ -= pending->size;
        bytes += pending->size;
        auto refusal = delegate_.write_refusal();
        auto evaluated =
            refusal ? Result<EvaluatedOperation>(std::move(*refusal)) : evaluator_.evaluate(pending->operation, batch_);
        if (!evaluated.ok()) {
            refused_.emplace_back(std::move(pending), std::move(evaluated).error());
            continue;
        }
        evaluated->pending = std::move(pending);
        evaluated_.push_back(std::move(*evaluated));
        if (!queue_.empty()) evaluator_.record_effects(evaluated_.back());
    }
    delegate_.add_maintenance(batch_);
    if (batch_.empty()) {
        if (!evaluated_.empty() || !refused_.empty())
            finish_batch(Unit{});
        else
            idle_.notify_all();
        return;
    }
    writing_ = true;
    loop_guard_.emplace(executor_);
    writer_->submit(batch_);
}

void GroupCommit::finish_batch(Result<Unit> outcome) {
    if (writing_) delegate_.on_commit(outcome);
    writing_ = false;
    auto evaluated = std::exchange(evaluated_, {});
    auto refused = std::exchange(refused_, {});
    evaluator_.clear();
    if (outcome.ok())
        delegate_.apply_batch(batch_, evaluated);
    else
        delegate_.discard_batch(batch_);
    batch_ = {};
    // Callers continue inside these calls: their next writes are queued when the last call returns, and share the next commit. A
    // caller may also destroy the store.
    const std::weak_ptr alive = alive_;
    for (auto& each : evaluated) {
        each.pending->complete(outcome.ok() ? Result<Revision>(each.revision) : Result<Revision>(outcome.error()));
        if (alive.expired()) return;
    }
    for (auto& [pending, error] : refused) {
        pending->complete(std::move(error));
        if (alive.expired()) return;
    }
    loop_guard_.reset();
    const bool more = delegate_.wants_another_batch();
    if (!queue_.empty() || more)
        schedule();
    else
        idle_.notify_all();
}

asio::awaitable<void> GroupCommit::drain() {
    while (writing_ || scheduled_ || !queue_.empty()) (void)co_await idle_.wait(Context::background());
}

} // namespace orrery::store
