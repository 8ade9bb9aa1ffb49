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

/// Work that runs on another loop than its caller's. Internal to net/ssh.
namespace orrery::net {

namespace crossing {

template <class T> struct Passage {
    explicit Passage(const asio::any_io_executor& caller) : ended(caller, SteadyTime::max()) {}
    Result<T> result;
    asio::cancellation_signal cancel; // of the other side
    asio::steady_timer ended;         // of the caller's side: cancelled at the end
    bool has_ended = false;
};

template <class T> asio::awaitable<void> carry(Task<T> work, std::shared_ptr<Passage<T>> passage) {
    // Who is cancelled there hears it from what is awaited, and ends with an Error.
    co_await asio::this_coro::throw_if_cancelled(false);
    passage->result = co_await std::move(work);
}

} // namespace crossing

/// Runs `work` on the other side's loop and comes back with its result. A cancelled caller's cancellation is passed on, and the end
/// of the work is still waited for. (Asio's own co_spawn between loops reads its signal after it is gone when both happen at once.)
template <class T> Task<T> cross(asio::any_io_executor other, Task<T> work) {
    auto caller = co_await asio::this_coro::executor;
    auto passage = std::make_shared<crossing::Passage<T>>(caller);
    asio::post(other, [passage, other, caller, guard = asio::make_work_guard(caller), work = std::move(work)]() mutable {
        asio::co_spawn(other, crossing::carry<T>(std::move(work), passage),
                       asio::bind_cancellation_slot(
                           passage->cancel.slot(), [passage, caller, guard = std::move(guard)](std::exception_ptr failure) mutable {
                               if (failure)
                                   passage->result = Error{Code::internal, "what ran on the other loop ended with an exception"};
                               asio::post(caller, [passage = std::move(passage), guard = std::move(guard)] {
                                   passage->has_ended = true;
                                   passage->ended.cancel();
                               });
                           }));
    });
    bool passed_on = false;
    while (!passage->has_ended) {
        co_await passage->ended.async_wait(asio::as_tuple(asio::use_awaitable));
        if (passage->has_ended || passed_on) continue;
        passed_on = true;
        asio::post(other, [passage] { passage->cancel.emit(asio::cancellation_type::terminal); });
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    }
    co_return std::move(passage->result);
}

} // namespace orrery::net
