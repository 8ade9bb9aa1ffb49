#include "cli/cli_fixture.h"
#include "cli/session.h"
#include "net/tls_fixture.h"

#include <boost/json/serialize.hpp>

#include <sys/stat.h>

namespace orrery::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LogIn : public CliTest {
protected:
    LogIn() { std::filesystem::remove_all(home / ".config"); }
    std::string body_of(std::size_t i) { return api.seen().at(i).body; }
};

TEST_F(LogIn, SavesASessionThatOnlyItsOwnerCanRead) {
    answers = {"right"};
    EXPECT_EQ(run({"login", "admin"}), 0) << err;
    EXPECT_EQ(out, "logged in to " + api.url() + " as admin (admin), for 12h; session saved in " +
                       (home / ".config/orrery/session.yaml").string() + "\n");
    EXPECT_THAT(prompts, ElementsAre("Password of admin on " + api.url() + ": "));
    EXPECT_THAT(session(), HasSubstr("token: orr_abc\n"));
    struct stat about{};
    ASSERT_EQ(::stat((home / ".config/orrery/session.yaml").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777U, 0600U);
    environment = {{"HOME", home.path().string()}}; // the session knows the server
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_EQ(out, "admin (admin) on " + api.url() + ", authenticated by token\n");
    EXPECT_EQ(run({"logout"}), 0) << err;
    EXPECT_THAT(session(), Not(HasSubstr("orr_abc")));
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_EQ(err, "error: you are not logged in to " + api.url() + "\nremedy: orrery login\n");
    EXPECT_EQ(run({"logout"}), 0);
    EXPECT_EQ(out, "not logged in\n");
}

TEST_F(LogIn, AOneTimePasswordIsReplacedDuringLogin) {
    answers = {"one-time", "a new long password", "a new long password"};
    EXPECT_EQ(run({"login", "admin"}), 0) << err;
    EXPECT_EQ(err, "this is a one-time password; choose a new password\n");
    EXPECT_EQ(body_of(1), R"({"user":"admin","password":"one-time","new_password":"a new long password"})");
    answers = {"one-time", "one", "another"};
    EXPECT_EQ(run({"login", "admin"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("error: the two passwords differ\n"));
}

TEST_F(LogIn, WorksWithoutATerminalFromFiles) {
    EXPECT_EQ(run({"login", "robot", "--password-file", file("p", "one-time\n"), "--new-password-file", file("n", "fresh one\n")}),
              0)
        << err;
    EXPECT_EQ(body_of(0), R"({"user":"robot","password":"one-time","new_password":"fresh one"})");
    input = "right\n";
    EXPECT_EQ(run({"login", "robot", "--password-file", "-"}), 0) << err;
    EXPECT_EQ(run({"login", "robot"}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("remedy: give --password-file FILE"));
    EXPECT_EQ(run({"login", "robot", "--password-file", file("empty", "\n")}), exit_code::invalid);
}

TEST_F(LogIn, AWrongPasswordGivesTheErrorOfTheServer) {
    answers = {"wrong"};
    EXPECT_EQ(run({"login", "admin"}), exit_code::denied);
    EXPECT_EQ(err, "error: wrong user or password\nremedy: check both; an admin can set a new password\n");
    EXPECT_FALSE(std::filesystem::exists(home / ".config/orrery/session.yaml"));
    EXPECT_EQ(run({"login", "admin"}), exit_code::invalid); // no answers left: no terminal
}

TEST_F(LogIn, AnInterruptedPromptPrintsNoError) {
    answers = {"one-time"}; // and then Ctrl-C
    EXPECT_EQ(run({"login", "admin"}), exit_code::interrupted);
}

TEST_F(LogIn, ASessionReadableByOthersIsRejected) {
    save_session(api.url(), "orr_abc");
    ::chmod((home / ".config/orrery/session.yaml").c_str(), 0644);
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_THAT(err, HasSubstr("remedy: chmod 600 "));
}

TEST_F(LogIn, ATokenIsSentOnlyToItsServer) {
    save_session("http://127.0.0.1:1", "orr_abc");
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_FALSE(api.seen().back().headers.has("Authorization"));
    EXPECT_EQ(run({"whoami", "--token-file", file("t", "orr_abc\n")}), 0) << err;
    EXPECT_THAT(err, HasSubstr("is readable by every user: chmod 600"));
    ::chmod((home / "t").c_str(), 0600);
    EXPECT_EQ(run({"whoami", "--token-file", home / "t"}), 0);
    EXPECT_EQ(err, "");
    environment.emplace_back("ORRERY_TOKEN_FILE", home / "t");
    EXPECT_EQ(run({"whoami", "-o", "json"}), 0) << err;
    EXPECT_EQ(out, "{\n  \"user\": \"admin\",\n  \"role\": \"admin\",\n  \"via\": \"token\"\n}\n");
    EXPECT_EQ(run({"whoami", "--token-file", file("two", "a\nb\n")}), exit_code::invalid);
    EXPECT_EQ(run({"whoami", "--token-file", file("odd", "a b\n")}), exit_code::invalid);
}

TEST_F(LogIn, WarnsAboutAnUnencryptedConnection) {
    answers = {"right"};
    EXPECT_EQ(run({"login", "admin", "-s", "http://192.0.2.1:1", "--timeout", "50ms"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("warning: the connection to http://192.0.2.1:1 is not encrypted"));
}

TEST_F(LogIn, TheServerCertificateIsVerifiedWithTheGivenCa) {
    net::peers::TestAuthority authority(home.path());
    const auto files = authority.sign("server", "IP:127.0.0.1");
    const auto tls = net::tls_server({.certificate = files.certificate, .key = files.key, .client_ca = {}});
    ASSERT_TRUE(tls.ok()) << tls.error().text();
    FakeApi secure(*tls);
    environment = {{"HOME", home.path().string()}};
    answers = {"right", "right"};
    EXPECT_EQ(run({"login", "admin", "-s", secure.url(), "--ca", authority.file()}), 0) << err;
    EXPECT_EQ(run({"whoami"}), 0) << err; // the session knows the authority too
    EXPECT_EQ(run({"login", "admin", "-s", secure.url() + "/"}), 0) << err;
    save_session("http://127.0.0.1:1", "orr_abc");
    EXPECT_EQ(run({"whoami", "-s", secure.url()}), exit_code::denied);
    EXPECT_THAT(err, HasSubstr("--ca FILE"));
    EXPECT_EQ(run({"whoami", "-s", secure.url(), "--ca", home / "none.pem"}), exit_code::invalid);
}

class Contexts : public CliTest {
protected:
    Contexts() {
        std::filesystem::remove_all(home / ".config");
        environment = {{"HOME", home.path().string()}};
    }
    FakeApi second;
};

TEST_F(Contexts, ALoginToASecondServerAddsAContext) {
    answers = {"right", "right"};
    EXPECT_EQ(run({"login", "admin", "-s", api.url()}), 0) << err;
    EXPECT_EQ(run({"login", "alice", "-s", second.url(), "--name", "staging"}), 0) << err;
    EXPECT_THAT(out, HasSubstr(" as context staging\n"));
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_THAT(out, HasSubstr(second.url()));
    EXPECT_EQ(run({"whoami", "-s", api.url()}), 0) << err; // its token is still there
    EXPECT_EQ(run({"context", "list"}), 0) << err;
    const auto first = context_name(api.url());
    EXPECT_THAT(out, HasSubstr(first + " "));
    EXPECT_THAT(out, ::testing::ContainsRegex("staging +\\* +" + second.url() + " +alice +12h"));
    EXPECT_EQ(run({"context", "use", first}), 0) << err;
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_THAT(out, HasSubstr(api.url()));
    EXPECT_EQ(run({"context", "list", "-o", "json"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\"current\": true"));
    EXPECT_THAT(out, Not(HasSubstr("orr_abc")));
}

TEST_F(Contexts, AnUnknownContextListsTheKnownOnes) {
    EXPECT_EQ(run({"context", "list"}), 0) << err;
    EXPECT_THAT(err, HasSubstr("there are no contexts"));
    EXPECT_EQ(run({"context", "use", "production"}), exit_code::not_found);
    answers = {"right"};
    EXPECT_EQ(run({"login", "admin", "-s", api.url(), "--name", "prod"}), 0) << err;
    EXPECT_EQ(run({"context", "use", "production"}), exit_code::not_found);
    EXPECT_EQ(err, "error: there is no context \"production\"\nremedy: there are: prod\n");
}

TEST_F(Contexts, AContextIsDeletedAfterLogout) {
    answers = {"right", "right"};
    EXPECT_EQ(run({"login", "admin", "-s", api.url(), "--name", "one"}), 0) << err;
    EXPECT_EQ(run({"login", "admin", "-s", second.url(), "--name", "two"}), 0) << err;
    EXPECT_EQ(run({"context", "delete", "two"}), exit_code::conflict);
    EXPECT_THAT(err, HasSubstr("--force"));
    EXPECT_EQ(run({"logout"}), 0) << err;
    EXPECT_EQ(out, "logged out of " + second.url() + "\n");
    EXPECT_EQ(run({"context", "delete", "two"}), 0) << err;
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_THAT(out, HasSubstr(api.url()));
}

TEST_F(Contexts, ASessionOfAnEarlierVersionIsAContext) {
    save_session(api.url(), "orr_abc");
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_EQ(run({"context", "list"}), 0) << err;
    EXPECT_THAT(out, HasSubstr(context_name(api.url()) + "  *"));
}

TEST_F(Contexts, ATokenMayComeFromTheEnvironment) {
    environment.emplace_back("ORRERY_TOKEN", "orr_abc");
    EXPECT_EQ(run({"whoami", "-s", api.url()}), 0) << err;
}

class Identities : public CliTest {
protected:
    std::string last_body() { return api.seen().back().body; }
};

TEST_F(Identities, UsersAreCreatedDisabledAndDeleted) {
    EXPECT_EQ(run({"user", "create", "alice", "--role", "operator", "--full-name", "Alice Arden", "--one-time", "--password-file",
                   file("p", "hunter2-hunter2\n")}),
              0)
        << err;
    EXPECT_EQ(out, "user/alice created\n");
    EXPECT_EQ(
        last_body(),
        R"({"kind":"User","name":"alice","spec":{"role":"operator","full_name":"Alice Arden","password":"hunter2-hunter2","one_time":true}})");
    EXPECT_EQ(run({"user", "create", "alice", "--no-password"}), exit_code::conflict);
    EXPECT_EQ(err, "error: User alice exists already\n"
                   "remedy: choose another name; \"orrery edit user alice\" changes the existing user\n");
    EXPECT_EQ(run({"user", "create", "bob", "--role", "king"}), exit_code::usage);
    EXPECT_EQ(run({"user", "create", "bob", "--no-password", "--one-time"}), exit_code::usage);
    EXPECT_EQ(err, "error: --no-password and --one-time exclude each other\nremedy: give one of them\n");
    EXPECT_EQ(run({"user", "create", "bob", "--no-password", "--password-file", "p"}), exit_code::usage);
    EXPECT_FALSE(api.has("users", "bob"));
    EXPECT_EQ(run({"user", "disable", "alice", "--reason", "left"}), 0) << err;
    EXPECT_EQ(out, "user/alice updated (spec.disabled: true added)\n");
    EXPECT_EQ(run({"user", "enable", "alice"}), 0) << err;
    EXPECT_EQ(out, "user/alice updated (spec.disabled: true → false)\n");
    EXPECT_EQ(run({"user", "delete", "alice"}), 0) << err;
    EXPECT_EQ(out, "user/alice removed\n");
    EXPECT_EQ(run({"user", "delete", "alice"}), exit_code::not_found);
}

TEST_F(Identities, ChangingYourOwnPasswordNeedsTheCurrentOne) {
    answers = {"old password", "new password", "new password"};
    EXPECT_EQ(run({"user", "password"}), 0) << err;
    EXPECT_EQ(api.lines().back(), "POST /v1/users/admin/password");
    EXPECT_EQ(last_body(), R"({"current":"old password","password":"new password"})");
    answers = {"new password", "new password"};
    EXPECT_EQ(run({"user", "password", "bob"}), 0) << err;
    EXPECT_EQ(last_body(), R"({"password":"new password"})");
    EXPECT_EQ(out, "password of bob changed\n");
}

TEST_F(Identities, OnlyTheTokenGoesToStandardOutput) {
    EXPECT_EQ(run({"token", "create", "inventory", "--role", "viewer", "--kind", "no", "--kind", "secrets", "--ttl", "30d"}), 0)
        << err;
    EXPECT_EQ(out, "orr_fresh\n");
    EXPECT_EQ(err, "token/inventory created; the token is shown only once\n");
    EXPECT_EQ(last_body(), R"({"kind":"Token","name":"inventory","spec":{"role":"viewer","ttl":"30d","kinds":["Node","Secret"]}})");
    EXPECT_EQ(run({"token", "list"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("inventory"));
    EXPECT_EQ(run({"token", "revoke", "inventory"}), 0) << err;
    EXPECT_EQ(out, "token/inventory removed\n");
}

} // namespace
} // namespace orrery::cli
