#include "identity/identity_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>
#include <set>

namespace orrery::identity {

using namespace std::chrono_literals;
using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

asio::awaitable<void> log_in_into(IdentityFixture& fixture, std::string password, std::optional<std::string> new_password,
                                  std::vector<Result<Login>>& logins) {
    logins.push_back(co_await fixture.log_in("alice", std::move(password), std::move(new_password)));
}

Task<Unit> change(IdentityFixture& fixture, const Login& by, std::string user, std::optional<std::string> current,
                  std::string password) {
    auto principal = fixture.identity->check_token(by.token).value_or(by.principal);
    return fixture.identity->set_password(Context::make(by.principal.user), std::move(principal), std::move(user),
                                          std::move(current), std::move(password), "192.0.2.1");
}

} // namespace

CO_TEST(FirstAdmin, IsCreatedOnceWithAOneTimePassword) {
    IdentityFixture fixture(loop.get_executor());
    auto made = co_await fixture.identity->ensure_admin(Context::background(), {});
    CO_ASSERT_OK(made);
    CO_ASSERT(made->has_value());
    EXPECT_THAT(fixture.all_text(), Not(HasSubstr(**made)));
    auto again = co_await fixture.identity->ensure_admin(Context::background(), {});
    CO_ASSERT_OK(again);
    EXPECT_FALSE(again->has_value());

    auto plain = co_await fixture.log_in("admin", **made);
    CO_ASSERT(!plain.ok());
    EXPECT_EQ(plain.error().code, Code::denied);
    EXPECT_EQ(plain.error().remedy, "set a new password");
    CO_ASSERT(plain.error().fields.size() == 1U);
    EXPECT_EQ(plain.error().fields.front().path, new_password_field); // by which the API and its clients know what to do
    auto weak = co_await fixture.log_in("admin", **made, "short");
    CO_ASSERT(!weak.ok());
    EXPECT_EQ(weak.error().code, Code::invalid);
    auto same = co_await fixture.log_in("admin", **made, *made);
    CO_ASSERT(!same.ok());
    EXPECT_EQ(same.error().code, Code::invalid);
    auto login = co_await fixture.log_in("admin", **made, good_password);
    CO_ASSERT_OK(login);
    EXPECT_EQ(login->principal.role, Role::admin);
    EXPECT_TRUE(fixture.identity->check_token(login->token).ok());
    auto used_up = co_await fixture.log_in("admin", **made, other_password);
    CO_ASSERT(!used_up.ok());
    EXPECT_EQ(used_up.error().code, Code::unauthenticated);
    CO_ASSERT_OK(co_await fixture.log_in("admin", good_password));
}

CO_TEST(FirstAdmin, UsesAGivenPassword) {
    IdentityFixture fixture(loop.get_executor());
    auto weak = co_await fixture.identity->ensure_admin(Context::background(), "short");
    EXPECT_FALSE(weak.ok());
    auto made = co_await fixture.identity->ensure_admin(Context::background(), good_password);
    CO_ASSERT_OK(made);
    EXPECT_FALSE(made->has_value());
    CO_ASSERT_OK(co_await fixture.log_in("admin", good_password));
}

CO_TEST(FirstAdmin, IsNotCreatedUnlessItsPasswordCouldBeKept) {
    IdentityFixture fixture(loop.get_executor());
    const auto refused = co_await fixture.identity->ensure_admin(
        Context::background(), {}, [](const std::string&) -> Result<Unit> { return Error{Code::no_space, "the disk is full"}; });
    CO_ASSERT(!refused.ok());
    std::string kept;
    const auto made =
        co_await fixture.identity->ensure_admin(Context::background(), {}, [&](const std::string& one_time) -> Result<Unit> {
            kept = one_time;
            return Unit{};
        });
    CO_ASSERT_OK(made);
    CO_ASSERT(made->has_value()); // the refused attempt left no user behind
    EXPECT_EQ(**made, kept);
    CO_ASSERT_OK(co_await fixture.log_in("admin", kept, good_password));
}

CO_TEST(FirstAdmin, CanBeResetWhenThePasswordIsLost) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.identity->ensure_admin(Context::background(), good_password));
    auto session = co_await fixture.log_in("admin", good_password);
    CO_ASSERT_OK(session);
    EXPECT_TRUE(*co_await fixture.identity->verify_user_password(Context::background(), "admin", good_password));
    EXPECT_FALSE(*co_await fixture.identity->verify_user_password(Context::background(), "admin", other_password));
    EXPECT_FALSE(*co_await fixture.identity->verify_user_password(Context::background(), "nobody", other_password));
    auto made = co_await fixture.identity->reset_admin(Context::background(), {});
    CO_ASSERT_OK(made);
    CO_ASSERT(made->has_value());
    EXPECT_FALSE(fixture.identity->check_token(session->token).ok());
    EXPECT_FALSE((co_await fixture.log_in("admin", good_password)).ok());
    CO_ASSERT_OK(co_await fixture.log_in("admin", **made, other_password));
    // With a given password, and after admin was demoted or deleted.
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}, {"role", "admin"}}));
    CO_ASSERT_OK(co_await fixture.remove("User", "admin"));
    made = co_await fixture.identity->reset_admin(Context::background(), good_password);
    CO_ASSERT_OK(made);
    EXPECT_FALSE(made->has_value());
    const auto login = co_await fixture.log_in("admin", good_password);
    CO_ASSERT_OK(login);
    EXPECT_EQ(login->principal.role, Role::admin);
}

CO_TEST(Login, CreatesASessionThatEndsAtLogoutOrExpiry) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}, {"role", "operator"}}));
    auto first = co_await fixture.log_in("alice", good_password);
    auto second = co_await fixture.log_in("alice", good_password);
    CO_ASSERT_OK(first);
    CO_ASSERT_OK(second);
    EXPECT_EQ(first->expires_at, fixture.clock.wall() + 12h);
    EXPECT_EQ(fixture.events("login"), 2U);
    const auto who = fixture.identity->check_token(first->token);
    CO_ASSERT_OK(who);
    EXPECT_EQ(who->role, Role::operator_);
    CO_ASSERT_OK(co_await fixture.identity->logout(Context::make("alice"), *who));
    EXPECT_FALSE(fixture.identity->check_token(first->token).ok());
    EXPECT_TRUE(fixture.identity->check_token(second->token).ok());
    fixture.clock.advance(12h);
    EXPECT_FALSE(fixture.identity->check_token(second->token).ok());
}

CO_TEST(Login, LogoutKeepsOtherTokens) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {}));
    auto made = co_await fixture.create_token("ci", {{"user", "alice"}});
    CO_ASSERT_OK(made);
    const std::string token(made->once.at("token").as_string());
    auto refused = co_await fixture.identity->logout(Context::make("alice"), *fixture.identity->check_token(token));
    EXPECT_FALSE(refused.ok());
    EXPECT_TRUE(fixture.identity->check_token(token).ok());
}

CO_TEST(Login, EveryRefusalIsTheSame) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    CO_ASSERT_OK(co_await fixture.create_user("sleeper", {{"password", good_password}, {"disabled", true}}));
    CO_ASSERT_OK(co_await fixture.create_user("mute", {}));
    auto& ldap = fixture.add_password_source("ldap");
    ldap.users["carol"] = {"carols password", Role::viewer};
    ldap.users["dave"] = {"daves password", Role::nobody};
    const std::vector<std::pair<std::string, std::string>> wrong = {
        {"alice", other_password},
        {"alice", ""},
        {"nobody", good_password},
        {"sleeper", good_password},
        {"mute", ""},
        {"mute", good_password},
        {"carol", "not this"},
        {"dave", "daves password"},
        {"", ""},
        {"", good_password},
        {"../users", "x"},
        {"al\nice", "x"},
        {std::string(10'000, 'a'), "x"},
        {"alice", std::string(100'000, 'x')},
    };
    std::set<std::string> answers;
    int i = 0;
    for (const auto& [user, password] : wrong) {
        auto refused = co_await fixture.log_in(user, password, {}, fmt::format("192.0.2.{}", ++i));
        CO_ASSERT(!refused.ok());
        answers.insert(refused.error().text());
    }
    EXPECT_EQ(answers.size(), 1U) << *answers.begin() << *answers.rbegin();
    EXPECT_THAT(*answers.begin(), HasSubstr("unauthenticated"));
}

CO_TEST(Login, AnUnknownUserCostsWhatAWrongPasswordCosts) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    std::vector<std::clock_t> known, unknown; // CPU time, which does not depend on the load of the host
    for (int i = 0; i < 5; ++i) {
        auto began = std::clock();
        auto refused = co_await fixture.log_in("alice", other_password, {}, fmt::format("192.0.2.{}", i));
        known.push_back(std::clock() - began);
        began = std::clock();
        auto nobody = co_await fixture.log_in(fmt::format("nobody{}", i), other_password, {}, fmt::format("198.51.100.{}", i));
        unknown.push_back(std::clock() - began);
        CO_ASSERT(!refused.ok() && !nobody.ok());
    }
    std::sort(known.begin(), known.end());
    std::sort(unknown.begin(), unknown.end());
    // Without the dummy hash the time would be a hundredth.
    EXPECT_GT(unknown[2], known[2] / 3);
    EXPECT_LT(unknown[2], known[2] * 3);
}

CO_TEST(Login, GuessingAUsersPasswordIsThrottledForAllAddresses) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    for (int i = 0; i < 5; ++i) {
        auto wrong = co_await fixture.log_in(i % 2 == 0 ? "alice" : "Alice", other_password, {}, fmt::format("192.0.2.{}", i));
        CO_ASSERT(!wrong.ok());
        EXPECT_EQ(wrong.error().code, Code::unauthenticated);
    }
    auto throttled = co_await fixture.log_in("alice", good_password, {}, "192.0.2.99");
    CO_ASSERT(!throttled.ok());
    EXPECT_EQ(throttled.error().code, Code::throttled);
    EXPECT_EQ(fixture.events("login-throttled"), 1U);
    fixture.clock.advance(30s);
    CO_ASSERT_OK(co_await fixture.log_in("alice", good_password, {}, "192.0.2.99"));
}

CO_TEST(Login, GuessingFromAnAddressIsThrottledForAllUsersAndDoesNotFillTheStore) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    int throttled = 0;
    for (int i = 0; i < 300; ++i) {
        auto wrong = co_await fixture.log_in(fmt::format("user{}", i), "whatever it is", {}, fmt::format("2001:db8::{:x}", i + 1));
        CO_ASSERT(!wrong.ok());
        throttled += wrong.error().code == Code::throttled ? 1 : 0;
    }
    EXPECT_EQ(throttled, 295);
    EXPECT_LE(fixture.events("login-refused") + fixture.events("login-throttled"), 120U);
    EXPECT_EQ(fixture.events("login-refused"), 5U);
    CO_ASSERT_OK(co_await fixture.log_in("alice", good_password, {}, "192.0.2.1"));
}

CO_TEST(Login, APasswordTypedAsTheUserNameIsNotRecorded) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto& directory = fixture.add_password_source("ldap");
    directory.users["bob"] = {good_password, Role::viewer};
    for (const auto* peer : {"192.0.2.1", "192.0.2.2"}) std::ignore = co_await fixture.log_in(good_password, "x", {}, peer);
    std::ignore = co_await fixture.log_in("alice", other_password, {}, "192.0.2.3");
    std::ignore = co_await fixture.log_in("bob", other_password, {}, "192.0.2.4");
    EXPECT_EQ(fixture.events("login-refused"), 4U);
    const auto text = fixture.all_text();
    EXPECT_THAT(text, Not(HasSubstr(good_password)));
    EXPECT_THAT(text, Not(HasSubstr("correct")));
    EXPECT_THAT(text, HasSubstr("\"User/alice\""));
    EXPECT_THAT(text, HasSubstr("\"User/bob\"")) << "the directory has that user";
    const auto first = text.find("User/unknown-"), second = text.find("User/unknown-", first + 1);
    CO_ASSERT(second != std::string::npos);
    EXPECT_EQ(text.substr(first, 25), text.substr(second, 25)) << "the same name is recognised again";
}

CO_TEST(Login, OneRefusalAMinuteIsRecordedPerUserAndAddress) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    for (int i = 0; i < 4; ++i) std::ignore = co_await fixture.log_in("alice", other_password);
    EXPECT_EQ(fixture.events("login-refused"), 1U);
    fixture.clock.advance(60s);
    std::ignore = co_await fixture.log_in("alice", other_password);
    EXPECT_EQ(fixture.events("login-refused"), 2U);
    EXPECT_THAT(fixture.all_text(), HasSubstr("\"suppressed\":3"));
    EXPECT_THAT(fixture.all_text(), Not(HasSubstr(other_password)));
}

CO_TEST(Login, ChecksBuiltInUsersFirstThenDirectoriesInOrder) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto& first = fixture.add_password_source("ldap");
    auto& second = fixture.add_password_source("other");
    first.users["alice"] = {"from the directory", Role::admin};
    first.users["carol"] = {"carols password", Role::operator_};
    second.users["carol"] = {"another carol", Role::admin};
    second.users["dave"] = {"daves password", Role::viewer};
    // A built-in user takes precedence over a directory user of the same name.
    auto shadowed = co_await fixture.log_in("alice", "from the directory");
    EXPECT_FALSE(shadowed.ok());
    EXPECT_EQ(first.calls, 0);
    auto carol = co_await fixture.log_in("carol", "carols password");
    CO_ASSERT_OK(carol);
    EXPECT_EQ(carol->principal.source, "ldap");
    EXPECT_EQ(carol->principal.role, Role::operator_);
    auto who = fixture.identity->check_token(carol->token);
    CO_ASSERT_OK(who);
    EXPECT_EQ(who->source, "ldap");
    EXPECT_EQ(who->role, Role::operator_);
    auto other_carol = co_await fixture.log_in("carol", "another carol");
    EXPECT_FALSE(other_carol.ok());
    auto dave = co_await fixture.log_in("dave", "daves password");
    CO_ASSERT_OK(dave);
    EXPECT_EQ(dave->principal.source, "other");
    // While the first source is unavailable, the second must not decide.
    first.fail_with = Error{Code::unavailable, "the host 10.1.2.3 is down"};
    auto blocked = co_await fixture.log_in("dave", "daves password");
    CO_ASSERT(!blocked.ok());
    EXPECT_EQ(blocked.error().code, Code::unavailable);
    EXPECT_THAT(blocked.error().text(), Not(HasSubstr("10.1.2.3")));
    CO_ASSERT_OK(co_await fixture.log_in("alice", good_password));
}

CO_TEST(Login, AOneTimePasswordWorksOnceEvenForConcurrentLogins) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}, {"one_time", true}}));
    std::vector<Result<Login>> logins;
    TaskGroup group(loop.get_executor());
    group.spawn(log_in_into(fixture, good_password, "the first new one", logins));
    group.spawn(log_in_into(fixture, good_password, "the second new one", logins));
    co_await group.join();
    EXPECT_EQ(std::count_if(logins.begin(), logins.end(), [](const auto& login) { return login.ok(); }), 1);
}

CO_TEST(Login, ConcurrentCorrectLoginsAllSucceed) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    std::vector<Result<Login>> logins;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 8; ++i) group.spawn(log_in_into(fixture, good_password, {}, logins));
    co_await group.join();
    for (const auto& login : logins) EXPECT_TRUE(login.ok()) << login.error().text();
}

CO_TEST(Login, ConcurrentWrongLoginsGainNothing) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    std::vector<Result<Login>> logins;
    TaskGroup group(loop.get_executor());
    for (int i = 0; i < 20; ++i) group.spawn(log_in_into(fixture, other_password, {}, logins));
    co_await group.join();
    const auto refused_by = [&](Code code) {
        return std::count_if(logins.begin(), logins.end(),
                             [&](const auto& login) { return !login.ok() && login.error().code == code; });
    };
    EXPECT_EQ(refused_by(Code::unauthenticated), 5);
    EXPECT_EQ(refused_by(Code::throttled), 15);
}

CO_TEST(Login, AUserHasALimitedNumberOfSessions) {
    IdentityOptions options;
    options.max_sessions_per_user = 3;
    IdentityFixture fixture(loop.get_executor(), options);
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    std::vector<std::string> tokens;
    for (int i = 0; i < 5; ++i) {
        auto login = co_await fixture.log_in("alice", good_password);
        CO_ASSERT_OK(login);
        tokens.push_back(login->token);
        fixture.clock.advance(1s);
    }
    std::vector<bool> live;
    for (const auto& token : tokens) live.push_back(fixture.identity->check_token(token).ok());
    EXPECT_EQ(live, (std::vector<bool>{false, false, true, true, true}));
}

CO_TEST(Login, AStoreFailureIsNotARefusal) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    fixture.store.fail_with = Error{Code::no_space, "the disk is full"};
    for (int i = 0; i < 7; ++i) {
        auto full = co_await fixture.log_in("alice", good_password);
        CO_ASSERT(!full.ok());
        EXPECT_EQ(full.error().code, Code::no_space);
    }
    fixture.store.fail_with.reset();
    CO_ASSERT_OK(co_await fixture.log_in("alice", good_password));
}

CO_TEST(SetPassword, ChangesTheOwnPasswordAndEndsOtherSessions) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto here = co_await fixture.log_in("alice", good_password);
    auto there = co_await fixture.log_in("alice", good_password);
    auto program = co_await fixture.create_token("ci", {{"user", "alice"}});
    CO_ASSERT(here.ok() && there.ok() && program.ok());
    auto without = co_await change(fixture, *here, "alice", {}, other_password);
    CO_ASSERT(!without.ok());
    EXPECT_EQ(without.error().code, Code::denied);
    auto wrong = co_await change(fixture, *here, "alice", "not the one", other_password);
    CO_ASSERT(!wrong.ok());
    EXPECT_EQ(wrong.error().code, Code::denied);
    auto weak = co_await change(fixture, *here, "alice", good_password, "short");
    CO_ASSERT(!weak.ok());
    EXPECT_EQ(weak.error().code, Code::invalid);
    EXPECT_TRUE(fixture.identity->check_token(there->token).ok());
    CO_ASSERT_OK(co_await change(fixture, *here, "alice", good_password, other_password));
    EXPECT_TRUE(fixture.identity->check_token(here->token).ok());
    EXPECT_FALSE(fixture.identity->check_token(there->token).ok());
    EXPECT_TRUE(fixture.identity->check_token(std::string(program->once.at("token").as_string())).ok());
    CO_ASSERT_OK(co_await fixture.log_in("alice", other_password));
    auto old = co_await fixture.log_in("alice", good_password);
    EXPECT_FALSE(old.ok());
}

CO_TEST(SetPassword, OnlyAnAdminSetsPasswordsOfOthers) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("root", {{"password", good_password}, {"role", "admin"}}));
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}, {"role", "operator"}, {"one_time", true}}));
    CO_ASSERT_OK(co_await fixture.create_user("bob", {{"password", good_password}, {"role", "operator"}}));
    auto root = co_await fixture.log_in("root", good_password);
    auto bob = co_await fixture.log_in("bob", good_password);
    CO_ASSERT(root.ok() && bob.ok());
    auto denied = co_await change(fixture, *bob, "alice", good_password, other_password);
    CO_ASSERT(!denied.ok());
    EXPECT_EQ(denied.error().code, Code::denied);
    auto nobody = co_await change(fixture, *root, "nobody", {}, other_password);
    CO_ASSERT(!nobody.ok());
    EXPECT_EQ(nobody.error().code, Code::not_found);
    CO_ASSERT_OK(co_await change(fixture, *root, "alice", {}, other_password));
    CO_ASSERT_OK(co_await fixture.log_in("alice", other_password));
}

CO_TEST(SetPassword, GuessingTheCurrentPasswordIsThrottled) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto here = co_await fixture.log_in("alice", good_password);
    CO_ASSERT_OK(here);
    for (int i = 0; i < 5; ++i) std::ignore = co_await change(fixture, *here, "alice", "not the one", other_password);
    auto throttled = co_await change(fixture, *here, "alice", good_password, other_password);
    CO_ASSERT(!throttled.ok());
    EXPECT_EQ(throttled.error().code, Code::throttled);
}

CO_TEST(SetPassword, ADirectoryUserOfTheSameNameIsNotTheBuiltInUser) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    Login other;
    other.principal.user = "alice";
    other.principal.role = Role::operator_;
    other.principal.source = "ldap";
    auto denied = co_await change(fixture, other, "alice", good_password, other_password);
    CO_ASSERT(!denied.ok());
    EXPECT_EQ(denied.error().code, Code::denied);
}

CO_TEST(SetPassword, APasswordWrittenToTheUserResourceEndsSessions) {
    IdentityFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create_user("alice", {{"password", good_password}}));
    auto login = co_await fixture.log_in("alice", good_password);
    CO_ASSERT_OK(login);
    CO_ASSERT_OK(co_await fixture.patch("User", "alice", {{"full_name", "Alice"}}));
    EXPECT_TRUE(fixture.identity->check_token(login->token).ok());
    CO_ASSERT_OK(co_await fixture.patch("User", "alice", {{"password", other_password}}));
    EXPECT_FALSE(fixture.identity->check_token(login->token).ok());
}

} // namespace orrery::identity
