#include "core/text.h"
#include "gslb/decide/decision.h"
#include "gslb/decide/decision_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_load_balancer;
using testing::a_member;
using testing::a_pool;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::members_of;
using testing::noon;
using testing::view;

Snapshot a_snapshot(LoadBalancerSpec spec, std::vector<PoolInput> pools, LoadBalancerState state = {}, WallTime now = noon) {
    Snapshot out{.spec = std::move(spec), .state = std::move(state), .time = now};
    for (const auto& pool : pools) out.pools.push_back(view(pool, now));
    return out;
}

/// Each member's weight.
std::vector<std::uint32_t> weights_of(const Answer& answer) {
    std::vector<std::uint32_t> out;
    for (const auto& one : answer.candidates) out.push_back(one.weight);
    return out;
}

} // namespace

TEST(DecisionBuilder, APoolIsUsableWithEnoughHealthyWeight) {
    struct Row {
        int total, needed;
    };
    for (const auto& row : std::vector<Row>{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {6, 3}, {7, 4}, {8, 4}})
        for (int healthy = 0; healthy <= row.total; ++healthy)
            EXPECT_EQ(is_usable(*view(a_pool("p", 1, row.total, healthy))).usable, healthy >= row.needed)
                << healthy << " of " << row.total;
}

TEST(DecisionBuilder, HealthyWeightCountsAndNotTheNumberOfMembers) {
    auto pool = a_pool("p", 1, 3, 1);
    pool.members[0].spec.weight = 10;
    EXPECT_TRUE(is_usable(*view(pool)).usable); // 10 of 12
    pool.members[1].spec.weight = 11;
    EXPECT_FALSE(is_usable(*view(pool)).usable); // 10 of 22, needs 11
    EXPECT_EQ(is_usable(*view(pool)).message, "10 of 22 by weight healthy, needs 11");
}

TEST(DecisionBuilder, TheHealthyMinimumCanBeANumber) {
    auto pool = a_pool("p", 1, 4, 2);
    pool.spec.min_healthy = {.share = false, .value = 2};
    EXPECT_TRUE(is_usable(*view(pool)).usable);
    pool.spec.min_healthy.value = 3;
    EXPECT_FALSE(is_usable(*view(pool)).usable);
    pool.spec.min_healthy = {.share = true, .value = 0};
    EXPECT_TRUE(is_usable(*view(pool)).usable);
    EXPECT_FALSE(is_usable(*view(a_pool("p", 1, 4, 0))).usable);
    auto none = a_pool("p", 1, 2, 0);
    none.spec.min_healthy = {.share = true, .value = 0};
    EXPECT_FALSE(is_usable(*view(none)).usable) << "an empty pool is never enough";
    EXPECT_EQ(is_usable(*view(none)).message, "0 of 2 healthy, needs 1");
}

TEST(DecisionBuilder, DrainedMembersDoNotCountAsUnhealthy) {
    auto pool = a_pool("p", 1, 4, 1);
    EXPECT_FALSE(is_usable(*view(pool)).usable);
    for (const auto at : {1U, 2U}) pool.members[at].spec.override_ = {.action = Override::Action::drain};
    EXPECT_TRUE(is_usable(*view(pool)).usable) << "one of two that count";
    pool.spec.override_ = {.action = Override::Action::drain};
    EXPECT_EQ(is_usable(*view(pool)).message, "all 4 are drained");
}

TEST(DecisionBuilder, MembersOfWeightZeroServeWhenNoOtherMemberCan) {
    auto pool = a_pool("p", 1, 3, 3);
    pool.members[2].spec.weight = 0;
    auto decision = decide(a_snapshot(a_load_balancer({"p"}), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-1", "p-2"));
    for (const auto at : {0U, 1U}) pool.members[at].health.state = HealthState::down;
    decision = decide(a_snapshot(a_load_balancer({"p"}), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-3"));
    EXPECT_EQ(decision.condition, Condition::normal);
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(1));
}

TEST(DecisionBuilder, FailoverTakesTheFirstUsablePoolAndPassiveOnesLast) {
    auto spec = a_load_balancer({"cold", "eu", "us"});
    spec.pools[0].passive = true;
    auto decision = decide(a_snapshot(spec, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 2), a_pool("us", 2, 2, 2)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_EQ(decision.condition, Condition::normal);
    decision = decide(a_snapshot(spec, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 2)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_EQ(decision.condition, Condition::failover);
    EXPECT_THAT(decision.messages, Contains("pool eu is not usable: 0 of 2 healthy, needs 1"));
    EXPECT_THAT(decision.messages, Contains("us answers"));
    decision = decide(a_snapshot(spec, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 0)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("cold"));
}

TEST(DecisionBuilder, SpreadDividesByPoolsAndThenByMembers) {
    auto spec = a_load_balancer({"eu", "us", "cold"}, Steering::spread, Answers::weighted);
    spec.pools[0].weight = 3;
    spec.pools[2].passive = true;
    auto eu = a_pool("eu", 1, 2, 2);
    eu.members[1].spec.weight = 3;
    auto decision = decide(a_snapshot(spec, {eu, a_pool("us", 2, 5, 5), a_pool("cold", 9, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu", "us"));
    std::map<std::string, double> share;
    double sum = 0;
    for (const auto& one : decision.answers[0].candidates) {
        share[one.pool] += one.weight;
        sum += one.weight;
    }
    EXPECT_NEAR(share["eu"] / sum, 0.75, 1e-5);
    EXPECT_NEAR(decision.answers[0].candidates[1].weight / sum, 0.75 * 0.75, 1e-5);
    // One pool lost: the other takes all, and it shows.
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 2, 0), a_pool("us", 2, 5, 5), a_pool("cold", 9, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_EQ(decision.condition, Condition::failover);
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 2, 0), a_pool("us", 2, 5, 0), a_pool("cold", 9, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("cold"));
}

TEST(DecisionBuilder, APoolOfWeightZeroServesWhenNoOtherPoolIsUsable) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::spread, Answers::weighted);
    spec.pools[1].weight = 0;
    auto decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 0), a_pool("us", 2, 1, 1)}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("us-1"));
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(1));
}

TEST(DecisionBuilder, LoadReducesTheWeightAndFullLoadRemovesTheMember) {
    auto pool = a_pool("p", 1, 3, 3);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 100, .step = 100, .interval = 1s};
    pool.members[0].health.load = 75;
    pool.members[1].health.load = 100;
    const auto decision = decide(a_snapshot(a_load_balancer({"p"}, Steering::failover, Answers::weighted), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-1", "p-3"));
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(max_weight / 2, max_weight));
    pool.members[0].health.load = pool.members[2].health.load = 100;
    EXPECT_EQ(decide(a_snapshot(a_load_balancer({"p"}), {pool})).answers[0].candidates.size(), 3U) << "all are busy: all answer";
}

TEST(DecisionBuilder, AllDownIsAnsweredAsTheLoadBalancerConfigures) {
    const std::vector<PoolInput> down{a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 0)};
    auto spec = a_load_balancer({"eu", "us"});
    auto decision = decide(a_snapshot(spec, down));
    EXPECT_EQ(decision.condition, Condition::panic);
    EXPECT_TRUE(decision.answers[0].panic);
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(decision.answers[0].ttl, spec.ttl_min);
    EXPECT_THAT(decision.messages, Contains(HasSubstr("PANIC: no pool is usable; all members of eu answer")));
    for (const auto what : {AllDown::nodata, AllDown::servfail, AllDown::refuse}) {
        spec.all_down = what;
        decision = decide(a_snapshot(spec, down));
        EXPECT_EQ(decision.condition, Condition::empty);
        EXPECT_THAT(decision.answers[0].candidates, IsEmpty());
        EXPECT_EQ(decision.answers[0].empty, what);
    }
    spec.all_down = AllDown::fallback;
    ASSERT_TRUE(spec.fallback.add("192.0.2.99").ok());
    decision = decide(a_snapshot(spec, down));
    EXPECT_TRUE(decision.answers[0].panic);
    EXPECT_THAT(decision.answers[0].candidates[0].addresses.texts(), ElementsAre("192.0.2.99"));
    spec.fallback = {};
    spec.fallback_alias = "sorry.example";
    EXPECT_EQ(decide(a_snapshot(spec, down)).answers[0].alias, "sorry.example");
}

TEST(DecisionBuilder, PanicExcludesDisabledMembersUnlessNoOtherMemberExists) {
    auto pool = a_pool("eu", 1, 3, 0);
    pool.members[0].spec.override_ = {.action = Override::Action::down};
    pool.members[1].spec.override_ = {.action = Override::Action::drain};
    EXPECT_THAT(members_of(decide(a_snapshot(a_load_balancer({"eu"}), {pool})).answers[0]), ElementsAre("eu-3"));
    pool.members[2].spec.override_ = {.action = Override::Action::drain};
    EXPECT_EQ(decide(a_snapshot(a_load_balancer({"eu"}), {pool})).answers[0].candidates.size(), 3U);
    EXPECT_EQ(decide(a_snapshot(a_load_balancer({"eu"}), {})).condition, Condition::empty);
}

TEST(DecisionBuilder, TheLastGoodAnswerIsKept) {
    auto spec = a_load_balancer({"eu"});
    spec.all_down = AllDown::last_good;
    auto good = decide(a_snapshot(spec, {a_pool("eu", 1, 3, 2)}));
    EXPECT_THAT(members_of(good.answers[0]), ElementsAre("eu-1", "eu-2"));
    const auto state = LoadBalancerState::from(good.state.to_json());
    EXPECT_EQ(state, good.state);
    auto down = decide(a_snapshot(spec, {a_pool("eu", 1, 3, 0)}, state));
    EXPECT_THAT(members_of(down.answers[0]), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(down.condition, Condition::panic);
    down = decide(a_snapshot(spec, {a_pool("eu", 1, 3, 0)}, down.state));
    EXPECT_THAT(members_of(down.answers[0]), ElementsAre("eu-1", "eu-2")) << "and is still stored";
    EXPECT_EQ(decide(a_snapshot(spec, {a_pool("eu", 1, 3, 0)})).answers[0].candidates.size(), 3U) << "nothing remembered: all";
}

TEST(DecisionBuilder, TheLastGoodAnswerExcludesRemovedAndDisabledMembersAndFollowsAddresses) {
    auto spec = a_load_balancer({"eu"});
    spec.all_down = AllDown::last_good;
    auto eu = a_pool("eu", 1, 4, 4);
    const auto good = decide(a_snapshot(spec, {eu}));
    EXPECT_EQ(good.answers[0].candidates.size(), 4U);
    for (auto& member : eu.members) member.health.state = HealthState::down;
    eu.members[1].spec.override_ = {.action = Override::Action::down};
    eu.members[2].addresses = {};
    std::ignore = eu.members[2].addresses.add("10.9.9.9");
    eu.members.erase(eu.members.begin());
    const auto bad = decide(a_snapshot(spec, {eu}, good.state));
    EXPECT_EQ(bad.condition, Condition::panic);
    EXPECT_THAT(members_of(bad.answers[0]), ElementsAre("eu-3", "eu-4"));
    EXPECT_THAT(bad.answers[0].candidates[0].addresses.texts(), ElementsAre("10.9.9.9"));
    eu.members.clear();
    EXPECT_EQ(decide(a_snapshot(spec, {eu}, good.state)).condition, Condition::empty);
}

TEST(DecisionBuilder, TheRemainingHealthyMembersCanAnswerWhenNoPoolIsUsable) {
    auto spec = a_load_balancer({"eu"});
    spec.all_down = AllDown::healthy;
    const auto some = decide(a_snapshot(spec, {a_pool("eu", 1, 10, 2)}));
    EXPECT_EQ(some.condition, Condition::panic);
    EXPECT_THAT(members_of(some.answers[0]), ElementsAre("eu-1", "eu-2"));
    EXPECT_THAT(some.messages, Contains(HasSubstr("the healthy members of eu that are left answer")));
    EXPECT_EQ(members_of(decide(a_snapshot(spec, {a_pool("eu", 1, 3, 0)})).answers[0]).size(), 3U) << "all, where none is left";
}

TEST(DecisionBuilder, TheDefaultGuardDoesNotKeepClientsFromAPoolThatIsUsable) {
    auto spec = a_load_balancer({"eu", "us"});
    auto eu = a_pool("eu", 1, 4, 0);
    eu.spec.guard = PoolSpec().guard;
    auto decision = decide(a_snapshot(spec, {eu, a_pool("us", 2, 2, 2)}));
    EXPECT_EQ(decision.condition, Condition::failover);
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("us-1", "us-2"));
    decision = decide(a_snapshot(spec, {eu, a_pool("us", 2, 2, 0)}));
    EXPECT_EQ(decision.condition, Condition::normal) << "the members that the guard keeps in answers, and not all";
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("eu-3", "eu-4"));
    eu.spec.guard.given = true;
    EXPECT_THAT(members_of(decide(a_snapshot(spec, {eu, a_pool("us", 2, 2, 2)})).answers[0]), ElementsAre("eu-3", "eu-4"))
        << "a guard that the pool names holds all of it";
}

TEST(DecisionBuilder, OverloadedMembersShareEquallyAndTheDecisionReportsIt) {
    auto eu = a_pool("eu", 1, 2, 2);
    eu.spec.load = PoolSpec::Load{.low = 50, .high = 90, .step = 100};
    for (auto& member : eu.members) member.health.load = 99;
    const auto decision = decide(a_snapshot(a_load_balancer({"eu"}), {eu}));
    EXPECT_THAT(decision.messages, Contains("the load of every healthy member of eu leaves no weight: they share equally"));
    EXPECT_THAT(decision.messages, Contains("eu-1 in eu: load 99 (from 50 to 90) leaves it 0 % of its weight"));
}

TEST(DecisionBuilder, DelayedFailbackWaitsUntilThePoolHasBeenUsableForAWhile) {
    auto spec = a_load_balancer({"eu", "us"});
    spec.failback = Failback::delayed;
    spec.failback_after = 60s;
    const auto at = [&](int eu, int us, const LoadBalancerState& state, Duration time) {
        return decide(a_snapshot(spec, {a_pool("eu", 1, 1, eu), a_pool("us", 2, 1, us)}, state,
                                 noon + std::chrono::duration_cast<std::chrono::milliseconds>(time)));
    };
    auto decision = at(1, 1, {}, 0s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    decision = at(0, 1, decision.state, 10s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    decision = at(1, 1, decision.state, 20s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    ASSERT_EQ(decision.withheld.size(), 1U);
    EXPECT_EQ(decision.withheld[0].cause, Cause::failback);
    EXPECT_EQ(decision.withheld[0].until, noon + 80s);
    EXPECT_EQ(decision.next_evaluation, noon + 80s);
    // A relapse restarts the wait.
    decision = at(0, 1, decision.state, 50s);
    decision = at(1, 1, LoadBalancerState::from(decision.state.to_json()), 70s);
    EXPECT_EQ(decision.next_evaluation, noon + 130s);
    // The other fails, too: a pool that returns too early is better than none.
    EXPECT_THAT(at(1, 0, decision.state, 75s).answers[0].pools, ElementsAre("eu"));
    decision = at(1, 1, decision.state, 130s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    EXPECT_THAT(decision.state.left, IsEmpty());
}

TEST(DecisionBuilder, ManualFailbackWaitsForAnApprovalThatIsNewerThanTheFailure) {
    auto spec = a_load_balancer({"eu", "us"});
    spec.failback = Failback::manual;
    spec.failback_approved = noon - 1h;
    auto decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 0), a_pool("us", 2, 1, 1)}));
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}, decision.state, noon + 1h));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_THAT(decision.withheld[0].message, HasSubstr("clients return after an approval"));
    EXPECT_EQ(decision.next_evaluation, std::nullopt);
    spec.failback_approved = noon + 2h;
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}, decision.state, noon + 2h));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
}

TEST(DecisionBuilder, ALoadBalancerWithoutMembersHasNotFailedOver) {
    Snapshot snapshot{
        .spec = a_load_balancer({"eu", "us"}), .pools = {view(a_pool("eu", 1, 0, 0)), view(a_pool("us", 2, 0, 0))}, .time = noon};
    snapshot.spec.failback = Failback::manual;
    const auto then = [&](int eu, int us) {
        snapshot.state = decide(snapshot).state;
        snapshot.time += 1s;
        snapshot.pools = {view(a_pool("eu", 1, 2, eu)), view(a_pool("us", 2, 2, us))};
        return decide(snapshot).answers.front().pools;
    };
    EXPECT_EQ(then(2, 2), std::vector<std::string>{"eu"});
    EXPECT_EQ(then(0, 2), std::vector<std::string>{"us"});
    EXPECT_EQ(then(2, 2), std::vector<std::string>{"us"}) << "no user has approved the failback";
}

TEST(DecisionBuilder, ClientsOfATopologyHaveTheirOwnPoolsAndThenTheOthers) {
    auto spec = a_load_balancer({"eu", "us", "lab"}, Steering::topology);
    spec.classes = {{.label = "america", .pools = {"us"}}, {.label = "lab", .pools = {"lab"}, .strict = true}};
    auto decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1), a_pool("lab", 3, 1, 1)}));
    ASSERT_EQ(decision.answers.size(), 3U);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us"));
    EXPECT_EQ(decision.answers[1].clients, "america");
    EXPECT_THAT(decision.answers[2].pools, ElementsAre("lab"));
    spec.all_down = AllDown::nodata;
    decision = decide(a_snapshot(spec, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 0), a_pool("lab", 3, 1, 0)}));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[2].candidates, IsEmpty());
    EXPECT_EQ(decision.condition, Condition::empty) << "the worst over the classes";
}

TEST(DecisionBuilder, LatencyDecidesUnlessTheDifferenceIsWithinTheDeadBand) {
    auto spec = a_load_balancer({"eu", "us", "cold"}, Steering::latency);
    spec.pools[2].passive = true;
    spec.classes = {{.label = "west", .vantage = "dc2"}};
    const auto at = [&](double eu, double us, const LoadBalancerState& state) {
        auto first = a_pool("eu", 1, 1, 1), second = a_pool("us", 2, 1, 1), third = a_pool("cold", 9, 1, 1);
        if (eu > 0) first.members[0].health.rtt["dc2"] = eu;
        second.members[0].health.rtt["dc2"] = us;
        third.members[0].health.rtt["dc2"] = 1;
        return decide(a_snapshot(spec, {first, second, third}, state));
    };
    auto decision = at(80, 30, {});
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us"));
    decision = at(25, 30, decision.state);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "5 ms are less than 10";
    EXPECT_EQ(decision.withheld.at(0).cause, Cause::dead_band);
    decision = at(90, 105, at(200, 105, {}).state);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "15 ms are less than a fifth of 105";
    decision = at(10, 105, decision.state);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    decision = at(0, 500, decision.state);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "what is not measured cannot lead";
}

TEST(DecisionBuilder, TheTtlLastsUntilTheNextPossibleChange) {
    auto spec = a_load_balancer({"eu", "us"});
    spec.ttl_max = 60;
    spec.ttl_min = 5;
    auto eu = a_pool("eu", 1, 2, 2);
    EXPECT_EQ(decide(a_snapshot(spec, {eu})).answers[0].ttl, 60U) << "without a monitor nothing changes";
    eu.members[0].health.until_change = 30s;
    eu.members[1].health.until_change = 19500ms;
    EXPECT_EQ(decide(a_snapshot(spec, {eu})).answers[0].ttl, 20U);
    eu.members[1].health.until_change = 1s;
    EXPECT_EQ(decide(a_snapshot(spec, {eu})).answers[0].ttl, 5U);
    eu.members[1].spec.override_ = {.action = Override::Action::drain};
    EXPECT_EQ(decide(a_snapshot(spec, {eu})).answers[0].ttl, 30U) << "one that is out by hand changes nothing";
    eu.members[0].health.until_change = 10min;
    EXPECT_EQ(decide(a_snapshot(spec, {eu})).answers[0].ttl, 60U);
    // A pool that is tried first may come back: its time counts too.
    auto down = a_pool("eu", 1, 1, 0);
    down.members[0].health.until_change = 12s;
    auto us = a_pool("us", 2, 1, 1);
    us.members[0].health.until_change = 40s;
    EXPECT_EQ(decide(a_snapshot(spec, {down, us})).answers[0].ttl, 12U);
}

TEST(DecisionBuilder, BothFamiliesComeFromTheSameMembers) {
    auto pool = a_pool("p", 1, 3, 3);
    ASSERT_TRUE(pool.members[0].addresses.add("2001:db8::1").ok());
    pool.members[1].addresses = {};
    ASSERT_TRUE(pool.members[1].addresses.add("2001:db8::2").ok());
    const auto decision = decide(a_snapshot(a_load_balancer({"p"}), {pool}));
    EXPECT_THAT(decision.answers[0].candidates[0].addresses.texts(), ElementsAre("10.1.0.1", "2001:db8::1"));
    EXPECT_THAT(decision.answers[0].candidates[1].addresses.texts(), ElementsAre("2001:db8::2"));
    EXPECT_THAT(decision.answers[0].candidates[2].addresses.texts(), ElementsAre("10.1.0.3"));
}

TEST(DecisionBuilder, ASnapshotSurvivesARoundTripAndGivesTheSameDecision) {
    auto spec = a_load_balancer({"eu", "us"}, Steering::latency, Answers::sticky);
    spec.pools[1].passive = true;
    spec.max_answers = 2;
    spec.classes = {{.label = "west", .vantage = "dc2"}};
    spec.failback = Failback::delayed;
    spec.failback_after = 90s;
    spec.failback_approved = noon - 3h;
    spec.all_down = AllDown::fallback;
    spec.fallback_alias = "sorry.example";
    spec.demand = 12.5;
    LoadBalancerState state;
    state.left["eu"] = {.since = noon - 1min, .back = noon - 30s};
    state.leading["west"] = "us";
    state.last_good["west"] = {{.member = "a", .pool = "eu", .weight = 3, .site = "s", .rack = "r"}};
    const auto snapshot = a_snapshot(spec, {a_pool("eu", 1, 3, 2), a_pool("us", 2, 2, 2)}, state);
    const auto text = to_json_text(snapshot.to_json());
    const auto again = Snapshot::from(parse_json(text)->as_object());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->spec, snapshot.spec);
    EXPECT_EQ(again->state, snapshot.state);
    EXPECT_EQ(to_json_text(again->to_json()), text);
    EXPECT_EQ(to_json_text(decide(*again).to_json()), to_json_text(decide(snapshot).to_json()));
    EXPECT_FALSE(Snapshot::from({}).ok());
}

} // namespace orrery::gslb
