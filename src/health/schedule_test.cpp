#include "health/schedule.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::health {

using namespace std::chrono_literals;

TEST(Schedule, IsFastInTransitionAndSlowWhenLongDown) {
    const Intervals intervals{.interval = 10s, .fast_interval = 1s, .down_interval = 60s, .down_after = 5min};
    EXPECT_EQ(interval_now(intervals, {}), 10s);
    EXPECT_EQ(interval_now(intervals, {.in_transition = true}), 1s);
    EXPECT_EQ(interval_now(intervals, {.down_for = 4min}), 10s);
    EXPECT_EQ(interval_now(intervals, {.down_for = 5min}), 60s);
    EXPECT_EQ(interval_now(intervals, {.in_transition = true, .down_for = 5min}), 1s); // it recovers: probe fast
    EXPECT_EQ(interval_now({.interval = 10s}, {.in_transition = true, .down_for = 1h}), 10s);
    EXPECT_EQ(interval_now({.interval = 1ms}, {}), 100ms);
    EXPECT_EQ(interval_now({.interval = 2s, .fast_interval = 5s}, {.in_transition = true}), 2s); // fast is never slower
}

TEST(Schedule, ThePhaseIsStableAndSpreadsOverTheInterval) {
    const WallTime now{1'700'000'123'456ms};
    std::set<std::int64_t> phases;
    for (int i = 0; i < 1000; ++i) {
        const auto hash = stable_hash("target " + std::to_string(i));
        const auto wait = until_phase(hash, 10s, now);
        EXPECT_GT(wait, 0s);
        EXPECT_LE(wait, 10s);
        const auto at = now + std::chrono::duration_cast<std::chrono::milliseconds>(wait);
        // Asked at any other moment, it names the same moments.
        EXPECT_EQ(until_phase(hash, 10s, at - 1ms), 1ms);
        EXPECT_EQ(until_phase(hash, 10s, at), 10s);
        phases.insert(at.time_since_epoch().count() % 10'000 / 1000);
    }
    EXPECT_EQ(phases.size(), 10U);
    EXPECT_EQ(stable_hash("the same"), 0x65222b338a88c549ULL); // in every build
}

TEST(Schedule, JitterStaysWithinItsShare) {
    Duration lowest = 1h, highest = -1h;
    for (std::uint64_t random = 0; random < 5000; ++random) {
        const auto shift = jitter(10s, 5, random * 2654435761U);
        lowest = std::min(lowest, shift);
        highest = std::max(highest, shift);
    }
    EXPECT_GE(lowest, -500ms);
    EXPECT_LE(highest, 500ms);
    EXPECT_LT(lowest, -400ms);
    EXPECT_GT(highest, 400ms);
    EXPECT_EQ(jitter(10s, 0, 12345), 0s);
}

} // namespace orrery::health
