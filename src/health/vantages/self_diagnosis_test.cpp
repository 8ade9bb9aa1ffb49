#include "health/vantages/self_diagnosis.h"

#include <gtest/gtest.h>

namespace orrery::health {

using namespace std::chrono_literals;

namespace {

const WallTime vantage_start{1'700'000'000'000ms};

} // namespace

TEST(SelfDiagnosis, QuarantinesItselfWhileItsCanariesFail) {
    SelfDiagnosis self;
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start).trusted);
    EXPECT_TRUE(self.diagnose(100, 2, 1, vantage_start).trusted); // one may just be down
    const auto isolated = self.diagnose(100, 2, 2, vantage_start);
    EXPECT_FALSE(isolated.trusted);
    EXPECT_EQ(isolated.message, "2 of 2 canaries fail");
    EXPECT_TRUE(self.diagnose(100, 2, 0, vantage_start + 1s).trusted);
}

TEST(SelfDiagnosis, QuarantinesItselfAfterAMassFailureForALimitedTime) {
    SelfDiagnosis self({.drop_percent = 50, .window = 10s, .hold = 60s});
    for (int i = 0; i < 50; ++i) self.target_failed(vantage_start + i * 10ms);
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start + 1s).trusted); // not more than half
    self.target_failed(vantage_start + 1s);
    const auto isolated = self.diagnose(100, 0, 0, vantage_start + 2s);
    EXPECT_FALSE(isolated.trusted);
    EXPECT_EQ(isolated.message, "51 of its 100 targets failed within 10s, more than 50 %");
    EXPECT_FALSE(self.diagnose(100, 0, 0, vantage_start + 50s).trusted);
    EXPECT_TRUE(self.diagnose(100, 0, 0, vantage_start + 63s).trusted); // no new failures: the targets are down
}

TEST(SelfDiagnosis, SlowFailuresAndFewTargetsAreNoMassFailure) {
    SelfDiagnosis slow({.window = 10s});
    for (int i = 0; i < 80; ++i) {
        slow.target_failed(vantage_start + i * 1s);
        EXPECT_TRUE(slow.diagnose(100, 0, 0, vantage_start + i * 1s).trusted);
    }
    SelfDiagnosis few;
    for (int i = 0; i < 3; ++i) few.target_failed(vantage_start);
    EXPECT_TRUE(few.diagnose(3, 0, 0, vantage_start).trusted);
}

} // namespace orrery::health
