#include "identity/account_cache.h"
#include "identity/identity_fixture.h"
#include "store/leadership.h"

#include <gmock/gmock.h>

namespace orrery::identity {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

std::string text_of(const resource::Outcome& outcome) { return std::string(outcome.once.at("token").as_string()); }

/// A leader's fence over the test's store.
Task<store::Fence> lead(IdentityFixture& fixture) {
    store::Transaction transaction;
    transaction.put("sys/leader/test", "me");
    CO_TRY(const auto revision, co_await fixture.store.apply(Context::background(), std::move(transaction)));
    co_return store::Fence("sys/leader/test", revision);
}

} // namespace

TEST(Digest, RoundTripsThroughHex) {
    const auto digest = sha256("abc");
    EXPECT_EQ(to_hex(digest), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(from_hex(to_hex(digest)), digest);
    for (const auto* bad : {"", "ba", "zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad00"})
        EXPECT_FALSE(from_hex(bad)) << bad;
}

TEST(TokenText, IsLongRandomAndHasARecognizableFormat) {
    const auto token = make_token();
    EXPECT_TRUE(has_token_format(token));
    EXPECT_EQ(token.size(), 56U);
    EXPECT_NE(token, make_token());
    EXPECT_FALSE(has_token_format(token + "a"));
    EXPECT_FALSE(has_token_format("orr_"));
    EXPECT_FALSE(has_token_format(""));
}

CO_TEST(Token, IsShownOnceAndStoredAsItsDigest) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"role", "operator"}}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}, {"role", "operator"}, {"ttl", "1h"}});
    CO_ASSERT_OK(made);
    const auto token = text_of(*made);
    EXPECT_THAT(fixture.all_text(), Not(HasSubstr(token)));
    EXPECT_THAT(fixture.all_text(), HasSubstr(to_hex(sha256(token))));
    const auto who = fixture.identity->check_token(token);
    CO_ASSERT_OK(who);
    EXPECT_EQ(who->user, "alice");
    EXPECT_EQ(who->role, Role::operator_);
    EXPECT_EQ(who->via, "token");
    EXPECT_EQ(who->token_name, "ci");
    EXPECT_EQ(who->expires_at, fixture.clock.wall() + 1h);
}

CO_TEST(Token, UnknownAndMalformedTokensGetTheSameRefusal) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}});
    CO_ASSERT_OK(made);
    const auto token = text_of(*made);
    auto other_case = token;
    other_case[10] = static_cast<char>(other_case[10] ^ 1);
    for (const auto& bad : {std::string(), std::string("orr_"), make_token(), token.substr(1), token + "x", other_case,
                            std::string(100'000, 'x'), std::string(56, '\0')}) {
        const auto refused = fixture.identity->check_token(bad);
        CO_ASSERT(!refused.ok());
        EXPECT_EQ(refused.error().text(), fixture.identity->check_token("nothing").error().text());
    }
}

CO_TEST(Token, HasAtMostTheRoleOfItsUserAndEndsWithTheUser) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"role", "operator"}}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}, {"role", "admin"}});
    CO_ASSERT_OK(made);
    const auto token = text_of(*made);
    EXPECT_EQ(fixture.identity->check_token(token)->role, Role::operator_);
    CO_ASSERT_OK(co_await fixture.patch("User", "alice", {{"role", "viewer"}}));
    EXPECT_EQ(fixture.identity->check_token(token)->role, Role::viewer);
    CO_ASSERT_OK(co_await fixture.patch("User", "alice", {{"disabled", true}}));
    EXPECT_FALSE(fixture.identity->check_token(token).ok());
    CO_ASSERT_OK(co_await fixture.patch("User", "alice", {{"disabled", false}}));
    EXPECT_TRUE(fixture.identity->check_token(token).ok());
    CO_ASSERT_OK(co_await fixture.remove("User", "alice"));
    EXPECT_FALSE(fixture.identity->check_token(token).ok());
    // A new user of the same name does not get the old tokens.
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"role", "admin"}}));
    EXPECT_FALSE(fixture.identity->check_token(token).ok());
}

CO_TEST(Token, ExpiresAtItsTimeOrAfterItsTtl) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    const auto until = fixture.clock.wall() + 2h;
    auto by_time = co_await fixture.create_token("by-time", {{"user", "alice"}, {"expires_at", to_rfc3339(until)}});
    auto by_ttl = co_await fixture.create_token("by-ttl", {{"user", "alice"}, {"ttl", "2h"}});
    auto by_default = co_await fixture.create_token("by-default", {{"user", "alice"}});
    CO_ASSERT_OK(by_time);
    CO_ASSERT_OK(by_ttl);
    CO_ASSERT_OK(by_default);
    fixture.clock.advance(2h - 1s);
    EXPECT_TRUE(fixture.identity->check_token(text_of(*by_time)).ok());
    EXPECT_TRUE(fixture.identity->check_token(text_of(*by_ttl)).ok());
    fixture.clock.advance(1s);
    EXPECT_FALSE(fixture.identity->check_token(text_of(*by_time)).ok());
    EXPECT_FALSE(fixture.identity->check_token(text_of(*by_ttl)).ok());
    // The holder of a token learns whether it has expired or was revoked.
    EXPECT_EQ(fixture.identity->check_token(text_of(*by_ttl)).error().message, "the token has expired");
    EXPECT_THAT(fixture.identity->check_token("orr_" + std::string(52, 'a')).error().message,
                HasSubstr("is unknown or was revoked"));
    fixture.clock.advance(24h * 90 - 2h - 1s);
    EXPECT_TRUE(fixture.identity->check_token(text_of(*by_default)).ok());
    fixture.clock.advance(1s);
    EXPECT_FALSE(fixture.identity->check_token(text_of(*by_default)).ok());
}

CO_TEST(Token, RefusesInvalidSpecs) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    const std::vector<std::pair<json::object, std::string>> wrong = {
        {{{"user", "nobody-here"}}, "spec.user"},
        {{{"role", "viewer"}}, "spec.user"},
        {{{"user", "alice"}, {"ttl", "1h"}, {"expires_at", "2099-01-01T00:00:00Z"}}, "spec.ttl"},
        {{{"user", "alice"}, {"ttl", "4000d"}}, "spec.ttl"},
        {{{"user", "alice"}, {"expires_at", "2001-01-01T00:00:00Z"}}, "spec.expires_at"},
        {{{"user", "alice"}, {"source", "ldap"}, {"ttl", "91d"}}, "spec.ttl"},
        {{{"user", "alice"}, {"role", "king"}}, "spec.role"},
    };
    for (const auto& [spec, path] : wrong) {
        auto refused = co_await fixture.create_token("t", spec);
        CO_ASSERT(!refused.ok());
        EXPECT_EQ(refused.error().code, Code::invalid);
        CO_ASSERT(!refused.error().fields.empty());
        EXPECT_EQ(refused.error().fields.front().path, path);
    }
    auto unknown_kind = co_await fixture.create_token("t", {{"user", "alice"}, {"kinds", json::array{"Nodd"}}});
    EXPECT_FALSE(unknown_kind.ok());
}

CO_TEST(Token, StoresItsScopeWithCanonicalKindNames) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}, {"kinds", json::array{"nodes", "Event"}}});
    CO_ASSERT_OK(made);
    EXPECT_THAT(fixture.identity->check_token(text_of(*made))->kinds, ElementsAre("Node", "Event"));
}

CO_TEST(Token, KeepsItsDigestWhenChanged) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"role", "operator"}}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}, {"role", "operator"}, {"ttl", "1h"}});
    CO_ASSERT_OK(made);
    auto changed = co_await fixture.patch("Token", "ci", {{"role", "viewer"}, {"ttl", "3h"}});
    CO_ASSERT_OK(changed);
    EXPECT_TRUE(changed->once.empty());
    const auto who = fixture.identity->check_token(text_of(*made));
    CO_ASSERT_OK(who);
    EXPECT_EQ(who->role, Role::viewer);
    EXPECT_EQ(who->expires_at, fixture.clock.wall() + 3h);
    auto stolen = co_await fixture.patch("Token", "ci", {{"user", "bob"}});
    EXPECT_FALSE(stolen.ok());
    CO_ASSERT_OK(co_await fixture.remove("Token", "ci"));
    EXPECT_FALSE(fixture.identity->check_token(text_of(*made)).ok());
}

CO_TEST(Token, ADryRunReturnsNoToken) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    resource::WriteOptions dry;
    dry.dry_run = true;
    auto made = co_await fixture.resources->create(Context::make("test"), fixture.tokens(),
                                                   an_object("Token", "ci", {{"user", "alice"}}), dry);
    CO_ASSERT_OK(made);
    EXPECT_TRUE(made->once.empty());
}

CO_TEST(Token, ExpiredAndOrphanedTokensAreRemovedAndLastUseIsStoredHourly) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    CO_ASSERT_OK(co_await fixture.create_user("bob", {}));
    auto short_lived = co_await fixture.create_token("short", {{"user", "alice"}, {"ttl", "1h"}});
    auto long_lived = co_await fixture.create_token("long", {{"user", "alice"}, {"ttl", "30d"}});
    auto orphan = co_await fixture.create_token("orphan", {{"user", "bob"}, {"ttl", "30d"}});
    CO_ASSERT(short_lived.ok() && long_lived.ok() && orphan.ok());
    CO_ASSERT_OK(co_await fixture.remove("User", "bob"));
    fixture.clock.advance(2h);
    EXPECT_TRUE(fixture.identity->check_token(text_of(*long_lived)).ok());
    auto fence = co_await lead(fixture);
    CO_ASSERT_OK(fence);
    auto gone = co_await fixture.identity->remove_expired(Context::background(), *fence);
    CO_ASSERT_OK(gone);
    EXPECT_EQ(*gone, 2);
    const auto kept = fixture.resources->get(fixture.tokens(), "long");
    CO_ASSERT_OK(kept);
    EXPECT_EQ(kept->status.at("last_used").as_string(), to_rfc3339(fixture.clock.wall()));
    EXPECT_TRUE(fixture.identity->check_token(text_of(*long_lived)).ok());
    // Within the hour nothing is written again.
    const auto revision = fixture.store.revision();
    fixture.clock.advance(30min);
    EXPECT_TRUE(fixture.identity->check_token(text_of(*long_lived)).ok());
    CO_ASSERT_OK(co_await fixture.identity->remove_expired(Context::background(), *fence));
    EXPECT_EQ(fixture.store.revision(), revision);
}

CO_TEST(Token, WritesOfAnotherServerTakeEffectWhenReceived) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}});
    CO_ASSERT_OK(made);
    // A server that starts later reads all tokens from the store.
    Identity other(*fixture.resources, fixture.clock, {});
    EXPECT_TRUE(other.check_token(text_of(*made)).ok());
    CO_ASSERT_OK(co_await fixture.remove("Token", "ci"));
    EXPECT_FALSE(other.check_token(text_of(*made)).ok());
}

} // namespace orrery::identity
