#pragma once

#include "core/context.h"
#include "core/result.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace orrery {

namespace asio = boost::asio;

/// A coroutine on the event loop that returns a value or an Error. Take parameters by value; do not use capturing lambdas.
template <class T> using Task = asio::awaitable<Result<T>>;

class Component;

/// Owns coroutines that run concurrently with their owner. `stop` cancels and awaits them; the destructor requires that all have
/// ended. Belongs to one event loop and to the component that the executor is marked with (component.h).
class TaskGroup {
public:
    explicit TaskGroup(asio::any_io_executor executor);
    /// For the loop of another thread: failures are reported to `component`, which may be null.
    TaskGroup(asio::any_io_executor executor, std::shared_ptr<Component> component);
    ~TaskGroup();
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;

    /// Starts a coroutine. An exception that leaves it is a bug: it fails the component of the group, or ends the process when the
    /// group has no component. After `stop` the coroutine is dropped and never starts.
    void spawn(asio::awaitable<void> work);
    /// Waits until all spawned coroutines have ended. Throws when one of them failed, because their work is incomplete.
    asio::awaitable<void> join();
    /// Cancels all and waits until all have ended. Later spawns are ignored.
    asio::awaitable<void> stop();
    /// Accepts coroutines again after `stop`, for owners that are restarted.
    void reopen();
    std::size_t size() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// A condition variable for coroutines of one loop. Check the predicate, then `wait`, in a loop.
class Notifier {
public:
    explicit Notifier(asio::any_io_executor executor);
    ~Notifier();
    /// Waits for the next `notify_all`. Errors: `cancelled`; `timeout` at the deadline of the context (on the real clock).
    Task<Unit> wait(Context ctx);
    void notify_all();

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// Threads for blocking calls: the resolver, password hashing, libraries without an asynchronous interface.
using Pool = asio::thread_pool;

namespace detail {
/// Runs `work` on the pool and resumes on the executor of the caller. Rethrows exceptions there.
asio::awaitable<void> run_on_pool(Pool& pool, std::function<void()> work);
} // namespace detail

/// Runs a blocking function (`Result<T>()`) on the pool and resumes the caller on its own loop. The function cannot be cancelled:
/// it must have a timeout of its own, and must own what it uses (move it in).
template <class F> auto blocking(Pool& pool, F work) -> asio::awaitable<std::invoke_result_t<F&>> {
    auto result = std::make_shared<std::invoke_result_t<F&>>();
    auto shared_work = std::make_shared<F>(std::move(work));
    std::function<void()> body = [result, shared_work] { *result = (*shared_work)(); };
    co_await detail::run_on_pool(pool, std::move(body));
    co_return std::move(*result);
}

/// Runs `work` until the deadline of the context. At the deadline it cancels and awaits `work` and returns `timeout`.
template <class T> Task<T> within_deadline(Context ctx, Task<T> work, Clock& clock = real_clock());

namespace detail {
/// Runs `work` until the deadline; true when the deadline passed first.
asio::awaitable<bool> race_with_deadline(asio::awaitable<void> work, SteadyTime deadline, Clock& clock);
template <class T> asio::awaitable<void> store_result(Task<T> work, std::shared_ptr<Result<T>> result) {
    *result = co_await std::move(work);
}
} // namespace detail

template <class T> Task<T> within_deadline(Context ctx, Task<T> work, Clock& clock) {
    if (!ctx.deadline()) co_return co_await std::move(work);
    auto result = std::make_shared<Result<T>>();
    const bool late = co_await detail::race_with_deadline(detail::store_result(std::move(work), result), *ctx.deadline(), clock);
    if (late && !result->ok()) co_return Error{Code::timeout, "the deadline passed"};
    co_return std::move(*result);
}

} // namespace orrery
