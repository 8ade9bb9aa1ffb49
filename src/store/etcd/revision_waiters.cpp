#include "store/etcd/revision_waiters.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace orrery::store::etcd {

Task<Unit> RevisionWaiters::wait(Revision revision, SteadyTime until) {
    if (reached_ >= revision) co_return Unit{};
    if (closed_) co_return Error{Code::cancelled, "the store was closed"};
    auto waiter = std::make_shared<Waiter>(Waiter{asio::steady_timer(executor_, until)});
    auto entry = waiting_.emplace(revision, waiter);
    auto [error] = co_await waiter->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (waiter->notified) {
        if (reached_ >= revision) co_return Unit{};
        co_return Error{Code::cancelled, "the store was closed"};
    }
    waiting_.erase(entry);
    if (error) co_return Error{Code::cancelled, "the wait was cancelled"};
    co_return Error{Code::timeout, "the deadline passed"};
}

void RevisionWaiters::reached(Revision revision) {
    reached_ = std::max(reached_, revision);
    while (!waiting_.empty() && (closed_ || waiting_.begin()->first <= reached_)) {
        auto waiter = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        waiter->notified = true;
        waiter->timer.cancel();
    }
}

void RevisionWaiters::close() {
    closed_ = true;
    reached(reached_);
}

} // namespace orrery::store::etcd
