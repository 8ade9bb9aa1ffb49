#include "identity/event_rate_limiter.h"
#include "identity/throttle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace orrery::identity {

using namespace std::chrono_literals;

namespace {

void fail(Throttle& throttle, const std::string& key, int times) {
    for (int i = 0; i < times; ++i) {
        auto attempt = throttle.admit(key);
        ASSERT_TRUE(attempt.ok()) << attempt.error().text();
        attempt->failed();
    }
}

} // namespace

TEST(Throttle, BlocksAfterSomeFailuresAndDoublesTheDelay) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    fail(throttle, "alice", 5);
    Duration wait = 30s;
    for (int i = 0; i < 5; ++i) {
        auto refused = throttle.admit("alice");
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Code::throttled);
        clock.advance(wait - 1s);
        EXPECT_FALSE(throttle.admit("alice").ok());
        clock.advance(1s);
        fail(throttle, "alice", 1);
        wait *= 2;
    }
    EXPECT_TRUE(throttle.admit("bob").ok());
}

TEST(Throttle, NeverExceedsTheMaximumDelay) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    fail(throttle, "alice", 5);
    for (int i = 0; i < 40; ++i) {
        clock.advance(15min);
        fail(throttle, "alice", 1);
    }
    clock.advance(15min);
    EXPECT_TRUE(throttle.admit("alice").ok());
}

TEST(Throttle, ReportsTheRemainingDelay) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    fail(throttle, "alice", 5);
    auto refused = throttle.admit("alice");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().remedy, "try again in 30s");
}

TEST(Throttle, ResetsAfterASuccessOrAnHour) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    fail(throttle, "alice", 4);
    auto right = throttle.admit("alice");
    ASSERT_TRUE(right.ok());
    right->succeeded();
    EXPECT_EQ(throttle.size(), 0U);
    fail(throttle, "alice", 4);
    clock.advance(61min);
    fail(throttle, "alice", 4);
    EXPECT_TRUE(throttle.admit("alice").ok());
}

TEST(Throttle, LimitsConcurrentAttempts) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    std::vector<Throttle::Attempt> under_way;
    for (int i = 0; i < 5; ++i) {
        auto attempt = throttle.admit("alice");
        ASSERT_TRUE(attempt.ok());
        under_way.push_back(std::move(*attempt));
    }
    EXPECT_FALSE(throttle.admit("alice").ok());
    for (auto& attempt : under_way) attempt.failed();
    EXPECT_FALSE(throttle.admit("alice").ok());
    clock.advance(30s);
    auto only_one = throttle.admit("alice");
    ASSERT_TRUE(only_one.ok());
    EXPECT_FALSE(throttle.admit("alice").ok());
}

TEST(Throttle, AnAttemptWithoutAResultIsNotCounted) {
    VirtualClock clock;
    Throttle throttle({}, clock);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(throttle.admit("alice").ok());
    EXPECT_EQ(throttle.size(), 0U);
}

TEST(Throttle, KeepsALimitedNumberOfKeysAndDropsTheLeastRecentlyUsed) {
    VirtualClock clock;
    Throttle::Options options;
    options.max_keys = 100;
    Throttle throttle(options, clock);
    for (int i = 0; i < 1000; ++i) {
        fail(throttle, "victim", i == 0 ? 5 : 0);
        fail(throttle, fmt::format("user{}", i), 1);
    }
    EXPECT_EQ(throttle.size(), 100U);
}

TEST(PeerKey, TreatsAnIpv6NetworkAsOnePeer) {
    EXPECT_EQ(peer_key("192.0.2.7"), "192.0.2.7");
    EXPECT_EQ(peer_key("2001:db8:1:2:3:4:5:6"), peer_key("2001:db8:1:2::99"));
    EXPECT_NE(peer_key("2001:db8:1:2::1"), peer_key("2001:db8:1:3::1"));
    EXPECT_EQ(peer_key("::ffff:192.0.2.7"), "192.0.2.7");
    EXPECT_EQ(peer_key(""), "");
}

TEST(EventRateLimiter, AllowsOneEventAMinutePerKeyAndCountsTheRest) {
    VirtualClock clock;
    EventRateLimiter limit({}, clock);
    EXPECT_TRUE(limit.allow("a"));
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(limit.allow("a"));
    EXPECT_TRUE(limit.allow("b"));
    EXPECT_EQ(limit.take_suppressed(), 10U);
    EXPECT_EQ(limit.take_suppressed(), 0U);
    clock.advance(60s);
    EXPECT_TRUE(limit.allow("a"));
}

TEST(EventRateLimiter, LimitsTheTotalOverAllKeys) {
    VirtualClock clock;
    EventRateLimiter limit({}, clock);
    int through = 0;
    for (int i = 0; i < 100'000; ++i) through += limit.allow(fmt::format("user{}", i)) ? 1 : 0;
    EXPECT_EQ(through, 120);
}

} // namespace orrery::identity
