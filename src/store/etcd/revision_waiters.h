#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "store/store.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <map>
#include <memory>

namespace orrery::store::etcd {

/// Coroutines that wait until the copy has reached a revision. Loop thread only.
class RevisionWaiters {
public:
    explicit RevisionWaiters(asio::any_io_executor executor) : executor_(std::move(executor)) {}
    /// `timeout` at `until`; `cancelled` if the coroutine is cancelled or `close` is called.
    Task<Unit> wait(Revision revision, SteadyTime until);
    /// Resumes the coroutines that wait for this revision or an earlier one.
    void reached(Revision revision);
    /// Ends all present and future waits.
    void close();

private:
    struct Waiter {
        asio::steady_timer timer;
        bool notified = false;
    };
    asio::any_io_executor executor_;
    Revision reached_ = 0;
    bool closed_ = false;
    std::multimap<Revision, std::shared_ptr<Waiter>> waiting_;
};

} // namespace orrery::store::etcd
