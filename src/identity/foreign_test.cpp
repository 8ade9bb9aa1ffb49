#include "identity/testing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::identity {

using namespace std::chrono_literals;
using namespace testing;

namespace {

TokenSource::Answer somebody(Clock& clock, std::string user, Role role = Role::operator_, Duration life = 1h) {
    TokenSource::Answer answer;
    answer.principal.user = std::move(user);
    answer.principal.role = role;
    answer.expires_at = clock.wall() + std::chrono::duration_cast<std::chrono::milliseconds>(life);
    return answer;
}

Task<Principal> present(Town& town, std::string token, std::string peer = "192.0.2.1") {
    return town.identity->check_foreign_token(Context::make("anonymous"), std::move(token), std::move(peer));
}

asio::awaitable<void> present_into(Town& town, std::string token, std::vector<Result<Principal>>& answers) {
    answers.push_back(co_await present(town, std::move(token)));
}

} // namespace

CO_TEST(ForeignToken, IsAskedAboutOnceAMinute) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol");
    for (int i = 0; i < 10; ++i) {
        auto who = co_await present(town, "t");
        CO_ASSERT_OK(who);
        EXPECT_EQ(who->user, "carol");
        EXPECT_EQ(who->via, "keystone");
        EXPECT_EQ(who->source, "keystone");
    }
    EXPECT_EQ(source.asked, 1);
    EXPECT_EQ(town.events("login"), 1U);
    town.clock.advance(61s);
    CO_ASSERT_OK(co_await present(town, "t"));
    EXPECT_EQ(source.asked, 2);
    EXPECT_EQ(town.events("login"), 1U);
}

CO_TEST(ForeignToken, ARevokedOneStopsWithinTheMinute) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol");
    CO_ASSERT_OK(co_await present(town, "t"));
    source.tokens.clear();
    town.clock.advance(61s);
    auto refused = co_await present(town, "t");
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
    EXPECT_EQ(town.events("login-refused"), 1U);
}

CO_TEST(ForeignToken, IsNotBelievedBeyondItsExpiry) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol", Role::viewer, 10s);
    CO_ASSERT_OK(co_await present(town, "t"));
    town.clock.advance(10s);
    auto late = co_await present(town, "t");
    EXPECT_FALSE(late.ok());
}

CO_TEST(ForeignToken, ManyAtOnceAskOnce) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol");
    source.slow = 1s;
    std::vector<Result<Principal>> answers;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 50; ++i) group.spawn(present_into(town, "t", answers));
    while (town.clock.sleepers() == 0) std::ignore = co_await real_clock().sleep(1ms);
    town.clock.advance(1s);
    co_await group.join();
    EXPECT_EQ(source.asked, 1);
    EXPECT_EQ(std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.ok(); }), 50);
}

CO_TEST(ForeignToken, ASourceThatCannotBeAskedIsNotARefusal) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol");
    source.fail_with = Error{Code::unavailable, "connection refused by 10.0.0.1"};
    for (int i = 0; i < 100; ++i) {
        auto down = co_await present(town, "t");
        CO_ASSERT(!down.ok());
        EXPECT_EQ(down.error().code, Code::unavailable);
        EXPECT_THAT(down.error().message, ::testing::Not(::testing::HasSubstr("10.0.0.1")));
    }
    source.fail_with.reset();
    CO_ASSERT_OK(co_await present(town, "t"));
}

CO_TEST(ForeignToken, GuessingIsThrottledWithoutHarmToThoseWhoAreKnown) {
    Town town(loop.get_executor());
    auto& source = town.add_token_source("keystone");
    source.tokens["t"] = somebody(town.clock, "carol");
    CO_ASSERT_OK(co_await present(town, "t"));
    int refused = 0, throttled = 0;
    for (int i = 0; i < 200; ++i) {
        auto answer = co_await present(town, fmt::format("guess{}", i));
        CO_ASSERT(!answer.ok());
        refused += answer.error().code == Code::unauthenticated ? 1 : 0;
        throttled += answer.error().code == Code::throttled ? 1 : 0;
    }
    EXPECT_EQ(refused, 20);
    EXPECT_EQ(throttled, 180);
    EXPECT_EQ(town.events("login-refused"), 1U);
    EXPECT_EQ(town.events("login-throttled"), 1U);
    CO_ASSERT_OK(co_await present(town, "t"));
}

CO_TEST(ForeignToken, TheCacheIsBounded) {
    IdentityOptions options;
    options.foreign_cache_size = 10;
    Town town(loop.get_executor(), options);
    auto& source = town.add_token_source("keystone");
    for (int i = 0; i < 30; ++i) source.tokens[fmt::format("t{}", i)] = somebody(town.clock, "carol");
    for (int i = 0; i < 30; ++i) CO_ASSERT_OK(co_await present(town, fmt::format("t{}", i)));
    EXPECT_EQ(source.asked, 30);
    CO_ASSERT_OK(co_await present(town, "t29"));
    EXPECT_EQ(source.asked, 30);
    CO_ASSERT_OK(co_await present(town, "t0"));
    EXPECT_EQ(source.asked, 31);
}

CO_TEST(ForeignToken, WithoutASourceNoneIsValid) {
    Town town(loop.get_executor());
    auto refused = co_await present(town, "t");
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
}

} // namespace orrery::identity
