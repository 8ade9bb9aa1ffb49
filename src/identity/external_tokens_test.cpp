#include "identity/identity_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::identity {

using namespace std::chrono_literals;
using namespace testing;

namespace {

TokenSource::Answer answer_for(Clock& clock, std::string user, Role role = Role::operator_, Duration life = 1h) {
    TokenSource::Answer answer;
    answer.principal.user = std::move(user);
    answer.principal.role = role;
    answer.expires_at = clock.wall() + std::chrono::duration_cast<std::chrono::milliseconds>(life);
    return answer;
}

Task<Principal> present(IdentityFixture& fixture, std::string token, std::string peer = "192.0.2.1") {
    return fixture.identity->check_external_token(Context::make("anonymous"), std::move(token), std::move(peer));
}

asio::awaitable<void> present_into(IdentityFixture& fixture, std::string token, std::vector<Result<Principal>>& answers) {
    answers.push_back(co_await present(fixture, std::move(token)));
}

} // namespace

CO_TEST(ExternalToken, IsCheckedOnceAMinute) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol");
    for (int i = 0; i < 10; ++i) {
        auto who = co_await present(fixture, "t");
        CO_ASSERT_OK(who);
        EXPECT_EQ(who->user, "carol");
        EXPECT_EQ(who->via, "keystone");
        EXPECT_EQ(who->source, "keystone");
    }
    EXPECT_EQ(source.calls, 1);
    EXPECT_EQ(fixture.events("login"), 1U);
    fixture.clock.advance(61s);
    CO_ASSERT_OK(co_await present(fixture, "t"));
    EXPECT_EQ(source.calls, 2);
    EXPECT_EQ(fixture.events("login"), 1U);
}

CO_TEST(ExternalToken, ARevokedTokenIsRefusedWithinAMinute) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol");
    CO_ASSERT_OK(co_await present(fixture, "t"));
    source.tokens.clear();
    fixture.clock.advance(61s);
    auto refused = co_await present(fixture, "t");
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
    EXPECT_EQ(fixture.events("login-refused"), 1U);
}

CO_TEST(ExternalToken, IsNotCachedBeyondItsExpiry) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol", Role::viewer, 10s);
    CO_ASSERT_OK(co_await present(fixture, "t"));
    fixture.clock.advance(10s);
    auto late = co_await present(fixture, "t");
    EXPECT_FALSE(late.ok());
}

CO_TEST(ExternalToken, ConcurrentRequestsShareOneCheck) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol");
    source.delay = 1s;
    std::vector<Result<Principal>> answers;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 50; ++i) group.spawn(present_into(fixture, "t", answers));
    while (fixture.clock.sleepers() == 0) std::ignore = co_await real_clock().sleep(1ms);
    fixture.clock.advance(1s);
    co_await group.join();
    EXPECT_EQ(source.calls, 1);
    EXPECT_EQ(std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.ok(); }), 50);
}

CO_TEST(ExternalToken, AnUnavailableSourceIsNotARefusal) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol");
    source.fail_with = Error{Code::unavailable, "connection refused by 10.0.0.1"};
    for (int i = 0; i < 100; ++i) {
        auto down = co_await present(fixture, "t");
        CO_ASSERT(!down.ok());
        EXPECT_EQ(down.error().code, Code::unavailable);
        EXPECT_THAT(down.error().message, ::testing::Not(::testing::HasSubstr("10.0.0.1")));
    }
    source.fail_with.reset();
    CO_ASSERT_OK(co_await present(fixture, "t"));
}

CO_TEST(ExternalToken, GuessingIsThrottledWithoutHarmToCachedTokens) {
    IdentityFixture fixture(loop.get_executor());
    auto& source = fixture.add_token_source("keystone");
    source.tokens["t"] = answer_for(fixture.clock, "carol");
    CO_ASSERT_OK(co_await present(fixture, "t"));
    int refused = 0, throttled = 0;
    for (int i = 0; i < 200; ++i) {
        auto answer = co_await present(fixture, fmt::format("guess{}", i));
        CO_ASSERT(!answer.ok());
        refused += answer.error().code == Code::unauthenticated ? 1 : 0;
        throttled += answer.error().code == Code::throttled ? 1 : 0;
    }
    EXPECT_EQ(refused, 20);
    EXPECT_EQ(throttled, 180);
    EXPECT_EQ(fixture.events("login-refused"), 1U);
    EXPECT_EQ(fixture.events("login-throttled"), 1U);
    CO_ASSERT_OK(co_await present(fixture, "t"));
}

CO_TEST(ExternalToken, TheCacheIsBounded) {
    IdentityOptions options;
    options.external_cache_size = 10;
    IdentityFixture fixture(loop.get_executor(), options);
    auto& source = fixture.add_token_source("keystone");
    for (int i = 0; i < 30; ++i) source.tokens[fmt::format("t{}", i)] = answer_for(fixture.clock, "carol");
    for (int i = 0; i < 30; ++i) CO_ASSERT_OK(co_await present(fixture, fmt::format("t{}", i)));
    EXPECT_EQ(source.calls, 30);
    CO_ASSERT_OK(co_await present(fixture, "t29"));
    EXPECT_EQ(source.calls, 30);
    CO_ASSERT_OK(co_await present(fixture, "t0"));
    EXPECT_EQ(source.calls, 31);
}

CO_TEST(ExternalToken, WithoutASourceNoTokenIsValid) {
    IdentityFixture fixture(loop.get_executor());
    auto refused = co_await present(fixture, "t");
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
}

} // namespace orrery::identity
