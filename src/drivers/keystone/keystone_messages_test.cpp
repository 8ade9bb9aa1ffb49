#include "drivers/keystone/keystone_messages.h"

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::drivers::keystone_messages_test {

namespace {

namespace json = boost::json;
using identity::Role;

/// As Keystone 22 (Zed) answered to GET /v3/auth/tokens?nocatalog.
constexpr std::string_view recorded =
    R"({"token": {"methods": ["password"], "user": {"domain": {"id": "default", "name": "Default"},
 "id": "3b5fbdb8f4a44c6f8a2b61c5d1a1c1f2", "name": "carol", "password_expires_at": null}, "audit_ids": ["h7aTyvSMQ2qJb2w5wTtqYg"],
 "expires_at": "2026-11-16T07:12:44.000000Z", "issued_at": "2026-11-16T06:12:44.000000Z",
 "project": {"domain": {"id": "default", "name": "Default"}, "id": "9e2f6f0b7d0c4b5d9a8e7c6b5a4f3e2d", "name": "cloud"}, "is_domain": false,
 "roles": [{"id": "1f", "name": "member"}, {"id": "2e", "name": "reader"}]}})";

KeystoneOptions sound_keystone() {
    KeystoneOptions options;
    options.url = "https://keystone.example.org:5000/v3";
    options.user = "orrery";
    options.password = "s3rvice \"quoted\" \\ pass";
    options.roles = {{"reader", Role::viewer}, {"Member", Role::operator_}, {"admin", Role::admin}};
    return options;
}

std::string changed(std::string_view from, std::string_view to) {
    std::string text(recorded);
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

} // namespace

TEST(KeystoneMessages, TheLoginNamesUserDomainAndProject) {
    const auto body = json::parse(login_request(sound_keystone()));
    const auto& user = body.at_pointer("/auth/identity/password/user");
    EXPECT_EQ(user.at("name").as_string(), "orrery");
    EXPECT_EQ(user.at("password").as_string(), "s3rvice \"quoted\" \\ pass");
    EXPECT_EQ(user.at_pointer("/domain/name").as_string(), "Default");
    EXPECT_EQ(body.at_pointer("/auth/scope/project/name").as_string(), "service");
}

TEST(KeystoneMessages, TheHighestRoleCounts) {
    const auto answer = read_holder(sound_keystone(), recorded);
    ASSERT_TRUE(answer.ok()) << answer.error().text();
    EXPECT_EQ(answer->principal.user, "carol");
    EXPECT_EQ(answer->principal.role, Role::operator_);
    EXPECT_EQ(to_rfc3339(answer->expires_at), "2026-11-16T07:12:44.000Z");
}

TEST(KeystoneMessages, TheNameOfAUserOfAnotherDomainIncludesTheDomain) {
    const auto answer = read_holder(sound_keystone(), changed(R"("name": "Default")", R"("name": "Partners")"));
    ASSERT_TRUE(answer.ok()) << answer.error().text();
    EXPECT_EQ(answer->principal.user, "carol@Partners");
}

TEST(KeystoneMessages, ATokenWithoutAMappedRoleIsRefused) {
    auto options = sound_keystone();
    options.roles = {{"admin", Role::admin}};
    const auto answer = read_holder(options, recorded);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::unauthenticated);
}

TEST(KeystoneMessages, TokensOfOtherProjectsAreRefusedIfProjectsAreConfigured) {
    auto options = sound_keystone();
    for (const auto* wanted : {"cloud", "9e2f6f0b7d0c4b5d9a8e7c6b5a4f3e2d"}) {
        options.projects = {"another", wanted};
        EXPECT_TRUE(read_holder(options, recorded).ok()) << wanted;
    }
    options.projects = {"another"};
    EXPECT_EQ(read_holder(options, recorded).error().code, Code::unauthenticated);
    // A project of that name in a domain where every user may create projects.
    options.projects = {"cloud"};
    const auto elsewhere = changed(R"("project": {"domain": {"id": "default", "name": "Default"})",
                                   R"("project": {"domain": {"id": "d2", "name": "Partners"})");
    EXPECT_EQ(read_holder(options, elsewhere).error().code, Code::unauthenticated);
    // A token without a project.
    EXPECT_EQ(read_holder(options, changed(R"("project":)", R"("system":)")).error().code, Code::unauthenticated);
}

TEST(KeystoneMessages, TruncatedOrMalformedAnswersAreUnavailable) {
    const auto options = sound_keystone();
    for (std::size_t length = 0; length < recorded.size(); ++length) {
        const auto answer = read_holder(options, recorded.substr(0, length));
        ASSERT_FALSE(answer.ok()) << length;
        ASSERT_EQ(answer.error().code, Code::unavailable) << length;
        ASSERT_FALSE(read_expiry(recorded.substr(0, length)).ok()) << length;
    }
    for (const auto* odd :
         {"null", "[]", "{}", R"({"token": 5})", R"({"token": {"user": "carol"}})", R"({"token": {"user": {"name": ["x"]}}})"}) {
        EXPECT_EQ(read_holder(options, odd).error().code, Code::unavailable) << odd;
    }
    EXPECT_FALSE(read_holder(options, changed(R"("roles": [)", R"("roles": [5, null, [], {"name": 7}], "other": [)")).ok());
    EXPECT_FALSE(read_holder(options, changed("carol", "ca\\u0000rol")).ok());
    EXPECT_FALSE(read_holder(options, std::string(100'000, '[')).ok());
}

TEST(KeystoneMessages, OnlyPrintableAsciiIsAToken) {
    EXPECT_TRUE(is_token_text("gAAAAABl-_x="));
    for (const auto& bad : {std::string(), std::string("a b"), std::string("a\r\nX-Evil: 1"), std::string("a\0b", 3),
                            std::string("\xc3\xa4"), std::string(8193, 'a')})
        EXPECT_FALSE(is_token_text(bad));
}

} // namespace orrery::drivers::keystone_messages_test
