#include "health/vantage.h"

#include <gtest/gtest.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

const WallTime vantage_start{1'700'000'000'000ms};

} // namespace

TEST(SelfDiagnosis, SetsItselfAsideWhileItsCanariesFail) {
    SelfDiagnosis self;
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start).fit);
    EXPECT_TRUE(self.diagnose(100, 2, 1, vantage_start).fit); // one may just be down
    const auto isolated = self.diagnose(100, 2, 2, vantage_start);
    EXPECT_FALSE(isolated.fit);
    EXPECT_EQ(isolated.words, "2 of 2 canaries fail");
    EXPECT_TRUE(self.diagnose(100, 2, 0, vantage_start + 1s).fit);
}

TEST(SelfDiagnosis, DoubtsItselfWhenTooMuchFallsAtOnceAndIsBelievedInTheEnd) {
    SelfDiagnosis self({.drop_percent = 50, .window = 10s, .hold = 60s});
    for (int i = 0; i < 50; ++i) self.fell(vantage_start + i * 10ms);
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start + 1s).fit); // not more than half
    self.fell(vantage_start + 1s);
    const auto isolated = self.diagnose(100, 0, 0, vantage_start + 2s);
    EXPECT_FALSE(isolated.fit);
    EXPECT_EQ(isolated.words, "51 of its 100 targets fell within 10s, more than 50 %");
    EXPECT_FALSE(self.diagnose(100, 0, 0, vantage_start + 50s).fit);
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start + 63s).fit); // nothing new fell: what is down is down
}

TEST(SelfDiagnosis, SlowFallsAndFewTargetsSayNothing) {
    SelfDiagnosis slow({.window = 10s});
    for (int i = 0; i < 80; ++i) {
        slow.fell(vantage_start + i * 1s);
        EXPECT_TRUE(slow.diagnose(100, 0, 0, vantage_start + i * 1s).fit);
    }
    SelfDiagnosis few;
    for (int i = 0; i < 3; ++i) few.fell(vantage_start);
    EXPECT_TRUE(few.diagnose(3, 0, 0, vantage_start).fit);
}

TEST(MassGuard, HoldsWhatGoesBeyondItsShareWithinTheWindow) {
    MassGuard guard({.percent = 50, .window = 60s});
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(guard.withdraw("m" + std::to_string(i), 8, vantage_start).allowed);
    const auto held = guard.withdraw("m4", 8, vantage_start + 30s);
    EXPECT_FALSE(held.allowed);
    EXPECT_EQ(held.words, "4 of 8 members were withdrawn within 1m; at most 4 may be");
    EXPECT_EQ(held.data.at("reason").as_string(), "mass_guard_hold");
    EXPECT_TRUE(guard.withdraw("m2", 8, vantage_start + 30s).allowed); // it has gone already
    guard.returned("m2");
    EXPECT_TRUE(guard.withdraw("m4", 8, vantage_start + 30s).allowed);
    EXPECT_FALSE(guard.withdraw("m5", 8, vantage_start + 59s).allowed);
    EXPECT_TRUE(guard.withdraw("m5", 8, vantage_start + 61s).allowed); // the first ones are long ago
}

TEST(MassGuard, AlwaysLetsOneGo) {
    MassGuard guard({.percent = 10});
    EXPECT_TRUE(guard.withdraw("a", 3, vantage_start).allowed);
    EXPECT_FALSE(guard.withdraw("b", 3, vantage_start).allowed);
    MassGuard counted({.most = 2});
    EXPECT_TRUE(counted.withdraw("a", 100, vantage_start).allowed);
    EXPECT_TRUE(counted.withdraw("b", 100, vantage_start).allowed);
    EXPECT_FALSE(counted.withdraw("c", 100, vantage_start).allowed);
}

} // namespace orrery::health
