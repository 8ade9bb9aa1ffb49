#include "core/test_fixture.h"
#include "health/sources/balancer_state.h"
#include "health/sources/formula.h"
#include "health/sources/pushed_statuses.h"
#include "health/sources/status_source.h"

#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class FakeSource final : public StatusSource {
public:
    explicit FakeSource(asio::any_io_executor executor) : go_on(executor), executor_(std::move(executor)) {}
    std::string name() const override { return "fake"; }
    Task<std::map<std::string, Reading>> read(Context ctx, std::vector<std::string> ids) override {
        reads.push_back(ids);
        co_await asio::post(executor_, asio::use_awaitable);
        while (slow) {
            CO_TRY(std::ignore, co_await go_on.wait(ctx));
        }
        if (away) co_return Error{Code::unavailable, "no connection"};
        std::map<std::string, Reading> out;
        for (const auto& id : ids)
            if (id != "gone") out[id] = {.outcome = Outcome::ok, .text = "ONLINE", .share = 0.5};
        co_return out;
    }
    std::vector<std::vector<std::string>> reads;
    bool away = false, slow = false;
    Notifier go_on;

private:
    asio::any_io_executor executor_;
};

} // namespace

CO_TEST(Source, IsReadOnceForManyIds) {
    VirtualClock clock;
    auto source = std::make_shared<FakeSource>(loop.get_executor());
    auto reader = std::make_shared<SourceReader>(loop.get_executor(), source, clock);
    std::vector<std::string> seen;
    TaskGroup group(loop.get_executor());
    const auto one = [&reader](std::string id, std::vector<std::string>& into) -> asio::awaitable<void> {
        auto found = co_await reader->observe(Context::make("test").with_timeout(10s), std::move(id));
        into.push_back(std::string(name_of(found.outcome)) + " " + found.text);
    };
    for (const auto* id : {"a", "b", "c", "gone"}) group.spawn(one(id, seen));
    co_await group.join();
    EXPECT_EQ(seen.size(), 4U);
    EXPECT_THAT(seen, ::testing::Contains("local_error fake gone: the source does not know it"));
    EXPECT_THAT(seen, ::testing::Contains("ok fake b: ONLINE"));
    EXPECT_LE(source->reads.size(), 2U); // the first alone, the rest together
    EXPECT_EQ(reader->last("a")->share, 0.5);
    const auto calls = source->reads.size();
    co_await one("a", seen);
    EXPECT_EQ(source->reads.size(), calls); // fresh enough
    clock.advance(10s);
    source->away = true;
    co_await one("a", seen);
    EXPECT_EQ(seen.back(), "local_error fake a: no connection"); // an unavailable source is never down
    EXPECT_TRUE(reader->last("a").has_value());
    co_await reader->stop();
}

CO_TEST(Source, ASlowSourceIsReadOnceAndItsAnswerIsUsed) {
    VirtualClock clock;
    auto source = std::make_shared<FakeSource>(loop.get_executor());
    auto reader = std::make_shared<SourceReader>(loop.get_executor(), source, clock);
    const auto impatient = [] { return Context::make("test").with_timeout(1ms); };
    source->slow = true;
    for (int i = 0; i < 3; ++i) {
        const auto seen = co_await reader->observe(impatient(), "a");
        EXPECT_EQ(seen.text, "fake a: no answer in time");
        clock.advance(1s);
    }
    EXPECT_EQ(source->reads.size(), 1U) << "a slow source is not read again meanwhile";
    source->slow = false;
    source->go_on.notify_all();
    for (int i = 0; i < 50; ++i) co_await asio::post(loop.get_executor(), asio::use_awaitable);
    source->slow = true;
    clock.advance(4s);
    auto seen = co_await reader->observe(impatient(), "a");
    EXPECT_EQ(seen.outcome, Outcome::ok) << "the next probe uses a late result";
    seen = co_await reader->observe(impatient(), "a");
    EXPECT_EQ(seen.outcome, Outcome::local_error) << "once";
    clock.advance(11s);
    source->slow = false;
    source->go_on.notify_all();
    for (int i = 0; i < 50; ++i) co_await asio::post(loop.get_executor(), asio::use_awaitable);
    source->slow = true;
    clock.advance(11s);
    seen = co_await reader->observe(impatient(), "a");
    EXPECT_EQ(seen.outcome, Outcome::local_error) << "an old reading is no evidence";
    source->slow = false;
    source->go_on.notify_all();
    co_await reader->stop();
}

CO_TEST(Push, IsValidForItsTtl) {
    VirtualClock clock;
    PushedStatuses statuses(clock);
    const auto probe = push_probe(statuses, "batch");
    auto seen = co_await probe->run(Context::background());
    EXPECT_EQ(seen.outcome, Outcome::local_error);
    statuses.record("batch", Outcome::ok, "ran at noon", 60s);
    clock.advance(60s);
    seen = co_await probe->run(Context::background());
    EXPECT_EQ(seen.outcome, Outcome::ok);
    clock.advance(1s);
    seen = co_await probe->run(Context::background());
    EXPECT_EQ(seen.outcome, Outcome::failed);
    EXPECT_EQ(seen.text, "no status was pushed within 1m");
}

TEST(Calculated, FollowsFromItsParts) {
    using enum HealthState;
    struct Case {
        Formula formula;
        std::vector<HealthState> parts;
        Outcome outcome;
    };
    const std::vector<Case> cases{
        {{Formula::Kind::all}, {up, up}, Outcome::ok},
        {{Formula::Kind::all}, {up, down}, Outcome::failed},
        {{Formula::Kind::all}, {up, unknown}, Outcome::local_error},
        {{Formula::Kind::all}, {down, unknown}, Outcome::failed}, // whatever the unknown one is
        {{Formula::Kind::all}, {up, degraded}, Outcome::warning},
        {{Formula::Kind::any}, {down, up}, Outcome::ok},
        {{Formula::Kind::any}, {down, unknown}, Outcome::local_error},
        {{Formula::Kind::any}, {down, down}, Outcome::failed},
        {{Formula::Kind::at_least, 2}, {up, up, down, unknown}, Outcome::ok},
        {{Formula::Kind::at_least, 3}, {up, up, down, unknown}, Outcome::local_error},
        {{Formula::Kind::at_least, 3}, {up, degraded, degraded, down}, Outcome::warning},
        {{Formula::Kind::at_least, 4}, {up, up, down, unknown}, Outcome::failed},
        {{Formula::Kind::none}, {down, down}, Outcome::ok},
        {{Formula::Kind::none}, {down, degraded}, Outcome::failed},
        {{Formula::Kind::none}, {down, unknown}, Outcome::local_error},
        {{Formula::Kind::all}, {}, Outcome::local_error},
    };
    for (const auto& one : cases) {
        const auto seen = calculate(one.formula, one.parts);
        EXPECT_EQ(seen.outcome, one.outcome) << seen.text;
    }
}

TEST(Regional, BalancersAreJudgedByTheTable) {
    using Operating = BalancerState::Operating;
    const auto of = [](Operating operating, std::vector<Operating> members = {}, int need = 1) {
        BalancerState state{.operating = operating};
        for (const auto member : members) state.members.push_back({member, true});
        return judge(state, need);
    };
    EXPECT_EQ(of(Operating::online).outcome, Outcome::ok);
    EXPECT_EQ(of(Operating::degraded, {Operating::online, Operating::error}).outcome, Outcome::warning);
    EXPECT_EQ(of(Operating::degraded, {Operating::online, Operating::error}).share, 0.5);
    EXPECT_EQ(of(Operating::degraded, {Operating::online, Operating::error}, 2).outcome, Outcome::failed);
    EXPECT_EQ(of(Operating::degraded, {Operating::error}).outcome, Outcome::failed);
    EXPECT_EQ(of(Operating::error).outcome, Outcome::failed);
    EXPECT_EQ(of(Operating::offline).outcome, Outcome::failed);
    EXPECT_EQ(of(Operating::no_monitor).outcome, Outcome::local_error); // then the address itself is probed
    EXPECT_TRUE(of(Operating::online, {Operating::draining, Operating::draining}).drains);
    EXPECT_FALSE(of(Operating::online, {Operating::draining, Operating::online}).drains);
    EXPECT_TRUE(of(Operating::draining).drains);
    for (const auto& members : {std::vector{Operating::draining, Operating::draining}, {Operating::draining, Operating::error}}) {
        EXPECT_TRUE(of(Operating::degraded, members).drains);
        EXPECT_EQ(of(Operating::degraded, members).outcome, Outcome::warning) << "it drains, which is not down";
    }
    EXPECT_EQ(of(Operating::error, {Operating::draining}).outcome, Outcome::failed);
    EXPECT_EQ(judge({.operating = Operating::online, .exists = false}, 1).outcome, Outcome::failed);
    EXPECT_EQ(judge({.operating = Operating::online, .goes_away = true}, 1).outcome, Outcome::failed);
    EXPECT_EQ(judge({.operating = Operating::online, .changes = true}, 1).outcome, Outcome::ok); // it may still serve
    // A member behind a disabled listener does not serve.
    BalancerState behind{.operating = Operating::degraded};
    behind.members = {{Operating::online, false}, {Operating::error, true}};
    EXPECT_EQ(judge(behind, 1).outcome, Outcome::failed);
    EXPECT_EQ(operating_from("NO_MONITOR"), Operating::no_monitor);
    EXPECT_EQ(operating_from("SOMETHING_NEW"), Operating::no_monitor);
}

} // namespace orrery::health
