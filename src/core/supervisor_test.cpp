#include "core/supervisor.h"
#include "core/test_fixture.h"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <stdexcept>
#include <thread>

namespace orrery {

using namespace std::chrono_literals;

namespace {

/// Two components on a virtual clock, and the alarms that were raised.
struct SupervisedPair {
    explicit SupervisedPair(asio::io_context& loop)
        : supervisor(loop, {.clock = &clock}, [this](const Supervisor::Status& status) { alarms.push_back(status); }) {}
    VirtualClock clock;
    std::vector<Supervisor::Status> alarms;
    Supervisor supervisor;
};

asio::awaitable<void> run_until_stopped(int& running) {
    co_await asio::this_coro::throw_if_cancelled(false);
    ++running;
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(Context::background());
    --running;
}

asio::awaitable<void> throw_after(Clock& clock, Duration time) {
    std::ignore = co_await clock.sleep(time);
    throw std::out_of_range("no such member");
}

/// Like a module: its own group, created with the executor that its coroutine runs on.
asio::awaitable<void> fail_in_nested_group(Clock& clock, Duration time) {
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup nested(co_await asio::this_coro::executor);
    nested.spawn(throw_after(clock, time));
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(Context::background());
    co_await nested.stop();
}

/// Lets all that is ready run.
asio::awaitable<void> turn_the_loop() {
    for (int i = 0; i < 20; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

} // namespace

CO_TEST(Supervisor, AFailureInANestedGroupStopsItsComponentOnlyAndStartsItAgain) {
    SupervisedPair of(loop);
    of.supervisor.add("jobs", Supervisor::Policy::restart);
    of.supervisor.add("dns", Supervisor::Policy::restart);
    int jobs = 0, dns = 0, starts = 0;
    of.supervisor.start("dns", [&](TaskGroup& group) { group.spawn(run_until_stopped(dns)); });
    of.supervisor.start("jobs", [&](TaskGroup& group) {
        group.spawn(run_until_stopped(jobs));
        if (++starts == 1) group.spawn(fail_in_nested_group(of.clock, 1s));
    });
    co_await turn_the_loop();
    EXPECT_EQ(jobs, 1);
    of.clock.advance(1s);
    co_await turn_the_loop();
    EXPECT_EQ(jobs, 0) << "the other tasks of the component were stopped";
    EXPECT_EQ(dns, 1);
    CO_ASSERT(of.alarms.size() == 1);
    EXPECT_EQ(of.alarms[0].component, "jobs");
    EXPECT_EQ(of.alarms[0].message, "no such member");
    EXPECT_EQ(of.alarms[0].state, Supervisor::State::restarting);
    EXPECT_EQ(of.supervisor.degraded(), "component jobs is being restarted after 1 failures in a row: no such member");
    of.clock.advance(1s);
    co_await turn_the_loop();
    EXPECT_EQ(starts, 2);
    EXPECT_EQ(jobs, 1);
    EXPECT_EQ(of.supervisor.degraded(), "");
    co_await of.supervisor.stop();
    EXPECT_EQ(jobs + dns, 0);
}

CO_TEST(Supervisor, AComponentThatFailsTooOftenStaysDownAndReportsIt) {
    SupervisedPair of(loop);
    of.supervisor.add("gslb", Supervisor::Policy::restart);
    int starts = 0;
    of.supervisor.start("gslb", [&](TaskGroup& group) {
        ++starts;
        group.spawn(throw_after(of.clock, 0s));
    });
    co_await turn_the_loop();
    std::vector<Duration> waits;
    while (of.alarms.back().state == Supervisor::State::restarting) {
        waits.push_back(of.alarms.back().retry_in);
        of.clock.advance(of.alarms.back().retry_in);
        co_await turn_the_loop();
        of.clock.advance(0s);
        co_await turn_the_loop();
    }
    EXPECT_EQ(waits, (std::vector<Duration>{1s, 2s, 4s, 8s}));
    EXPECT_EQ(starts, 5);
    EXPECT_EQ(of.alarms.back().state, Supervisor::State::failed);
    of.clock.advance(1h);
    co_await turn_the_loop();
    EXPECT_EQ(starts, 5);
    EXPECT_EQ(of.supervisor.degraded(), "component gslb is down after 5 failures in a row: no such member");
    const std::vector<std::pair<std::string, double>> wanted{{R"(orrery_component_failed{component="gslb"})", 1},
                                                             {R"(orrery_component_failures_total{component="gslb"})", 5}};
    EXPECT_EQ(of.supervisor.gauges(), wanted);
    co_await of.supervisor.stop();
}

CO_TEST(Supervisor, ALongRunResetsTheNumberOfFailures) {
    SupervisedPair of(loop);
    of.supervisor.add("jobs", Supervisor::Policy::restart);
    of.supervisor.start("jobs", [&](TaskGroup& group) { group.spawn(throw_after(of.clock, 15min)); });
    for (int i = 0; i < 12; ++i) {
        co_await turn_the_loop();
        of.clock.advance(15min);
        co_await turn_the_loop();
        of.clock.advance(1s);
    }
    co_await turn_the_loop();
    EXPECT_EQ(of.alarms.size(), 12U);
    EXPECT_EQ(of.alarms.back().failures, 1);
    co_await of.supervisor.stop();
}

CO_TEST(Supervisor, IndependentTasksContinueAndAnUnmarkedGroupFailsTheProcess) {
    SupervisedPair of(loop);
    auto& rest = of.supervisor.add("server", Supervisor::Policy::terminal);
    rest.own_unmarked();
    auto& api = of.supervisor.add("api", Supervisor::Policy::carry_on);
    int running = 0;
    TaskGroup background(api.executor());
    background.spawn(run_until_stopped(running));
    background.spawn(throw_after(of.clock, 0s));
    co_await turn_the_loop();
    EXPECT_EQ(running, 1);
    CO_ASSERT(of.alarms.size() == 1);
    EXPECT_EQ(of.alarms[0].component, "api");
    EXPECT_EQ(of.alarms[0].state, Supervisor::State::running);

    TaskGroup store(loop.get_executor());
    store.spawn(throw_after(of.clock, 0s));
    co_await turn_the_loop();
    CO_ASSERT(of.alarms.size() == 2);
    EXPECT_EQ(of.alarms[1].component, "server");
    EXPECT_EQ(of.alarms[1].policy, Supervisor::Policy::terminal);
    co_await background.stop();
    co_await of.supervisor.stop();
}

CO_TEST(Supervisor, AHandlerThatThrowsAndATaskOfAnotherThreadFailTheirComponent) {
    SupervisedPair of(loop);
    auto& health = of.supervisor.add("health", Supervisor::Policy::carry_on);
    asio::post(health.executor(), [] { throw std::runtime_error("a handler"); });
    co_await turn_the_loop();
    CO_ASSERT(of.alarms.size() == 1);
    EXPECT_EQ(of.alarms[0].message, "a handler");

    asio::io_context other(1);
    TaskGroup there(other.get_executor(), Component::of(health.executor()));
    there.spawn(throw_after(of.clock, 0s));
    std::thread([&other] { other.run(); }).join();
    co_await turn_the_loop();
    CO_ASSERT(of.alarms.size() == 2);
    EXPECT_EQ(of.alarms[1].message, "no such member");
    co_await of.supervisor.stop();
}

CO_TEST(Supervisor, JoiningAFailedTaskThrows) {
    SupervisedPair of(loop);
    auto& jobs = of.supervisor.add("jobs", Supervisor::Policy::carry_on);
    TaskGroup group(jobs.executor());
    group.spawn(throw_after(of.clock, 0s));
    std::string message;
    try {
        co_await group.join();
    } catch (const std::runtime_error& error) {
        message = error.what();
    }
    EXPECT_EQ(message, "a task that was waited for failed: no such member");
    group.reopen();
    co_await group.join();
    co_await of.supervisor.stop();
}

CO_TEST(Supervisor, AnExceptionOnThePoolIsThrownWhereItIsAwaited) {
    Pool pool(1);
    std::string message;
    try {
        std::ignore = co_await blocking(pool, []() -> Result<Unit> { throw std::runtime_error("on the pool"); });
    } catch (const std::runtime_error& error) {
        message = error.what();
    }
    EXPECT_EQ(message, "on the pool");
    pool.join();
}

} // namespace orrery
