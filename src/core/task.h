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

/// Work that runs on the event loop and ends with a value or an Error. Parameters are taken by value; nothing is captured.
template <class T> using Task = asio::awaitable<Result<T>>;

/// Owns work that runs beside its owner. Nothing is left behind: `stop` cancels and waits; the destructor requires that all
/// has ended. Belongs to one event loop.
class TaskGroup {
public:
    explicit TaskGroup(asio::any_io_executor executor);
    ~TaskGroup();
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;

    /// Starts the work at once. An exception that leaves it is a bug: it is logged and ends the process. After `stop` it is dropped
    /// unstarted.
    void spawn(asio::awaitable<void> work);
    /// Waits until all that was spawned has ended.
    asio::awaitable<void> join();
    /// Cancels all and waits until all has ended; later spawns do nothing.
    asio::awaitable<void> stop();
    std::size_t size() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// A condition for coroutines of one loop: `wait` sleeps until the next `notify_all`. Check the predicate, then wait, in a loop.
class Notifier {
public:
    explicit Notifier(asio::any_io_executor executor);
    ~Notifier();
    /// `cancelled` when the waiting coroutine is cancelled, `timeout` at the context's deadline (of the real clock).
    Task<Unit> wait(Context ctx);
    void notify_all();

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// Threads for what blocks: the resolver, password hashing, libraries without an asynchronous form.
using Pool = asio::thread_pool;

namespace detail {
/// Runs `work` on the pool and comes back to the caller's executor.
asio::awaitable<void> run_on_pool(Pool& pool, std::function<void()> work);
} // namespace detail

/// Runs a blocking function (`Result<T>()`) on the pool; the caller goes on, on its own loop, when it is done. The function cannot
/// be cancelled: it must bound itself, and what it uses must outlive it (move it in).
template <class F> auto blocking(Pool& pool, F work) -> asio::awaitable<std::invoke_result_t<F&>> {
    auto result = std::make_shared<std::invoke_result_t<F&>>();
    auto shared_work = std::make_shared<F>(std::move(work));
    std::function<void()> body = [result, shared_work] { *result = (*shared_work)(); };
    co_await detail::run_on_pool(pool, std::move(body));
    co_return std::move(*result);
}

/// Ends `work` at the context's deadline: it is cancelled, awaited, and `timeout` is returned. Without a deadline it just runs.
template <class T> Task<T> within_deadline(Context ctx, Task<T> work, Clock& clock = real_clock());

namespace detail {
/// Runs `work` against the clock; true if the clock won.
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
