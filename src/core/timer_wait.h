#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace orrery::detail {

/// The result of waiting for a timer.
struct TimerWait {
    bool expired = false;   ///< false: the timer or the waiting coroutine was cancelled
    bool cancelled = false; ///< the waiting coroutine was cancelled
};

/// Private to core: waits for the timer, which must outlive the wait. A cancellation that arrives after the timer fired but before
/// the coroutine resumes is still reported, because Asio signals it only once.
inline boost::asio::awaitable<TimerWait> wait_for(boost::asio::steady_timer& timer) {
    namespace asio = boost::asio;
    const auto before = co_await asio::this_coro::cancellation_state;
    const auto was = before.cancelled();
    const auto [error] = co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    const auto after = co_await asio::this_coro::cancellation_state;
    co_return TimerWait{.expired = !error, .cancelled = after.cancelled() != was};
}

} // namespace orrery::detail
