#include "dns/rate_limit.h"

#include <gtest/gtest.h>

namespace orrery::dns {

namespace {

Client from(std::array<std::uint8_t, 4> address) {
    Client out;
    std::copy(address.begin(), address.end(), out.address.begin());
    return out;
}

int answered(RateLimit& limit, const Client& client, SteadyTime now, int asked, RateLimit::Kind kind = RateLimit::Kind::positive) {
    int out = 0;
    for (int i = 0; i < asked; ++i) out += limit.check(client, kind, now, 1) == RateLimit::Action::answer ? 1 : 0;
    return out;
}

} // namespace

TEST(RateLimit, ANetworkGetsItsBurstAndThenItsRate) {
    RateLimit limit({.per_second = 10, .burst = 20});
    SteadyTime now{std::chrono::hours(1)};
    EXPECT_EQ(answered(limit, from({192, 0, 2, 1}), now, 50), 20);
    EXPECT_EQ(answered(limit, from({192, 0, 2, 200}), now, 50), 0); // the same network
    EXPECT_EQ(answered(limit, from({192, 0, 3, 1}), now, 50), 20);  // another
    EXPECT_EQ(answered(limit, from({192, 0, 2, 1}), now, 50, RateLimit::Kind::nxdomain), 20);
    int in_ten_seconds = 0;
    for (int i = 0; i < 1000; ++i) {
        now += std::chrono::milliseconds(10);
        in_ten_seconds += answered(limit, from({192, 0, 2, 1}), now, 3);
    }
    EXPECT_NEAR(in_ten_seconds, 100, 5);
    now += std::chrono::minutes(5);
    EXPECT_EQ(answered(limit, from({192, 0, 2, 1}), now, 50), 20);
}

TEST(RateLimit, SlipTruncatesSomeResponsesOverTheLimit) {
    RateLimit limit({.per_second = 1, .burst = 1, .slip = 2});
    const SteadyTime now{std::chrono::hours(1)};
    EXPECT_EQ(limit.check(from({192, 0, 2, 1}), RateLimit::Kind::positive, now, 0), RateLimit::Action::answer);
    EXPECT_EQ(limit.check(from({192, 0, 2, 1}), RateLimit::Kind::positive, now, 0), RateLimit::Action::truncate);
    EXPECT_EQ(limit.check(from({192, 0, 2, 1}), RateLimit::Kind::positive, now, 1), RateLimit::Action::drop);
    RateLimit never({.per_second = 1, .burst = 1, .slip = 0});
    EXPECT_EQ(answered(never, from({192, 0, 2, 1}), now, 5), 1);
    EXPECT_EQ(never.check(from({192, 0, 2, 1}), RateLimit::Kind::positive, now, 0), RateLimit::Action::drop);
}

TEST(RateLimit, ExemptNetworksAreNotLimited) {
    Prefix trusted{.address = {192, 0, 2, 128}, .length = 25};
    RateLimit limit({.per_second = 1, .burst = 1, .exempt = {trusted}});
    const SteadyTime now{std::chrono::hours(1)};
    EXPECT_EQ(answered(limit, from({192, 0, 2, 129}), now, 50), 50);
    EXPECT_EQ(answered(limit, from({192, 0, 2, 1}), now, 50), 1);
    RateLimit off({});
    EXPECT_EQ(answered(off, from({192, 0, 2, 1}), now, 5000), 5000);
}

} // namespace orrery::dns
