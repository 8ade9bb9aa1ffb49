#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace orrery::detail {

/// How a wait for a timer ended.
struct TimerWait {
    bool expired = false;   ///< its time came; else somebody cancelled the timer, or the one who waits
    bool cancelled = false; ///< the one who waits was cancelled meanwhile
};

/// Private to core: waits for the timer. One who is cancelled after the timer ended and before it runs is cancelled all the same:
/// nobody says so a second time. The timer must outlive the wait.
inline boost::asio::awaitable<TimerWait> wait_for(boost::asio::steady_timer& timer) {
    namespace asio = boost::asio;
    const auto before = co_await asio::this_coro::cancellation_state;
    const auto was = before.cancelled();
    const auto [error] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    const auto after = co_await asio::this_coro::cancellation_state;
    co_return TimerWait{.expired = !error, .cancelled = after.cancelled() != was};
}

} // namespace orrery::detail
