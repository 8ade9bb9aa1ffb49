#pragma once

#include "core/task.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>

#include <algorithm>
#include <cstddef>

namespace orrery {

namespace detail {
template <class Make> asio::awaitable<void> run_next(std::size_t count, std::size_t& next, Make& make) {
    while (next < count) {
        const auto mine = next++;
        co_await make(mine);
    }
}
} // namespace detail

/// Awaits `make(i)`, which returns an `awaitable<void>`, for all i below `count`, at most `max_concurrent` at a time. Objects that
/// `make` refers to must outlive the call. Errors: `cancelled` when the caller is cancelled; all calls have ended then.
template <class Make> Task<Unit> for_each_concurrent(std::size_t count, std::size_t max_concurrent, Make make) {
    std::size_t next = 0;
    TaskGroup group(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < std::min(max_concurrent, count); ++i) group.spawn(detail::run_next(count, next, make));
    bool cancelled = false;
    try {
        co_await group.join();
    } catch (const boost::system::system_error&) { // thrown by the next co_await of a cancelled coroutine
        cancelled = true;
    }
    const auto state = co_await asio::this_coro::cancellation_state;
    if (!cancelled && state.cancelled() == asio::cancellation_type::none) co_return Unit{};
    co_await asio::this_coro::reset_cancellation_state();
    co_await group.stop();
    co_return Error{Code::cancelled, "the caller was cancelled"};
}

} // namespace orrery
