#include "gslb/decide/decision.h"
#include "gslb/decide/decision_fixture.h"
#include "gslb/decide/pool_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using testing::a_member;
using testing::a_pool;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::noon;

std::vector<std::string> healthy(const PoolView& view) {
    std::vector<std::string> out;
    for (const auto& member : view.members)
        if (member.healthy) out.push_back(member.name);
    return out;
}

} // namespace

TEST(PoolEvaluator, ProbeResultsApplyUnlessAnOverrideExists) {
    auto pool = a_pool("eu", 1, 4, 2);
    pool.members[0].spec.override_ = {.action = Override::Action::down, .reason = "disk", .by = "anna"};
    pool.members[2].spec.override_ = {.action = Override::Action::up};
    pool.members[1].spec.override_ = {.action = Override::Action::drain, .reason = "upgrade", .until = noon + 10min};
    const auto evaluated = evaluate_pool(pool, {}, noon);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-3"));
    EXPECT_TRUE(evaluated.view.members[1].drained);
    EXPECT_EQ(evaluated.view.members[0].message, "taken down by anna: disk");
    EXPECT_EQ(evaluated.next_evaluation, noon + 10min);
    const auto later = evaluate_pool(pool, evaluated.state, noon + 10min);
    EXPECT_THAT(healthy(later.view), ElementsAre("eu-2", "eu-3"));
    EXPECT_EQ(later.next_evaluation, std::nullopt);
}

TEST(PoolEvaluator, AnOverrideOfAMemberGoesBeforeThatOfItsPool) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.override_ = {.action = Override::Action::drain};
    pool.members[0].spec.override_ = {.action = Override::Action::up};
    const auto evaluated = evaluate_pool(pool, {}, noon);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-1"));
    EXPECT_TRUE(evaluated.view.members[1].drained);
}

TEST(PoolEvaluator, UnknownHealthCountsAsThePoolConfigures) {
    auto pool = a_pool("eu", 1, 1, 0);
    pool.members[0].health.state = HealthState::unknown;
    EXPECT_THAT(healthy(evaluate_pool(pool, {}, noon).view), ElementsAre("eu-1"));
    pool.spec.unknown_is_up = false;
    const auto view = evaluate_pool(pool, {}, noon).view;
    EXPECT_THAT(healthy(view), IsEmpty());
    EXPECT_THAT(view.members[0].message, HasSubstr("nothing is known yet"));
    pool.members[0].health.monitored = false;
    EXPECT_THAT(healthy(evaluate_pool(pool, {}, noon).view), ElementsAre("eu-1"));
    pool.members[0].addresses = {};
    EXPECT_THAT(healthy(evaluate_pool(pool, {}, noon).view), IsEmpty());
}

TEST(PoolEvaluator, TheStateBeforeARestartIsKeptAndMarked) {
    auto pool = a_pool("eu", 1, 2, 1);
    for (auto& member : pool.members) member.health.stale = true;
    const auto view = evaluate_pool(pool, {}, noon).view;
    EXPECT_THAT(healthy(view), ElementsAre("eu-1"));
    EXPECT_THAT(view.members[1].message, HasSubstr("as before the restart"));
}

TEST(PoolEvaluator, AMemberWithheldBeforeARestartIsWithheldUntilItIsProbedAgain) {
    auto pool = a_pool("eu", 1, 4, 0);
    pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = false, .value = 2}, .window = 1min};
    for (auto& member : pool.members) member.health.stale = true;
    PoolState before;
    before.withdrawn = {"eu-3"};
    before.recently = {noon - 1h};
    auto evaluated = evaluate_pool(pool, before, noon);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-1", "eu-2", "eu-4")) << "there is room, and no evidence";
    EXPECT_EQ(evaluated.withheld.size(), 3U);
    pool.members[3].health.stale = false;
    evaluated = evaluate_pool(pool, evaluated.state, noon + 1s);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-1", "eu-2"));
}

TEST(PoolEvaluator, ATimeInTheFutureHoldsNoLongerThanTheWindow) {
    auto pool = a_pool("eu", 1, 2, 0);
    pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = false, .value = 1}, .window = 1min};
    PoolState before;
    before.withdrawn = {"eu-1"};
    before.recently = {noon + 24h};
    const auto evaluated = evaluate_pool(pool, before, noon);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-2"));
    EXPECT_EQ(evaluated.next_evaluation, noon + 1min);
}

TEST(PoolEvaluator, TheGuardLimitsEjectionsWithinItsWindow) {
    auto pool = a_pool("eu", 1, 4, 4);
    pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = true, .value = 50}, .window = 1min};
    auto evaluated = evaluate_pool(pool, {}, noon);
    for (auto& member : pool.members) member.health.state = HealthState::down;
    evaluated = evaluate_pool(pool, evaluated.state, noon + 1s);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-3", "eu-4"));
    ASSERT_EQ(evaluated.withheld.size(), 2U);
    EXPECT_EQ(evaluated.withheld[0].cause, Cause::mass_guard_hold);
    EXPECT_EQ(evaluated.withheld[0].about, "eu-3");
    EXPECT_EQ(evaluated.withheld[0].until, noon + 61s);
    EXPECT_EQ(evaluated.next_evaluation, noon + 61s);
    // Further evaluations within the window do not change that.
    evaluated = evaluate_pool(pool, PoolState::from(evaluated.state.to_json()), noon + 30s);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-3", "eu-4"));
    // One that comes back is no longer held; one that a person takes out is not counted.
    pool.members[3].health.state = HealthState::up;
    pool.members[2].spec.override_ = {.action = Override::Action::down};
    evaluated = evaluate_pool(pool, evaluated.state, noon + 40s);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-4"));
    EXPECT_THAT(evaluated.withheld, IsEmpty());
    // After the window the rest may go.
    pool.members[2].spec.override_ = {};
    pool.members[3].health.state = HealthState::down;
    evaluated = evaluate_pool(pool, evaluated.state, noon + 61s);
    EXPECT_THAT(healthy(evaluated.view), IsEmpty());
    EXPECT_THAT(evaluated.withheld, IsEmpty());
}

TEST(PoolEvaluator, TheDefaultGuardIsHalfOfThePoolWithinAMinute) {
    auto pool = a_pool("eu", 1, 10, 10);
    pool.spec = PoolSpec::from("eu", {});
    auto evaluated = evaluate_pool(pool, {}, noon);
    for (std::size_t at = 0; at < 8; ++at) pool.members[at].health.state = HealthState::down;
    evaluated = evaluate_pool(pool, evaluated.state, noon + 1s);
    EXPECT_EQ(healthy(evaluated.view).size(), 5U) << "five of the eight may go";
    EXPECT_EQ(evaluated.withheld.size(), 3U);
    EXPECT_EQ(evaluated.next_evaluation, noon + 61s);
    EXPECT_FALSE(is_usable(evaluated.view).usable) << "two of ten are healthy";
    EXPECT_TRUE(is_usable(evaluated.view, true).usable);
    evaluated = evaluate_pool(pool, evaluated.state, noon + 61s);
    EXPECT_EQ(healthy(evaluated.view).size(), 2U);
}

TEST(PoolEvaluator, AMemberThatReturnsFreesAnEjectionOfTheGuard) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec = PoolSpec::from("eu", {});
    PoolEvaluation evaluated = evaluate_pool(pool, {}, noon);
    for (int turn = 1; turn < 5; ++turn) {
        pool.members[0].health.state = HealthState::down;
        evaluated = evaluate_pool(pool, evaluated.state, noon + turn * 10s);
        EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-2")) << "it is the only one that is missing";
        pool.members[0].health.state = HealthState::up;
        evaluated = evaluate_pool(pool, evaluated.state, noon + turn * 10s + 5s);
        EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-1", "eu-2"));
    }
}

TEST(PoolEvaluator, AMemberThatFlapsIsHeldDownLongerEachTime) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec = PoolSpec::from(
        "eu", {{"guard", json::object{{"max_ejections", "100%"}}},
               {"hold_down", json::object{{"changes", 3}, {"window", "10m"}, {"hold", "30s"}, {"max_hold", "50s"}}}});
    auto now = noon;
    PoolEvaluation evaluated = evaluate_pool(pool, {}, now);
    const auto is = [&](HealthState health, Duration after_) {
        pool.members[0].health.state = health;
        now += std::chrono::duration_cast<std::chrono::milliseconds>(after_);
        evaluated = evaluate_pool(pool, PoolState::from(evaluated.state.to_json()), now);
        return evaluated.view.members[0].healthy;
    };
    for (int turn = 0; turn < 2; ++turn) {
        EXPECT_FALSE(is(HealthState::down, 5s));
        EXPECT_TRUE(is(HealthState::up, 5s)) << "twice is no flapping yet";
    }
    EXPECT_FALSE(is(HealthState::down, 5s));
    EXPECT_FALSE(is(HealthState::up, 5s));
    EXPECT_EQ(evaluated.next_evaluation, now + 30s);
    ASSERT_EQ(evaluated.withheld.size(), 1U);
    EXPECT_EQ(evaluated.withheld[0].cause, Cause::flap_hold);
    EXPECT_THAT(evaluated.view.members[0].message, HasSubstr("withdrawn 3 times within 10m"));
    EXPECT_FALSE(is(HealthState::up, 29s));
    EXPECT_TRUE(is(HealthState::up, 1s));
    EXPECT_FALSE(is(HealthState::down, 5s));
    EXPECT_FALSE(is(HealthState::up, 5s));
    EXPECT_EQ(evaluated.next_evaluation, now + 50s) << "twice as long, and no longer than max_hold";
    EXPECT_FALSE(is(HealthState::down, 20s));
    EXPECT_FALSE(is(HealthState::up, 1s));
    EXPECT_EQ(evaluated.next_evaluation, now + 50s) << "what failed while it was held begins again";
    EXPECT_TRUE(is(HealthState::up, 50s));
    EXPECT_FALSE(is(HealthState::down, 11min));
    EXPECT_TRUE(is(HealthState::up, 5s)) << "the window is over";
}

TEST(PoolEvaluator, ALoadReducesTheWeightAndExpires) {
    auto pool = a_pool("eu", 1, 1, 1);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 90, .step = 100, .interval = 30s};
    pool.members[0].health.load = 99;
    auto evaluated = evaluate_pool(pool, {}, noon);
    EXPECT_EQ(evaluated.view.members[0].load, 0U);
    EXPECT_EQ(evaluated.view.members[0].message, "load 99 (from 50 to 90) leaves it 0 % of its weight");
    pool.members[0].health.load.reset();
    evaluated = evaluate_pool(pool, PoolState::from(evaluated.state.to_json()), noon + 1min);
    EXPECT_EQ(evaluated.view.members[0].load, 0U) << "no measurement is no evidence";
    pool.members[0].health.load_expired = true;
    evaluated = evaluate_pool(pool, evaluated.state, noon + 1min);
    EXPECT_EQ(evaluated.view.members[0].load, 100U);
}

TEST(PoolEvaluator, AMemberThatCannotBeCheckedIsReported) {
    auto pool = a_pool("eu", 1, 1, 1);
    pool.members[0].health.state = HealthState::unknown;
    pool.members[0].health.unchecked = "disk: there is no program check_disk";
    EXPECT_EQ(evaluate_pool(pool, {}, noon).view.members[0].message,
              "it cannot be checked: disk: there is no program check_disk; it counts as up");
}

TEST(PoolEvaluator, AGuardThatAllowsNoEjectionKeepsAllMembers) {
    auto pool = a_pool("eu", 1, 2, 0);
    pool.spec.guard = PoolSpec::Guard{.max_ejections = {.share = false, .value = 0}, .window = 1min};
    const auto evaluated = evaluate_pool(pool, {}, noon);
    EXPECT_THAT(healthy(evaluated.view), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(evaluated.next_evaluation, std::nullopt);
}

TEST(PoolEvaluator, LoadChangesTheWeightInStepsAndNotTooOften) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 100, .step = 30, .interval = 30s};
    pool.members[0].health.load = 75; // half of its weight
    auto evaluated = evaluate_pool(pool, {}, noon);
    EXPECT_EQ(evaluated.view.members[0].load, 70U);
    EXPECT_EQ(evaluated.view.members[1].load, 100U);
    EXPECT_EQ(evaluated.next_evaluation, noon + 30s);
    evaluated = evaluate_pool(pool, evaluated.state, noon + 29s);
    EXPECT_EQ(evaluated.view.members[0].load, 70U);
    evaluated = evaluate_pool(pool, PoolState::from(evaluated.state.to_json()), noon + 30s);
    EXPECT_EQ(evaluated.view.members[0].load, 50U);
    EXPECT_EQ(evaluated.next_evaluation, std::nullopt);
    // No measurement is no evidence.
    pool.members[0].health.load.reset();
    evaluated = evaluate_pool(pool, evaluated.state, noon + 5min);
    EXPECT_EQ(evaluated.view.members[0].load, 50U);
    pool.members[0].health.load = 20;
    for (const auto expected : {80U, 100U}) {
        evaluated = evaluate_pool(pool, evaluated.state, noon + 6min + std::chrono::minutes(expected));
        EXPECT_EQ(evaluated.view.members[0].load, expected);
    }
    pool.members[0].health.load = 1e9;
    EXPECT_EQ(evaluate_pool(pool, evaluated.state, noon + 10h).view.members[0].load, 70U);
}

TEST(PoolEvaluator, AViewSurvivesARoundTrip) {
    auto pool = a_pool("eu", 1, 3, 2);
    pool.spec.location = PoolSpec::Location{52.4, 4.9};
    pool.spec.min_healthy = {.share = false, .value = 2};
    pool.members[0].spec.weight = 7;
    pool.members[0].spec.capacity = 1.5;
    pool.members[0].site = "ams";
    pool.members[0].rack = "r1";
    pool.members[0].health.until_change = 15s;
    pool.members[0].health.rtt = {{"dc1", 12.34}};
    std::ignore = pool.members[1].addresses.add("2001:db8::2");
    pool.members[1].spec.override_ = {.action = Override::Action::drain, .reason = "x"};
    const auto view = evaluate_pool(pool, {}, noon).view;
    EXPECT_EQ(view.rtt.at("dc1"), 12.3);
    EXPECT_EQ(PoolView::from(view.to_json()), view);
}

} // namespace orrery::gslb
