#include "core/testing.h"
#include "health/fake_probe.h"
#include "health/prober.h"

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
    explicit Slow(Clock& clock, std::string name) : clock_(clock), name_(std::move(name)) {}
    std::string identity() const override { return name_; }
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
    std::string name_;
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

} // namespace orrery::health
