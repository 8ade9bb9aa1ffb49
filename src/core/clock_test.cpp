#include "core/clock.h"
#include "core/test_fixture.h"

#include <tuple>

namespace orrery {

using namespace std::chrono_literals;

TEST(Clock, ParsesAndFormatsTimestamps) {
    EXPECT_EQ(to_rfc3339(*from_rfc3339("2026-11-16T04:42:52.123Z")), "2026-11-16T04:42:52.123Z");
    EXPECT_EQ(to_rfc3339(*from_rfc3339("2026-11-16T04:42:52+05:30")), "2026-11-15T23:12:52.000Z");
    EXPECT_EQ(to_rfc3339(*from_rfc3339("2024-02-29t00:00:00.5z")), "2024-02-29T00:00:00.500Z");
    EXPECT_EQ(to_rfc3339(*from_rfc3339("0007-01-02T03:04:05.006Z")), "0007-01-02T03:04:05.006Z");
    EXPECT_EQ(to_rfc3339(*from_rfc3339("9999-12-31T23:59:59.999Z")), "9999-12-31T23:59:59.999Z");
    EXPECT_EQ(to_rfc3339(*from_rfc3339("9999-12-31T23:59:59-00:01")), "10000-01-01T00:00:59.000Z");
    EXPECT_EQ(to_rfc3339(WallTime{-1ms}), "1969-12-31T23:59:59.999Z");
}

TEST(Clock, RefusesInvalidTimestamps) {
    for (const auto* text : {"", "now", "2026-02-30T00:00:00Z", "2026-11-16", "2026-11-16T24:00:00Z", "2026-11-16T04:42:52",
                             "2026-11-16T04:42:52.Z", "2026-11-16T04:42:52+99:00", "2026-11-16T04:42:52Z "})
        EXPECT_FALSE(from_rfc3339(text).ok()) << text;
}

TEST(Clock, ParsesAndFormatsDurations) {
    EXPECT_EQ(*parse_duration("2h30m"), 150min);
    EXPECT_EQ(*parse_duration("250ms"), 250ms);
    EXPECT_EQ(*parse_duration("7d"), 168h);
    for (const auto* text : {"250ms", "30s", "15m", "2h30m", "7d", "0s", "1d1h1m1s1ms"})
        EXPECT_EQ(to_text(*parse_duration(text)), text);
    for (const auto* text : {"", "10", "s", "-5s", "1w", "99999999999999999999s", "9999999999d", "1.5h"})
        EXPECT_FALSE(parse_duration(text).ok()) << text;
}

CO_TEST(VirtualClock, WakesSleepersInTheOrderOfTheirTime) {
    VirtualClock clock;
    TaskGroup group(loop.get_executor());
    std::string order;
    auto sleeper = [](VirtualClock& with, Duration time, char mark, std::string& into) -> asio::awaitable<void> {
        auto slept = co_await with.sleep(time);
        if (slept.ok()) into += mark;
    };
    group.spawn(sleeper(clock, 30s, 'c', order));
    group.spawn(sleeper(clock, 10s, 'a', order));
    group.spawn(sleeper(clock, 20s, 'b', order));
    std::ignore = co_await real_clock().sleep(1ms);
    EXPECT_EQ(clock.sleepers(), 3U);
    while (clock.advance_to_next()) std::ignore = co_await real_clock().sleep(1ms);
    co_await group.join();
    EXPECT_EQ(order, "abc");
    EXPECT_EQ(to_rfc3339(clock.wall()), "2026-01-01T00:00:30.000Z");
}

CO_TEST(VirtualClock, ACancelledSleeperIsRemoved) {
    VirtualClock clock;
    TaskGroup group(loop.get_executor());
    auto sleeper = [](VirtualClock& with) -> asio::awaitable<void> { std::ignore = co_await with.sleep(1h); };
    group.spawn(sleeper(clock));
    std::ignore = co_await real_clock().sleep(1ms);
    co_await group.stop();
    EXPECT_EQ(clock.sleepers(), 0U);
}

} // namespace orrery
