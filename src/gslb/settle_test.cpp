#include "gslb/settle.h"
#include "gslb/testing.h"

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

TEST(Settling, WhatProbesSayHoldsUnlessAPersonSaysOtherwise) {
    auto pool = a_pool("eu", 1, 4, 2);
    pool.members[0].spec.override_ = {.what = Override::What::down, .reason = "disk", .by = "anna"};
    pool.members[2].spec.override_ = {.what = Override::What::up};
    pool.members[1].spec.override_ = {.what = Override::What::drain, .reason = "upgrade", .until = noon + 10min};
    const auto settled = settle(pool, {}, noon);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-3"));
    EXPECT_TRUE(settled.view.members[1].drained);
    EXPECT_EQ(settled.view.members[0].why, "taken down by anna: disk");
    EXPECT_EQ(settled.look_again, noon + 10min);
    const auto later = settle(pool, settled.memory, noon + 10min);
    EXPECT_THAT(healthy(later.view), ElementsAre("eu-2", "eu-3"));
    EXPECT_EQ(later.look_again, std::nullopt);
}

TEST(Settling, APersonsWordAboutThePoolIsBelowThatAboutAMember) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.override_ = {.what = Override::What::drain};
    pool.members[0].spec.override_ = {.what = Override::What::up};
    const auto settled = settle(pool, {}, noon);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-1"));
    EXPECT_TRUE(settled.view.members[1].drained);
}

TEST(Settling, WhatIsNotKnownCountsAsThePoolSays) {
    auto pool = a_pool("eu", 1, 1, 0);
    pool.members[0].signal.standing = Health::unknown;
    EXPECT_THAT(healthy(settle(pool, {}, noon).view), ElementsAre("eu-1"));
    pool.spec.unknown_is_up = false;
    const auto view = settle(pool, {}, noon).view;
    EXPECT_THAT(healthy(view), IsEmpty());
    EXPECT_THAT(view.members[0].why, HasSubstr("nothing is known yet"));
    pool.members[0].signal.monitored = false;
    EXPECT_THAT(healthy(settle(pool, {}, noon).view), ElementsAre("eu-1"));
    pool.members[0].addresses = {};
    EXPECT_THAT(healthy(settle(pool, {}, noon).view), IsEmpty());
}

TEST(Settling, WhatStoodBeforeARestartStandsAndSaysSo) {
    auto pool = a_pool("eu", 1, 2, 1);
    for (auto& member : pool.members) member.signal.stale = true;
    const auto view = settle(pool, {}, noon).view;
    EXPECT_THAT(healthy(view), ElementsAre("eu-1"));
    EXPECT_THAT(view.members[1].why, HasSubstr("as before the restart"));
}

TEST(Settling, WhatTheGuardHeldBeforeARestartIsHeldUntilItIsLookedAtAgain) {
    auto pool = a_pool("eu", 1, 4, 0);
    pool.spec.guard = PoolSpec::Guard{.most = {.share = false, .value = 2}, .window = 1min};
    for (auto& member : pool.members) member.signal.stale = true;
    PoolMemory before;
    before.withdrawn = {"eu-3"};
    before.recently = {noon - 1h};
    auto settled = settle(pool, before, noon);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-1", "eu-2", "eu-4")) << "there is room, and no evidence";
    EXPECT_EQ(settled.withheld.size(), 3U);
    pool.members[3].signal.stale = false;
    settled = settle(pool, settled.memory, noon + 1s);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-1", "eu-2"));
}

TEST(Settling, ATimeThatIsAheadHoldsNoLongerThanTheWindow) {
    auto pool = a_pool("eu", 1, 2, 0);
    pool.spec.guard = PoolSpec::Guard{.most = {.share = false, .value = 1}, .window = 1min};
    PoolMemory before;
    before.withdrawn = {"eu-1"};
    before.recently = {noon + 24h};
    const auto settled = settle(pool, before, noon);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-2"));
    EXPECT_EQ(settled.look_again, noon + 1min);
}

TEST(Settling, TheGuardLetsOnlySoManyGoWithinItsWindow) {
    auto pool = a_pool("eu", 1, 4, 4);
    pool.spec.guard = PoolSpec::Guard{.most = {.share = true, .value = 50}, .window = 1min};
    auto settled = settle(pool, {}, noon);
    for (auto& member : pool.members) member.signal.standing = Health::down;
    settled = settle(pool, settled.memory, noon + 1s);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-3", "eu-4"));
    ASSERT_EQ(settled.withheld.size(), 2U);
    EXPECT_EQ(settled.withheld[0].cause, "mass_guard_hold");
    EXPECT_EQ(settled.withheld[0].about, "eu-3");
    EXPECT_EQ(settled.withheld[0].until, noon + 61s);
    EXPECT_EQ(settled.look_again, noon + 61s);
    // Within the window it stays so, whoever asks.
    settled = settle(pool, PoolMemory::from(settled.memory.to_json()), noon + 30s);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-3", "eu-4"));
    // One that comes back is no longer held; one that a person takes out is not counted.
    pool.members[3].signal.standing = Health::up;
    pool.members[2].spec.override_ = {.what = Override::What::down};
    settled = settle(pool, settled.memory, noon + 40s);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-4"));
    EXPECT_THAT(settled.withheld, IsEmpty());
    // After the window the rest may go.
    pool.members[2].spec.override_ = {};
    pool.members[3].signal.standing = Health::down;
    settled = settle(pool, settled.memory, noon + 61s);
    EXPECT_THAT(healthy(settled.view), IsEmpty());
    EXPECT_THAT(settled.withheld, IsEmpty());
}

TEST(Settling, AGuardThatAllowsNoneHoldsEverybody) {
    auto pool = a_pool("eu", 1, 2, 0);
    pool.spec.guard = PoolSpec::Guard{.most = {.share = false, .value = 0}, .window = 1min};
    const auto settled = settle(pool, {}, noon);
    EXPECT_THAT(healthy(settled.view), ElementsAre("eu-1", "eu-2"));
    EXPECT_EQ(settled.look_again, std::nullopt);
}

TEST(Settling, LoadTakesWeightInStepsAndNotTooOften) {
    auto pool = a_pool("eu", 1, 2, 2);
    pool.spec.load = PoolSpec::Load{.low = 50, .high = 100, .step = 30, .interval = 30s};
    pool.members[0].signal.load = 75; // half of its weight
    auto settled = settle(pool, {}, noon);
    EXPECT_EQ(settled.view.members[0].load, 70U);
    EXPECT_EQ(settled.view.members[1].load, 100U);
    EXPECT_EQ(settled.look_again, noon + 30s);
    settled = settle(pool, settled.memory, noon + 29s);
    EXPECT_EQ(settled.view.members[0].load, 70U);
    settled = settle(pool, PoolMemory::from(settled.memory.to_json()), noon + 30s);
    EXPECT_EQ(settled.view.members[0].load, 50U);
    EXPECT_EQ(settled.look_again, std::nullopt);
    // No measurement is no evidence.
    pool.members[0].signal.load.reset();
    settled = settle(pool, settled.memory, noon + 5min);
    EXPECT_EQ(settled.view.members[0].load, 50U);
    pool.members[0].signal.load = 20;
    for (const auto expected : {80U, 100U}) {
        settled = settle(pool, settled.memory, noon + 6min + std::chrono::minutes(expected));
        EXPECT_EQ(settled.view.members[0].load, expected);
    }
    pool.members[0].signal.load = 1e9;
    EXPECT_EQ(settle(pool, settled.memory, noon + 10h).view.members[0].load, 70U);
}

TEST(Settling, AViewReadsBackAsItWas) {
    auto pool = a_pool("eu", 1, 3, 2);
    pool.spec.location = PoolSpec::Location{52.4, 4.9};
    pool.spec.min_healthy = {.share = false, .value = 2};
    pool.members[0].spec.weight = 7;
    pool.members[0].spec.capacity = 1.5;
    pool.members[0].site = "ams";
    pool.members[0].rack = "r1";
    pool.members[0].signal.until_change = 15s;
    pool.members[0].signal.rtt = {{"dc1", 12.34}};
    std::ignore = pool.members[1].addresses.add("2001:db8::2");
    pool.members[1].spec.override_ = {.what = Override::What::drain, .reason = "x"};
    const auto view = settle(pool, {}, noon).view;
    EXPECT_EQ(view.rtt.at("dc1"), 12.3);
    EXPECT_EQ(PoolView::from(view.to_json()), view);
}

} // namespace orrery::gslb
