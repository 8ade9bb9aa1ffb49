#pragma once

#include "core/task.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>

#include <algorithm>
#include <cstddef>

namespace orrery {

namespace detail {
template <class Make> asio::awaitable<void> take_turns(std::size_t count, std::size_t& next, Make& make) {
    while (next < count) {
        const auto mine = next++;
        co_await make(mine);
    }
}
} // namespace detail

/// Runs `make(i)`, which gives an `awaitable<void>`, for all i below `count`, at most `at_once` at a time, and waits for all. What
/// `make` refers to must live until then. `cancelled` when the caller is; then none of them runs any more.
template <class Make> Task<Unit> side_by_side(std::size_t count, std::size_t at_once, Make make) {
    std::size_t next = 0;
    TaskGroup group(co_await asio::this_coro::executor);
    for (std::size_t i = 0; i < std::min(at_once, count); ++i) group.spawn(detail::take_turns(count, next, make));
    bool cancelled = false;
    try {
        co_await group.join();
    } catch (const boost::system::system_error&) { // what a cancelled coroutine gets from its next co_await
        cancelled = true;
    }
    const auto state = co_await asio::this_coro::cancellation_state;
    if (!cancelled && state.cancelled() == asio::cancellation_type::none) co_return Unit{};
    co_await asio::this_coro::reset_cancellation_state();
    co_await group.stop();
    co_return Error{Code::cancelled, "the caller gave up"};
}

} // namespace orrery
