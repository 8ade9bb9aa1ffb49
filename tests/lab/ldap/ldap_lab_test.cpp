#include "core/test_fixture.h"
#include "drivers/ldap/ldap.h"
#include "slapd.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>
#include <memory>

/// The LDAP driver against OpenLDAP.
namespace orrery::drivers {

using namespace std::chrono_literals;
using identity::Principal;
using identity::Role;

namespace {

/// One directory for all tests; each leaves it running.
lab::Slapd& slapd() {
    static lab::Slapd one;
    static const bool started = one.start();
    EXPECT_TRUE(started);
    return one;
}

LdapOptions options_for(const std::string& url) {
    LdapOptions options;
    options.url = url;
    options.ca = slapd().ca();
    options.bind_dn = "cn=search,dc=example,dc=org";
    options.bind_password = "search password";
    options.user_base = "dc=example,dc=org";
    options.group_base = "ou=groups,dc=example,dc=org";
    options.roles = {
        {"viewers", Role::viewer}, {"Operators", Role::operator_}, {"cn=admins,ou=groups,dc=example,dc=org", Role::admin}};
    return options;
}

std::unique_ptr<identity::PasswordSource> source_of(LdapOptions options) {
    auto source = ldap_source(std::move(options));
    EXPECT_TRUE(source.ok()) << source.error().text();
    return source.ok() ? std::move(*source) : nullptr;
}

Task<std::optional<Principal>> check(identity::PasswordSource& source, std::string user, std::string password) {
    return source.check(Context::make("test"), std::move(user), std::move(password));
}

/// How a check ended, in a word: a role, "unknown", or the error's code.
Task<std::string> outcome(identity::PasswordSource& source, std::string user, std::string password) {
    auto answer = co_await check(source, std::move(user), std::move(password));
    if (!answer.ok()) co_return std::string(name_of(answer.error().code));
    co_return *answer ? std::string(resource::name_of((*answer)->role)) : std::string("unknown");
}

asio::awaitable<void> outcome_into(identity::PasswordSource& source, std::string user, std::vector<std::string>& outcomes) {
    auto ended = co_await outcome(source, user, user + " password");
    outcomes.push_back(std::move(*ended));
}

} // namespace

class Ldap : public ::testing::Test {
protected:
    void SetUp() override {
        if (const auto missing = lab::Slapd::missing(); !missing.empty()) GTEST_SKIP() << missing;
        std::signal(SIGPIPE, SIG_IGN); // as the server does: libldap may write to a connection that was shut down
        slapd();
    }
    static std::string outcome_of(identity::PasswordSource& source, std::string user, std::string password) {
        asio::io_context loop(1);
        Result<std::string> result;
        asio::co_spawn(loop, outcome(source, std::move(user), std::move(password)),
                       [&result](std::exception_ptr, Result<std::string> ended) { result = std::move(ended); });
        loop.run();
        return result.ok() ? *result : result.error().text();
    }
    static Result<std::optional<Principal>> answer_of(identity::PasswordSource& source, std::string user, std::string password) {
        asio::io_context loop(1);
        Result<std::optional<Principal>> result;
        asio::co_spawn(loop, check(source, std::move(user), std::move(password)),
                       [&result](std::exception_ptr, Result<std::optional<Principal>> ended) { result = std::move(ended); });
        loop.run();
        return result;
    }
};

TEST_F(Ldap, TheCorrectPasswordGivesTheHighestRoleOfTheGroups) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "alice", "alice password"), "operator");
    EXPECT_EQ(outcome_of(*source, "carol", "carol password"), "admin");
}

TEST_F(Ldap, TheUserHasTheNameOfTheDirectory) {
    auto source = source_of(options_for(slapd().tls_url()));
    const auto answer = answer_of(*source, "ALICE", "alice password");
    ASSERT_TRUE(answer.ok() && answer->has_value());
    EXPECT_EQ((*answer)->user, "alice");
}

TEST_F(Ldap, WrongAndEmptyPasswordsAreRefused) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "alice", "bob password"), "unauthenticated");
    EXPECT_EQ(outcome_of(*source, "alice", ""), "unauthenticated");
    EXPECT_EQ(outcome_of(*source, "alice", std::string("\0", 1)), "unauthenticated");
    EXPECT_EQ(outcome_of(*source, "alice", std::string(1024, 'x')), "unauthenticated");
    EXPECT_EQ(outcome_of(*source, "keyless", "anything"), "unauthenticated");
}

TEST_F(Ldap, AnUnknownUserIsUnknown) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "nobody", "nobody password"), "unknown");
}

TEST_F(Ldap, TwoEntriesOfOneNameAreRefused) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "twin", "twin password"), "unauthenticated");
    auto options = options_for(slapd().tls_url());
    options.user_base = "ou=people,dc=example,dc=org";
    EXPECT_EQ(outcome_of(*source_of(options), "twin", "twin password"), "viewer");
}

TEST_F(Ldap, ANameCannotChangeTheSearch) {
    auto source = source_of(options_for(slapd().tls_url()));
    for (const auto& user : {"*", "ali*", "alice)(uid=*", "*)(objectClass=*", "alice))(|(uid=carol", "alice\\2a", "\\61lice",
                             "(uid=alice)", "al\x01ice", "{dn}", "j\xfcrgen", "alice,ou=people,dc=example,dc=org"})
        EXPECT_EQ(outcome_of(*source, user, "alice password"), "unknown") << user;
}

TEST_F(Ldap, ADnWithSpecialCharactersIsFoundInItsGroups) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "jsmith", "jsmith password"), "viewer");
}

TEST_F(Ldap, AUserWithoutAMappedGroupIsRefused) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "bob", "bob password"), "unauthenticated");
    EXPECT_EQ(outcome_of(*source, "bob", "wrong password"), "unauthenticated");
}

TEST_F(Ldap, GroupsMayNameUsersInsteadOfEntries) {
    auto options = options_for(slapd().tls_url());
    options.group_filter = "(memberUid={user})";
    options.roles = {{"posix", Role::operator_}};
    EXPECT_EQ(outcome_of(*source_of(options), "bob", "bob password"), "operator");
}

TEST_F(Ldap, WithoutAGroupBaseMemberOfIsUsed) {
    auto options = options_for(slapd().tls_url());
    options.group_base.clear();
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "operator");
    EXPECT_EQ(outcome_of(*source_of(options), "bob", "bob password"), "unauthenticated");
}

TEST_F(Ldap, StartTlsIsUsedAndTheCertificateVerified) {
    auto options = options_for(slapd().plain_url());
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "operator");
    options.ca = slapd().other_ca();
    const auto refused = answer_of(*source_of(options), "alice", "alice password");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::unavailable) << refused.error().text();
    options.url = slapd().tls_url();
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "unavailable");
    options.ca.clear(); // the system's, which did not sign it either
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "unavailable");
    options.ca = "/nonexistent/ca.pem";
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "unavailable");
    // And the other way round: one that failed must not have spoilt one that is right.
    EXPECT_EQ(outcome_of(*source_of(options_for(slapd().tls_url())), "alice", "alice password"), "operator");
}

TEST_F(Ldap, ACertificateOfAnotherNameIsRefused) {
    const auto answer = answer_of(*source_of(options_for(slapd().misnamed_url())), "alice", "alice password");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::unavailable) << answer.error().text();
}

TEST_F(Ldap, PlaintextIsUsedOnLoopbackIfConfigured) {
    auto options = options_for(slapd().plain_url());
    options.plain_on_loopback = true;
    options.ca = slapd().other_ca();
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "operator");
}

TEST_F(Ldap, AWrongBindPasswordIsAnErrorOfTheServerNotOfTheUser) {
    auto options = options_for(slapd().tls_url());
    options.bind_password = "not that";
    const auto answer = answer_of(*source_of(options), "alice", "alice password");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, Code::unavailable);
    EXPECT_THAT(answer.error().text(), ::testing::Not(::testing::HasSubstr("not that")));
}

TEST_F(Ldap, AMissingSearchBaseIsAnErrorOfTheServer) {
    auto options = options_for(slapd().tls_url());
    options.user_base = "ou=nowhere,dc=example,dc=org";
    EXPECT_EQ(outcome_of(*source_of(options), "alice", "alice password"), "unavailable");
}

TEST_F(Ldap, ADirectoryThatHangsIsATimeout) {
    const lab::SilentServer silent;
    for (const auto& url : {fmt::format("ldap://127.0.0.1:{}", silent.port()), fmt::format("ldaps://127.0.0.1:{}", silent.port())})
        for (const bool plain : {false, true}) {
            auto options = options_for(url);
            options.timeout = 500ms;
            options.plain_on_loopback = plain;
            auto source = source_of(options);
            const auto began = std::chrono::steady_clock::now();
            EXPECT_EQ(outcome_of(*source, "alice", "alice password"), "timeout") << url << plain;
            EXPECT_LT(std::chrono::steady_clock::now() - began, 4s) << url << plain;
        }
}

TEST_F(Ldap, ADirectoryThatIsDownIsUnavailableAndItsReturnIsDetected) {
    auto source = source_of(options_for(slapd().tls_url()));
    EXPECT_EQ(outcome_of(*source, "alice", "alice password"), "operator");
    slapd().stop();
    EXPECT_EQ(outcome_of(*source, "alice", "alice password"), "unavailable");
    ASSERT_TRUE(slapd().start());
    EXPECT_EQ(outcome_of(*source, "alice", "alice password"), "operator");
}

CO_TEST(LdapConcurrency, ManyConcurrentLoginsAreServedOrThrottled) {
    if (!lab::Slapd::missing().empty()) co_return;
    auto source = source_of(options_for(slapd().tls_url()));
    std::vector<std::string> outcomes;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 40; ++i) group.spawn(outcome_into(*source, i % 2 == 0 ? "alice" : "carol", outcomes));
    co_await group.join();
    EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), "operator") + std::count(outcomes.begin(), outcomes.end(), "admin"), 32);
    EXPECT_EQ(std::count(outcomes.begin(), outcomes.end(), "throttled"), 8);
}

} // namespace orrery::drivers
