#include "core/testing.h"
#include "health/fake_probe.h"
#include "health/prober.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

asio::awaitable<void> settle() {
    for (int i = 0; i < 40; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

struct Bench {
    explicit Bench(asio::any_io_executor executor, Prober::Options options = {.at_once = 100, .jitter_percent = 0})
        : group(executor),
          prober(executor, clock, options,
                 [this](const std::string& key, const Verdict& verdict, const Observation&, bool changed) {
                     if (changed) changes.push_back(key + " " + std::string(name_of(verdict.standing())));
                     at[key].push_back(clock.wall());
                 }) {}
    asio::awaitable<void> start() {
        group.spawn(prober.run(Context::make("test")));
        co_await settle();
    }
    /// Time passes in steps of 100 ms.
    asio::awaitable<void> pass(Duration time) {
        for (Duration gone{}; gone < time; gone += 100ms) {
            clock.advance(100ms);
            co_await settle();
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
    asio::awaitable<Observation> look(Context) const override {
        ++looking;
        most = std::max(most, looking);
        std::ignore = co_await clock_.sleep(25s);
        --looking;
        co_return Observation{.outcome = Outcome::ok};
    }
    static inline int looking = 0, most = 0;

private:
    Clock& clock_;
    std::string name_, host_;
};

} // namespace

CO_TEST(Prober, LooksOncePerIntervalAndTellsOfChanges) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    bench.prober.set("k", {.probe = probe, .interval = 10s, .thresholds = {.rise = 1, .fall = 2}});
    co_await bench.start();
    co_await bench.pass(1s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up")); // the first comes soon
    co_await bench.pass(100s);
    EXPECT_NEAR(probe->looks, 11, 1);
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
    const auto looks = probe->looks;
    co_await bench.pass(30s);
    EXPECT_EQ(probe->looks, looks);
    co_await bench.group.stop();
}

CO_TEST(Prober, KeepsItsPhaseOverARestart) {
    std::vector<std::int64_t> phases;
    for (int run = 0; run < 2; ++run) {
        Bench bench(loop.get_executor());
        bench.clock.advance(run == 0 ? 0s : 12345ms);
        bench.prober.set("k", {.probe = std::make_shared<FakeProbe>("the same"), .interval = 10s, .remembered = Standing::up});
        co_await bench.start();
        co_await bench.pass(40s);
        CO_ASSERT(bench.at["k"].size() >= 3);
        for (const auto when : bench.at["k"]) phases.push_back(when.time_since_epoch().count() / 100 % 100);
        EXPECT_THAT(bench.changes, ::testing::IsEmpty());
        co_await bench.group.stop();
    }
    for (const auto phase : phases) EXPECT_NEAR(static_cast<double>(phase), static_cast<double>(phases.front()), 1.0);
}

CO_TEST(Prober, LooksOnceForAllWhoWantTheSame) {
    Bench bench(loop.get_executor());
    auto one = std::make_shared<FakeProbe>("same"), two = std::make_shared<FakeProbe>("same"),
         other = std::make_shared<FakeProbe>("other");
    bench.prober.set("a", {.probe = one, .interval = 5s, .thresholds = {.rise = 1, .fall = 1}});
    bench.prober.set("b", {.probe = two, .interval = 5s, .thresholds = {.rise = 1, .fall = 3}});
    bench.prober.set("c", {.probe = other, .interval = 5s});
    EXPECT_EQ(bench.prober.counts().targets, 2U);
    co_await bench.start();
    co_await bench.pass(6s);
    EXPECT_GE(one->looks, 1);
    EXPECT_EQ(two->looks, 0);
    one->outcome = Outcome::refused;
    bench.changes.clear();
    co_await bench.pass(6s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a down")); // each has thresholds of its own
    bench.prober.remove("a");
    co_await bench.pass(15s);
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("a down", "b down"));
    co_await bench.group.stop();
}

CO_TEST(Prober, LeavesOutWhatItHasNoPlaceFor) {
    Bench bench(loop.get_executor(), {.at_once = 3, .jitter_percent = 5});
    for (int i = 0; i < 10; ++i)
        bench.prober.set(std::to_string(i), {.probe = std::make_shared<Slow>(bench.clock, std::to_string(i)), .interval = 10s});
    co_await bench.start();
    co_await bench.pass(60s);
    EXPECT_EQ(Slow::most, 3);
    EXPECT_GT(bench.prober.counts().late, 10U);
    co_await bench.group.stop();
}

CO_TEST(Prober, LooksAtOneHostOnlySoOftenAtATime) {
    Bench bench(loop.get_executor(), {.at_once = 100, .at_once_per_host = 2, .jitter_percent = 0});
    Slow::looking = Slow::most = 0;
    for (int i = 0; i < 10; ++i)
        bench.prober.set(std::to_string(i),
                         {.probe = std::make_shared<Slow>(bench.clock, std::to_string(i), "db-1"), .interval = 10s});
    auto elsewhere = std::make_shared<FakeProbe>("elsewhere");
    elsewhere->at = "db-2";
    bench.prober.set("elsewhere", {.probe = elsewhere, .interval = 10s});
    co_await bench.start();
    co_await bench.pass(60s);
    EXPECT_EQ(Slow::most, 2);
    EXPECT_GE(elsewhere->looks, 5);
    EXPECT_GT(bench.prober.counts().late, 0U);
    co_await bench.group.stop();
}

CO_TEST(Prober, LooksCloselyInTransitionAndSeldomWhenLongDown) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    bench.prober.set(
        "k", {.probe = probe, .interval = 10s, .thresholds = {.rise = 2, .fall = 3}, .fast = 1s, .slow = 60s, .slow_after = 2min});
    co_await bench.start();
    co_await bench.pass(30s);
    EXPECT_EQ(bench.prober.until_change("k"), 30s);
    probe->outcome = Outcome::refused;
    probe->looks = 0;
    co_await bench.pass(13s); // the first bad one comes by the usual interval, the other two at once after it
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("k up", "k down"));
    EXPECT_LE(probe->looks, 4);
    co_await bench.pass(3min);
    const auto before = probe->looks;
    co_await bench.pass(5min);
    EXPECT_NEAR(probe->looks - before, 5, 1);
    EXPECT_EQ(bench.prober.until_change("k"), 2min);
    probe->outcome = Outcome::ok;
    co_await bench.pass(63s);
    EXPECT_EQ(bench.changes.back(), "k up");
    co_await bench.group.stop();
}

CO_TEST(Prober, SharesThePaceOfTheOneThatNeedsItMost) {
    Bench bench(loop.get_executor());
    auto probe = std::make_shared<FakeProbe>("a");
    for (const auto fall : {1, 5})
        bench.prober.set(
            "fall " + std::to_string(fall),
            {.probe = probe, .interval = 10s, .thresholds = {.rise = 1, .fall = fall}, .remembered = Standing::up, .fast = 1s});
    EXPECT_EQ(bench.prober.counts().targets, 1U);
    co_await bench.start();
    co_await bench.pass(11s);
    probe->outcome = Outcome::refused;
    co_await bench.pass(16s); // one is down at once, the other still asks for close looks
    EXPECT_THAT(bench.changes, ::testing::ElementsAre("fall 1 down", "fall 5 down"));
    co_await bench.group.stop();
}

CO_TEST(Prober, GivesTheEngineWhatHasAPlan) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Bench bench(loop.get_executor());
    const auto port = acceptor.local_endpoint().port();
    for (const auto* key : {"a", "b"})
        bench.prober.set(
            key, {.probe = tcp_probe({.host = "127.0.0.1", .port = port}), .interval = 1s, .thresholds = {.rise = 1, .fall = 1}});
    EXPECT_EQ(bench.prober.counts().targets, 1U);
    co_await bench.start();
    const auto wait_for_changes = [](Bench& at, std::size_t many) -> asio::awaitable<void> {
        for (int i = 0; i < 2000 && at.changes.size() < many; ++i) { // the engine looks in real time
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
