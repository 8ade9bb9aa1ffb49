#pragma once

#include "core/task.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <exception>
#include <memory>
#include <utility>

/// Calls between event loops. Private to net/ssh.
namespace orrery::net {

namespace detail {

template <class T> struct CrossLoopCall {
    explicit CrossLoopCall(const asio::any_io_executor& caller) : ended(caller, SteadyTime::max()) {}
    Result<T> result;
    asio::cancellation_signal cancel; // for the other loop
    asio::steady_timer ended;         // on the loop of the caller; cancelled at the end of the call
    bool has_ended = false;
};

template <class T> asio::awaitable<void> run_call(Task<T> work, std::shared_ptr<CrossLoopCall<T>> call) {
    // The awaited operations report a cancellation, and the work returns it as an Error.
    co_await asio::this_coro::throw_if_cancelled(false);
    call->result = co_await std::move(work);
}

} // namespace detail

/// Runs `work` on the loop of `other` and resumes the caller on its own loop with the result. Cancelling the caller cancels the
/// work and still waits for its end. (co_spawn of Asio is not safe between loops: completion and cancellation at the same time read
/// a cancellation signal that is already destroyed.)
template <class T> Task<T> run_on(asio::any_io_executor other, Task<T> work) {
    auto caller = co_await asio::this_coro::executor;
    auto call = std::make_shared<detail::CrossLoopCall<T>>(caller);
    asio::post(other, [call, other, caller, guard = asio::make_work_guard(caller), work = std::move(work)]() mutable {
        asio::co_spawn(other, detail::run_call<T>(std::move(work), call),
                       asio::bind_cancellation_slot(
                           call->cancel.slot(), [call, caller, guard = std::move(guard)](std::exception_ptr failure) mutable {
                               if (failure) call->result = Error{Code::internal, "an exception ended a call on another loop"};
                               asio::post(caller, [call = std::move(call), guard = std::move(guard)] {
                                   call->has_ended = true;
                                   call->ended.cancel();
                               });
                           }));
    });
    bool cancel_sent = false;
    while (!call->has_ended) {
        co_await call->ended.async_wait(asio::as_tuple(asio::use_awaitable));
        if (call->has_ended || cancel_sent) continue;
        cancel_sent = true;
        asio::post(other, [call] { call->cancel.emit(asio::cancellation_type::terminal); });
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    }
    co_return std::move(call->result);
}

} // namespace orrery::net
