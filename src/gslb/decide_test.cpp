#include "core/text.h"
#include "gslb/decide.h"
#include "gslb/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_member;
using testing::a_pool;
using testing::a_rule;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::members_of;
using testing::noon;
using testing::view;

Snapshot a_snapshot(Rule rule, std::vector<PoolInput> pools, Memory memory = {}, WallTime now = noon) {
    Snapshot out{.rule = std::move(rule), .memory = std::move(memory), .time = now};
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

TEST(Deciding, APoolIsUsableWithEnoughHealthyWeight) {
    struct Row {
        int total, needed;
    };
    for (const auto& row : std::vector<Row>{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {6, 3}, {7, 4}, {8, 4}})
        for (int healthy = 0; healthy <= row.total; ++healthy)
            EXPECT_EQ(is_usable(*view(a_pool("p", 1, row.total, healthy))).usable, healthy >= row.needed)
                << healthy << " of " << row.total;
}

TEST(Deciding, HealthyWeightCountsAndNotHowMany) {
    auto pool = a_pool("p", 1, 3, 1);
    pool.members[0].spec.weight = 10;
    EXPECT_TRUE(is_usable(*view(pool)).usable); // 10 of 12
    pool.members[1].spec.weight = 11;
    EXPECT_FALSE(is_usable(*view(pool)).usable); // 10 of 22, needs 11
    EXPECT_EQ(is_usable(*view(pool)).words, "10 of 22 by weight healthy, needs 11");
}

TEST(Deciding, HowManyMustBeHealthyMayBeANumber) {
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
    EXPECT_FALSE(is_usable(*view(none)).usable) << "nobody is never enough";
}

TEST(Deciding, DrainedMembersAreNotMissed) {
    auto pool = a_pool("p", 1, 4, 1);
    EXPECT_FALSE(is_usable(*view(pool)).usable);
    for (const auto at : {1U, 2U}) pool.members[at].spec.override_ = {.what = Override::What::drain};
    EXPECT_TRUE(is_usable(*view(pool)).usable) << "one of two that count";
    pool.spec.override_ = {.what = Override::What::drain};
    EXPECT_EQ(is_usable(*view(pool)).words, "all 4 are drained");
}

TEST(Deciding, WeightZeroStandsInWhenNobodyElseCan) {
    auto pool = a_pool("p", 1, 3, 3);
    pool.members[2].spec.weight = 0;
    auto decision = decide(a_snapshot(a_rule({"p"}), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-1", "p-2"));
    for (const auto at : {0U, 1U}) pool.members[at].signal.standing = Health::down;
    decision = decide(a_snapshot(a_rule({"p"}), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-3"));
    EXPECT_EQ(decision.condition, Condition::normal);
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(1));
}

TEST(Deciding, FailoverTakesTheFirstUsablePoolAndPassiveOnesLast) {
    auto rule = a_rule({"cold", "eu", "us"});
    rule.pools[0].passive = true;
    auto decision = decide(a_snapshot(rule, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 2), a_pool("us", 2, 2, 2)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_EQ(decision.condition, Condition::normal);
    decision = decide(a_snapshot(rule, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 2)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_EQ(decision.condition, Condition::failover);
    EXPECT_THAT(decision.because, Contains("pool eu is not usable: 0 of 2 healthy, needs 1"));
    EXPECT_THAT(decision.because, Contains("us answers"));
    decision = decide(a_snapshot(rule, {a_pool("cold", 9, 1, 1), a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 0)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("cold"));
}

TEST(Deciding, SpreadDividesByPoolsAndThenByMembers) {
    auto rule = a_rule({"eu", "us", "cold"}, Steering::spread, Answers::weighted);
    rule.pools[0].weight = 3;
    rule.pools[2].passive = true;
    auto eu = a_pool("eu", 1, 2, 2);
    eu.members[1].spec.weight = 3;
    auto decision = decide(a_snapshot(rule, {eu, a_pool("us", 2, 5, 5), a_pool("cold", 9, 1, 1)}));
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
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 2, 0), a_pool("us", 2, 5, 5), a_pool("cold", 9, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_EQ(decision.condition, Condition::failover);
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 2, 0), a_pool("us", 2, 5, 0), a_pool("cold", 9, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("cold"));
}

TEST(Deciding, APoolOfWeightZeroIsForWhenTheOthersAreNot) {
    auto rule = a_rule({"eu", "us"}, Steering::spread, Answers::weighted);
    rule.pools[1].weight = 0;
    auto decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 0), a_pool("us", 2, 1, 1)}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("us-1"));
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(1));
}

TEST(Deciding, LoadTakesWeightAndAllOfItTakesTheMember) {
    auto pool = a_pool("p", 1, 3, 3);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 100, .step = 100, .interval = 1s};
    pool.members[0].signal.load = 75;
    pool.members[1].signal.load = 100;
    const auto decision = decide(a_snapshot(a_rule({"p"}, Steering::failover, Answers::weighted), {pool}));
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("p-1", "p-3"));
    EXPECT_THAT(weights_of(decision.answers[0]), ElementsAre(greatest_weight / 2, greatest_weight));
    pool.members[0].signal.load = pool.members[2].signal.load = 100;
    EXPECT_EQ(decide(a_snapshot(a_rule({"p"}), {pool})).answers[0].candidates.size(), 3U) << "all are busy: all answer";
}

TEST(Deciding, AllDownIsAnsweredAsTheRuleSays) {
    const std::vector<PoolInput> down{a_pool("eu", 1, 2, 0), a_pool("us", 2, 2, 0)};
    auto rule = a_rule({"eu", "us"});
    auto decision = decide(a_snapshot(rule, down));
    EXPECT_EQ(decision.condition, Condition::panic);
    EXPECT_TRUE(decision.answers[0].panic);
    EXPECT_THAT(members_of(decision.answers[0]), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(decision.answers[0].ttl, rule.ttl_min);
    EXPECT_THAT(decision.because, Contains(HasSubstr("PANIC: no pool is usable; all members of eu answer")));
    for (const auto what : {AllDown::nodata, AllDown::servfail, AllDown::refuse}) {
        rule.all_down = what;
        decision = decide(a_snapshot(rule, down));
        EXPECT_EQ(decision.condition, Condition::empty);
        EXPECT_THAT(decision.answers[0].candidates, IsEmpty());
        EXPECT_EQ(decision.answers[0].empty, what);
    }
    rule.all_down = AllDown::fallback;
    ASSERT_TRUE(rule.fallback.add("192.0.2.99").ok());
    decision = decide(a_snapshot(rule, down));
    EXPECT_TRUE(decision.answers[0].panic);
    EXPECT_THAT(decision.answers[0].candidates[0].addresses.texts(), ElementsAre("192.0.2.99"));
    rule.fallback = {};
    rule.fallback_alias = "sorry.example";
    EXPECT_EQ(decide(a_snapshot(rule, down)).answers[0].alias, "sorry.example");
}

TEST(Deciding, PanicLeavesOutWhomAPersonTookOutUnlessNobodyElseIsThere) {
    auto pool = a_pool("eu", 1, 3, 0);
    pool.members[0].spec.override_ = {.what = Override::What::down};
    pool.members[1].spec.override_ = {.what = Override::What::drain};
    EXPECT_THAT(members_of(decide(a_snapshot(a_rule({"eu"}), {pool})).answers[0]), ElementsAre("eu-3"));
    pool.members[2].spec.override_ = {.what = Override::What::drain};
    EXPECT_EQ(decide(a_snapshot(a_rule({"eu"}), {pool})).answers[0].candidates.size(), 3U);
    EXPECT_EQ(decide(a_snapshot(a_rule({"eu"}), {})).condition, Condition::empty);
}

TEST(Deciding, TheLastGoodAnswerIsRememberedAndStays) {
    auto rule = a_rule({"eu"});
    rule.all_down = AllDown::last_good;
    auto good = decide(a_snapshot(rule, {a_pool("eu", 1, 3, 2)}));
    EXPECT_THAT(members_of(good.answers[0]), ElementsAre("eu-1", "eu-2"));
    const auto memory = Memory::from(good.memory.to_json());
    EXPECT_EQ(memory, good.memory);
    auto down = decide(a_snapshot(rule, {a_pool("eu", 1, 3, 0)}, memory));
    EXPECT_THAT(members_of(down.answers[0]), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(down.condition, Condition::panic);
    down = decide(a_snapshot(rule, {a_pool("eu", 1, 3, 0)}, down.memory));
    EXPECT_THAT(members_of(down.answers[0]), ElementsAre("eu-1", "eu-2")) << "and goes on being remembered";
    EXPECT_EQ(decide(a_snapshot(rule, {a_pool("eu", 1, 3, 0)})).answers[0].candidates.size(), 3U) << "nothing remembered: all";
}

TEST(Deciding, DelayedFailbackWaitsUntilThePoolHasBeenUsableForAWhile) {
    auto rule = a_rule({"eu", "us"});
    rule.failback = Failback::delayed;
    rule.failback_after = 60s;
    const auto at = [&](int eu, int us, const Memory& memory, Duration time) {
        return decide(a_snapshot(rule, {a_pool("eu", 1, 1, eu), a_pool("us", 2, 1, us)}, memory,
                                 noon + std::chrono::duration_cast<std::chrono::milliseconds>(time)));
    };
    auto decision = at(1, 1, {}, 0s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    decision = at(0, 1, decision.memory, 10s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    decision = at(1, 1, decision.memory, 20s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    ASSERT_EQ(decision.withheld.size(), 1U);
    EXPECT_EQ(decision.withheld[0].cause, "failback");
    EXPECT_EQ(decision.withheld[0].until, noon + 80s);
    EXPECT_EQ(decision.look_again, noon + 80s);
    // A relapse begins the wait anew.
    decision = at(0, 1, decision.memory, 50s);
    decision = at(1, 1, Memory::from(decision.memory.to_json()), 70s);
    EXPECT_EQ(decision.look_again, noon + 130s);
    // The other fails meanwhile: one that is back too early is better than none.
    EXPECT_THAT(at(1, 0, decision.memory, 75s).answers[0].pools, ElementsAre("eu"));
    decision = at(1, 1, decision.memory, 130s);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    EXPECT_THAT(decision.memory.left, IsEmpty());
}

TEST(Deciding, ManualFailbackWaitsForAnApprovalThatIsNewerThanTheFailure) {
    auto rule = a_rule({"eu", "us"});
    rule.failback = Failback::manual;
    rule.failback_approved = noon - 1h;
    auto decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 0), a_pool("us", 2, 1, 1)}));
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}, decision.memory, noon + 1h));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("us"));
    EXPECT_THAT(decision.withheld[0].words, HasSubstr("when somebody approves"));
    EXPECT_EQ(decision.look_again, std::nullopt);
    rule.failback_approved = noon + 2h;
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1)}, decision.memory, noon + 2h));
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
}

TEST(Deciding, ANameThatWasMadeBeforeItsMembersHasLeftNobody) {
    Snapshot snapshot{
        .rule = a_rule({"eu", "us"}), .pools = {view(a_pool("eu", 1, 0, 0)), view(a_pool("us", 2, 0, 0))}, .time = noon};
    snapshot.rule.failback = Failback::manual;
    const auto then = [&](int eu, int us) {
        snapshot.memory = decide(snapshot).memory;
        snapshot.time += 1s;
        snapshot.pools = {view(a_pool("eu", 1, 2, eu)), view(a_pool("us", 2, 2, us))};
        return decide(snapshot).answers.front().pools;
    };
    EXPECT_EQ(then(2, 2), std::vector<std::string>{"eu"});
    EXPECT_EQ(then(0, 2), std::vector<std::string>{"us"});
    EXPECT_EQ(then(2, 2), std::vector<std::string>{"us"}) << "nobody has approved the return";
}

TEST(Deciding, ClientsOfATopologyHaveTheirOwnPoolsAndThenTheOthers) {
    auto rule = a_rule({"eu", "us", "lab"}, Steering::topology);
    rule.classes = {{.label = "america", .pools = {"us"}}, {.label = "lab", .pools = {"lab"}, .strict = true}};
    auto decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 1), a_pool("lab", 3, 1, 1)}));
    ASSERT_EQ(decision.answers.size(), 3U);
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us"));
    EXPECT_EQ(decision.answers[1].clients, "america");
    EXPECT_THAT(decision.answers[2].pools, ElementsAre("lab"));
    rule.all_down = AllDown::nodata;
    decision = decide(a_snapshot(rule, {a_pool("eu", 1, 1, 1), a_pool("us", 2, 1, 0), a_pool("lab", 3, 1, 0)}));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[2].candidates, IsEmpty());
    EXPECT_EQ(decision.condition, Condition::empty) << "the worst over the classes";
}

TEST(Deciding, LatencyLeadsUnlessTheDifferenceIsWithinTheDeadBand) {
    auto rule = a_rule({"eu", "us", "cold"}, Steering::latency);
    rule.pools[2].passive = true;
    rule.classes = {{.label = "west", .vantage = "dc2"}};
    const auto at = [&](double eu, double us, const Memory& memory) {
        auto first = a_pool("eu", 1, 1, 1), second = a_pool("us", 2, 1, 1), third = a_pool("cold", 9, 1, 1);
        if (eu > 0) first.members[0].signal.rtt["dc2"] = eu;
        second.members[0].signal.rtt["dc2"] = us;
        third.members[0].signal.rtt["dc2"] = 1;
        return decide(a_snapshot(rule, {first, second, third}, memory));
    };
    auto decision = at(80, 30, {});
    EXPECT_THAT(decision.answers[0].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us"));
    decision = at(25, 30, decision.memory);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "5 ms are less than 10";
    EXPECT_EQ(decision.withheld.at(0).cause, "dead_band");
    decision = at(90, 105, at(200, 105, {}).memory);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "15 ms are less than a fifth of 105";
    decision = at(10, 105, decision.memory);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("eu"));
    EXPECT_THAT(decision.withheld, IsEmpty());
    decision = at(0, 500, decision.memory);
    EXPECT_THAT(decision.answers[1].pools, ElementsAre("us")) << "what is not measured cannot lead";
}

TEST(Deciding, AnAnswerLivesAsLongAsNothingCanChange) {
    auto rule = a_rule({"eu", "us"});
    rule.ttl_max = 60;
    rule.ttl_min = 5;
    auto eu = a_pool("eu", 1, 2, 2);
    EXPECT_EQ(decide(a_snapshot(rule, {eu})).answers[0].ttl, 60U) << "nobody watches: nothing changes";
    eu.members[0].signal.until_change = 30s;
    eu.members[1].signal.until_change = 19500ms;
    EXPECT_EQ(decide(a_snapshot(rule, {eu})).answers[0].ttl, 20U);
    eu.members[1].signal.until_change = 1s;
    EXPECT_EQ(decide(a_snapshot(rule, {eu})).answers[0].ttl, 5U);
    eu.members[1].spec.override_ = {.what = Override::What::drain};
    EXPECT_EQ(decide(a_snapshot(rule, {eu})).answers[0].ttl, 30U) << "one that is out by hand changes nothing";
    eu.members[0].signal.until_change = 10min;
    EXPECT_EQ(decide(a_snapshot(rule, {eu})).answers[0].ttl, 60U);
    // A pool that is tried first may come back: its time counts too.
    auto down = a_pool("eu", 1, 1, 0);
    down.members[0].signal.until_change = 12s;
    auto us = a_pool("us", 2, 1, 1);
    us.members[0].signal.until_change = 40s;
    EXPECT_EQ(decide(a_snapshot(rule, {down, us})).answers[0].ttl, 12U);
}

TEST(Deciding, BothFamiliesComeFromTheSameMembers) {
    auto pool = a_pool("p", 1, 3, 3);
    ASSERT_TRUE(pool.members[0].addresses.add("2001:db8::1").ok());
    pool.members[1].addresses = {};
    ASSERT_TRUE(pool.members[1].addresses.add("2001:db8::2").ok());
    const auto decision = decide(a_snapshot(a_rule({"p"}), {pool}));
    EXPECT_THAT(decision.answers[0].candidates[0].addresses.texts(), ElementsAre("10.1.0.1", "2001:db8::1"));
    EXPECT_THAT(decision.answers[0].candidates[1].addresses.texts(), ElementsAre("2001:db8::2"));
    EXPECT_THAT(decision.answers[0].candidates[2].addresses.texts(), ElementsAre("10.1.0.3"));
}

TEST(Deciding, ASnapshotReadsBackAndIsDecidedTheSame) {
    auto rule = a_rule({"eu", "us"}, Steering::latency, Answers::sticky);
    rule.pools[1].passive = true;
    rule.max_answers = 2;
    rule.classes = {{.label = "west", .vantage = "dc2"}};
    rule.failback = Failback::delayed;
    rule.failback_after = 90s;
    rule.failback_approved = noon - 3h;
    rule.all_down = AllDown::fallback;
    rule.fallback_alias = "sorry.example";
    rule.demand = 12.5;
    Memory memory;
    memory.left["eu"] = {.since = noon - 1min, .back = noon - 30s};
    memory.leading["west"] = "us";
    memory.last_good["west"] = {{.member = "a", .pool = "eu", .weight = 3, .site = "s", .rack = "r"}};
    const auto snapshot = a_snapshot(rule, {a_pool("eu", 1, 3, 2), a_pool("us", 2, 2, 2)}, memory);
    const auto text = to_json_text(snapshot.to_json());
    const auto again = Snapshot::from(parse_json(text)->as_object());
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->rule, snapshot.rule);
    EXPECT_EQ(again->memory, snapshot.memory);
    EXPECT_EQ(to_json_text(again->to_json()), text);
    EXPECT_EQ(to_json_text(decide(*again).to_json()), to_json_text(decide(snapshot).to_json()));
    EXPECT_FALSE(Snapshot::from({}).ok());
}

} // namespace orrery::gslb
