#include "core/component.h"
#include "core/test_fixture.h"
#include "health/prober.h"
#include "health/probes/fake_probe.h"
#include "health/probes/tcp_probe.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

asio::awaitable<void> run_handlers() {
    for (int i = 0; i < 40; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

struct Bench {
    explicit Bench(asio::any_io_executor executor, Prober::Options options = {.at_once = 100, .jitter_percent = 0})
        : group(executor),
          prober(executor, clock, options,
                 [this](const std::string& key, const HealthStateMachine& verdict, const Observation&, bool changed) {
                     if (changed) changes.push_back(key + " " + std::string(name_of(verdict.state())));
                     at[key].push_back(clock.wall());
                 }) {}
    asio::awaitable<void> start() {
        group.spawn(prober.run(Context::make("test")));
        co_await run_handlers();
    }
    /// Time passes in steps of 100 ms.
    asio::awaitable<void> pass(Duration time) {
        for (Duration passed{}; passed < time; passed += 100ms) {
            clock.advance(100ms);
            co_await run_handlers();
        }
    }
    VirtualClock clock;
    TaskGroup group;
    std::vector<std::string> changes;
    std::map<std::string, std::vector<WallTime>> at;
    Prober prober;
};

class Slow final : public Probe {
public:
    explicit Slow(Clock& clock, std::string name, std::string host = {})
        : clock_(clock), name_(std::move(name)), host_(std::move(host)) {}
    std::string identity() const override { return name_; }
    std::string host() const override { return host_; }
    asio::awaitable<Observation> run(Context) const override {
        ++running;
        max_running = std::max(max_running, running);
        std::ignore = co_await clock_.sleep(25s);
        --running;
        co_return Observation{.outcome = Outcome::ok};
    }
    static inline int running = 0, max_running = 0;

private:
    Clock& clock_;
    std::string name_, host_;
};

} // namespace

CO_TEST(Prober, AProbeThatThrowsFailsTheComponentAndRunsAgainAfterARestart) {
    class Throwing final : public Probe {
    public:
        std::string identity() const override { return "throws"; }
        std::string host() const override { return "h"; }
        asio::awaitable<Observation> run(Context) const override {
            if (++runs == 1) throw std::out_of_range("no such field");
            co_return Observation{.outcome = Outcome::ok};
        }
        mutable int runs = 0;
    };
    int failures = 0;
    auto component = std::make_shared<Component>("health", loop, [&failures](const std::string&) { ++failures; });
    Bench bench(component->executor(), {.at_once = 1, .at_once_per_host = 1, .jitter_percent = 0});
    auto probe = std::make_shared<Throwing>();
    bench.prober.set("k", {.probe = probe, .interval = 1s, .thresholds = {.rise = 1, .fall = 1}});
    co_await bench.start();
    co_await bench.pass(500ms);
    co_await bench.pass(700ms);
    EXPECT_EQ(failures, 1);
    co_await bench.group.stop();
    bench.group.reopen();
    co_await bench.start();
    co_await bench.pass(3s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up"));
    EXPECT_EQ(bench.prober.counts().running, 0U);
    co_await bench.group.stop();
}

CO_TEST(Prober, ProbesOncePerIntervalAndReportsChanges) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    bench.prober.set("k", {.probe = probe, .interval = 10s, .thresholds = {.rise = 1, .fall = 2}});
    co_await bench.start();
    co_await bench.pass(1s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up")); // the first comes soon
    co_await bench.pass(100s);
    EXPECT_NEAR(probe->runs, 11, 1);
    probe->outcome = Outcome::refused;
    co_await bench.pass(25s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up", "k down"));
    probe->outcome = Outcome::local_error;
    co_await bench.pass(60s);
    EXPECT_EQ(bench.changes.size(), 2U);
    EXPECT_GE(bench.prober.counts().local_errors, 5U);
    probe->outcome = Outcome::ok;
    co_await bench.pass(11s);
    EXPECT_EQ(bench.changes.back(), "k up");
    bench.prober.remove("k");
    const auto runs = probe->runs;
    co_await bench.pass(30s);
    EXPECT_EQ(probe->runs, runs);
    co_await bench.group.stop();
}

CO_TEST(Prober, KeepsItsPhaseOverARestart) {
    std::vector<std::int64_t> phases;
    for (int run = 0; run < 2; ++run) {
        Bench bench(loop.get_executor());
        bench.clock.advance(run == 0 ? 0s : 12345ms);
        bench.prober.set("k", {.probe = std::make_shared<FakeProbe>("the same"), .interval = 10s, .remembered = HealthState::up});
        co_await bench.start();
        co_await bench.pass(40s);
        CO_ASSERT(bench.at["k"].size() >= 3);
        for (const auto when : bench.at["k"]) phases.push_back(when.time_since_epoch().count() / 100 % 100);
        EXPECT_THAT(bench.changes, ::testing::IsEmpty());
        co_await bench.group.stop();
    }
    for (const auto phase : phases) EXPECT_NEAR(static_cast<double>(phase), static_cast<double>(phases.front()), 1.0);
}

CO_TEST(Prober, MakesIdenticalProbesOnce) {
    Bench bench(loop.get_executor());
    auto one = std::make_shared<FakeProbe>("same"), two = std::make_shared<FakeProbe>("same"),
         other = std::make_shared<FakeProbe>("other");
    bench.prober.set("a", {.probe = one, .interval = 5s, .thresholds = {.rise = 1, .fall = 1}});
    bench.prober.set("b", {.probe = two, .interval = 5s, .thresholds = {.rise = 1, .fall = 3}});
    bench.prober.set("c", {.probe = other, .interval = 5s});
    EXPECT_EQ(bench.prober.counts().targets, 2U);
    co_await bench.start();
    co_await bench.pass(6s);
    EXPECT_GE(one->runs, 1);
    EXPECT_EQ(two->runs, 0);
    one->outcome = Outcome::refused;
    bench.changes.clear();
    co_await bench.pass(6s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a down")); // each has its own thresholds
    bench.prober.remove("a");
    co_await bench.pass(15s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a down", "b down"));
    co_await bench.group.stop();
}

CO_TEST(Prober, SkipsProbesBeyondItsCapacity) {
    Bench bench(loop.get_executor(), {.at_once = 3, .jitter_percent = 5});
    for (int i = 0; i < 10; ++i)
        bench.prober.set(std::to_string(i), {.probe = std::make_shared<Slow>(bench.clock, std::to_string(i)), .interval = 10s});
    co_await bench.start();
    co_await bench.pass(60s);
    EXPECT_EQ(Slow::max_running, 3);
    EXPECT_GT(bench.prober.counts().skipped, 10U);
    co_await bench.group.stop();
}

CO_TEST(Prober, LimitsConcurrentProbesOfOneHost) {
    Bench bench(loop.get_executor(), {.at_once = 100, .at_once_per_host = 2, .jitter_percent = 0});
    Slow::running = Slow::max_running = 0;
    for (int i = 0; i < 10; ++i)
        bench.prober.set(std::to_string(i),
                         {.probe = std::make_shared<Slow>(bench.clock, std::to_string(i), "db-1"), .interval = 10s});
    auto elsewhere = std::make_shared<FakeProbe>("elsewhere");
    elsewhere->at = "db-2";
    bench.prober.set("elsewhere", {.probe = elsewhere, .interval = 10s});
    co_await bench.start();
    co_await bench.pass(60s);
    EXPECT_EQ(Slow::max_running, 2);
    EXPECT_GE(elsewhere->runs, 5);
    EXPECT_GT(bench.prober.counts().skipped, 0U);
    co_await bench.group.stop();
}

CO_TEST(Prober, ProbesFastInTransitionAndSeldomWhenLongDown) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    bench.prober.set("k", {.probe = probe,
                           .interval = 10s,
                           .thresholds = {.rise = 2, .fall = 3},
                           .fast_interval = 1s,
                           .down_interval = 60s,
                           .down_after = 2min});
    co_await bench.start();
    co_await bench.pass(30s);
    EXPECT_EQ(bench.prober.until_change("k"), 30s);
    probe->outcome = Outcome::refused;
    probe->runs = 0;
    co_await bench.pass(13s); // the first bad one comes by the usual interval, the other two at once after it
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up", "k down"));
    EXPECT_LE(probe->runs, 4);
    co_await bench.pass(3min);
    const auto before = probe->runs;
    co_await bench.pass(5min);
    EXPECT_NEAR(probe->runs - before, 5, 1);
    EXPECT_EQ(bench.prober.until_change("k"), 2min);
    probe->outcome = Outcome::ok;
    co_await bench.pass(63s);
    EXPECT_EQ(bench.changes.back(), "k up");
    co_await bench.group.stop();
}

CO_TEST(Prober, SharesTheShortestIntervalThatACheckNeeds) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    for (const auto fall : {1, 5})
        bench.prober.set("fall " + std::to_string(fall), {.probe = probe,
                                                          .interval = 10s,
                                                          .thresholds = {.rise = 1, .fall = fall},
                                                          .remembered = HealthState::up,
                                                          .fast_interval = 1s});
    EXPECT_EQ(bench.prober.counts().targets, 1U);
    co_await bench.start();
    co_await bench.pass(11s);
    probe->outcome = Outcome::refused;
    co_await bench.pass(16s); // one is down at once, the other still needs the fast interval
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("fall 1 down", "fall 5 down"));
    co_await bench.group.stop();
}

CO_TEST(Prober, RunsProbesWithAProgramOnTheEngine) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Bench bench(loop.get_executor());
    const auto port = acceptor.local_endpoint().port();
    for (const auto* key : {"a", "b"})
        bench.prober.set(
            key, {.probe = tcp_probe({.host = "127.0.0.1", .port = port}), .interval = 1s, .thresholds = {.rise = 1, .fall = 1}});
    EXPECT_EQ(bench.prober.counts().targets, 1U);
    co_await bench.start();
    const auto wait_for_changes = [](Bench& at, std::size_t many) -> asio::awaitable<void> {
        for (int i = 0; i < 2000 && at.changes.size() < many; ++i) { // the engine works in real time
            co_await at.pass(100ms);
            std::ignore = co_await real_clock().sleep(1ms);
        }
    };
    co_await wait_for_changes(bench, 2);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a up", "b up"));
    bench.changes.clear();
    acceptor.close();
    bench.prober.remove("b");
    co_await wait_for_changes(bench, 1);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a down"));
    bench.prober.clear();
    EXPECT_EQ(bench.prober.counts().targets, 0U);
    co_await bench.group.stop();
}

} // namespace orrery::health
