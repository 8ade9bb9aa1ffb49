#include "core/task.h"

#include "core/component.h"
#include "core/log.h"
#include "core/timer_wait.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <cstdlib>
#include <exception>
#include <list>
#include <stdexcept>

namespace orrery {

struct TaskGroup::State {
    State(asio::any_io_executor executor_, std::shared_ptr<Component> component_)
        : executor(std::move(executor_)), component(std::move(component_)), all_ended(executor, SteadyTime::max()) {}
    asio::any_io_executor executor;
    std::shared_ptr<Component> component; // null: a failure ends the process
    std::list<asio::cancellation_signal> running;
    asio::steady_timer all_ended; // never expires; cancelling it wakes the joining coroutines
    bool stopped = false;
    std::string failure; // the first one's message

    void failed(std::string message) {
        if (!component) component = Component::of(executor); // it may own the loop's unmarked groups only since
        if (!component) {
            log::error(Context::background(), "a task ended with an exception: {}", message);
            std::abort();
        }
        if (failure.empty()) failure = message;
        component->fail(std::move(message));
    }
};

TaskGroup::TaskGroup(asio::any_io_executor executor) : TaskGroup(executor, Component::of(executor)) {}
TaskGroup::TaskGroup(asio::any_io_executor executor, std::shared_ptr<Component> component)
    : state_(std::make_shared<State>(std::move(executor), std::move(component))) {}

TaskGroup::~TaskGroup() {
    // What still runs refers to the owner that is going away. When the loop itself is being torn down nothing runs any more.
    for (auto& signal : state_->running) signal.emit(asio::cancellation_type::terminal);
    state_->stopped = true;
}

void TaskGroup::spawn(asio::awaitable<void> work) {
    if (state_->stopped) return;
    auto place = state_->running.emplace(state_->running.end());
    auto finished = [state = state_, place](std::exception_ptr exception) {
        // A cancelled coroutine ends with an exception, which is not a failure.
        if (exception)
            if (auto message = describe_failure(exception); !message.empty()) state->failed(std::move(message));
        state->running.erase(place);
        if (state->running.empty()) state->all_ended.cancel();
    };
    asio::co_spawn(state_->executor, std::move(work), asio::bind_cancellation_slot(place->slot(), std::move(finished)));
}

asio::awaitable<void> TaskGroup::join() {
    auto state = state_;
    while (!state->running.empty()) co_await state->all_ended.async_wait(asio::as_tuple(asio::use_awaitable));
    if (!state->failure.empty()) throw std::runtime_error("a task that was waited for failed: " + state->failure);
}

void TaskGroup::reopen() {
    state_->stopped = false;
    state_->failure.clear();
}

asio::awaitable<void> TaskGroup::stop() {
    auto state = state_;
    state->stopped = true;
    // Emitting may end a task at once and take its signal off the list.
    for (auto at = state->running.begin(); at != state->running.end();) (at++)->emit(asio::cancellation_type::terminal);
    // A cancelled caller does not interrupt `stop`, because the owner of the group is destroyed afterwards.
    co_await asio::this_coro::reset_cancellation_state();
    while (!state->running.empty()) co_await state->all_ended.async_wait(asio::as_tuple(asio::use_awaitable));
}

std::size_t TaskGroup::size() const { return state_->running.size(); }

struct Notifier::State {
    explicit State(asio::any_io_executor executor_) : executor(std::move(executor_)) {}
    asio::any_io_executor executor;
    std::list<std::pair<asio::steady_timer, bool>> waiting; // a timer, and whether it was notified
};

Notifier::Notifier(asio::any_io_executor executor) : state_(std::make_shared<State>(std::move(executor))) {}
Notifier::~Notifier() { notify_all(); }

Task<Unit> Notifier::wait(Context ctx) {
    auto state = state_;
    auto place = state->waiting.emplace(state->waiting.end(),
                                        asio::steady_timer(state->executor, ctx.deadline().value_or(SteadyTime::max())), false);
    const auto end = co_await detail::wait_for(place->first);
    const bool notified = place->second;
    state->waiting.erase(place);
    if (notified && !end.cancelled) co_return Unit{};
    if (end.expired && !end.cancelled) co_return Error{Code::timeout, "the deadline passed"};
    co_return Error{Code::cancelled, "the wait was cancelled"};
}

void Notifier::notify_all() {
    for (auto& [timer, notified] : state_->waiting) {
        notified = true;
        timer.cancel();
    }
}

namespace detail {

asio::awaitable<void> run_on_pool(Pool& pool, std::function<void()> work) {
    auto executor = co_await asio::this_coro::executor;
    auto token = asio::use_awaitable;
    auto failure = std::make_shared<std::exception_ptr>();
    // Not cancellable on purpose: the result's owner waits for the thread.
    co_await asio::async_initiate<decltype(token), void()>(
        [&pool, executor, failure](auto handler, std::function<void()> body) {
            auto shared = std::make_shared<decltype(handler)>(std::move(handler));
            auto guard = asio::make_work_guard(executor);
            asio::post(pool, [shared, guard = std::move(guard), executor, failure, body = std::move(body)]() mutable {
                try {
                    body();
                } catch (...) {
                    *failure = std::current_exception();
                }
                body = nullptr;
                asio::post(executor, [shared]() mutable { (*shared)(); });
            });
        },
        token, std::move(work));
    if (*failure) std::rethrow_exception(*failure);
}

namespace {
asio::awaitable<bool> passed(SteadyTime deadline, Clock& clock) {
    auto slept = co_await clock.sleep_until(deadline);
    co_return slept.ok();
}
} // namespace

asio::awaitable<bool> race_with_deadline(asio::awaitable<void> work, SteadyTime deadline, Clock& clock) {
    using namespace asio::experimental::awaitable_operators;
    auto outcome = co_await (std::move(work) || passed(deadline, clock));
    co_return outcome.index() == 1 && std::get<1>(outcome);
}

} // namespace detail

} // namespace orrery
