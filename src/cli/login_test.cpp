#include "cli/cli_testing.h"
#include "net/tls_testing.h"

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

TEST_F(LogIn, KeepsASessionThatOnlyItsOwnerCanRead) {
    answers = {"right"};
    EXPECT_EQ(run({"login", "admin"}), 0) << err;
    EXPECT_EQ(out, "logged in to " + api.url() + " as admin (admin), for 12h; the session is kept in " +
                       (home / ".config/orrery/session.yaml").string() + "\n");
    EXPECT_THAT(prompts, ElementsAre("Password of admin at " + api.url() + ": "));
    EXPECT_THAT(session(), HasSubstr("token: orr_abc\n"));
    struct stat about{};
    ASSERT_EQ(::stat((home / ".config/orrery/session.yaml").c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777U, 0600U);
    environment = {{"HOME", home.path().string()}}; // the session knows the server
    EXPECT_EQ(run({"whoami"}), 0) << err;
    EXPECT_EQ(out, "admin (admin) at " + api.url() + ", through token\n");
    EXPECT_EQ(run({"logout"}), 0) << err;
    EXPECT_THAT(session(), Not(HasSubstr("orr_abc")));
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_EQ(err, "error: you are not logged in to " + api.url() + "\nremedy: orrery login\n");
    EXPECT_EQ(run({"logout"}), 0);
    EXPECT_EQ(out, "nobody is logged in\n");
}

TEST_F(LogIn, AOneTimePasswordIsExchangedOnTheWay) {
    answers = {"one-time", "a new long password", "a new long password"};
    EXPECT_EQ(run({"login", "admin"}), 0) << err;
    EXPECT_EQ(err, "this password is for one login only: choose your own now\n");
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
    EXPECT_THAT(err, HasSubstr("remedy: give it in a file with --password-file FILE"));
    EXPECT_EQ(run({"login", "robot", "--password-file", file("empty", "\n")}), exit_code::invalid);
}

TEST_F(LogIn, AWrongPasswordIsToldInTheServersWords) {
    answers = {"wrong"};
    EXPECT_EQ(run({"login", "admin"}), exit_code::denied);
    EXPECT_EQ(err, "error: the user or the password is wrong\n");
    EXPECT_FALSE(std::filesystem::exists(home / ".config/orrery/session.yaml"));
    EXPECT_EQ(run({"login", "admin"}), exit_code::invalid); // no answers left: no terminal
}

TEST_F(LogIn, AnInterruptedPromptEndsQuietly) {
    answers = {"one-time"}; // and then Ctrl-C
    EXPECT_EQ(run({"login", "admin"}), exit_code::interrupted);
}

TEST_F(LogIn, ASessionOthersCanReadIsRefused) {
    save_session(api.url(), "orr_abc");
    ::chmod((home / ".config/orrery/session.yaml").c_str(), 0644);
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_THAT(err, HasSubstr("remedy: chmod 600 "));
}

TEST_F(LogIn, ATokenGoesToNoOtherServerThanItsOwn) {
    save_session("http://127.0.0.1:1", "orr_abc");
    EXPECT_EQ(run({"whoami"}), exit_code::denied);
    EXPECT_FALSE(api.seen().back().headers.has("Authorization"));
    EXPECT_EQ(run({"whoami", "--token-file", file("t", "orr_abc\n")}), 0) << err;
    environment.emplace_back("ORRERY_TOKEN_FILE", home / "t");
    EXPECT_EQ(run({"whoami", "-o", "json"}), 0) << err;
    EXPECT_EQ(out, "{\n  \"user\": \"admin\",\n  \"role\": \"admin\",\n  \"via\": \"token\"\n}\n");
    EXPECT_EQ(run({"whoami", "--token-file", file("two", "a\nb\n")}), exit_code::invalid);
    EXPECT_EQ(run({"whoami", "--token-file", file("odd", "a b\n")}), exit_code::invalid);
}

TEST_F(LogIn, WarnsOfAnUnencryptedServer) {
    answers = {"right"};
    EXPECT_EQ(run({"login", "admin", "-s", "http://192.0.2.1:1", "--timeout", "50ms"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("warning: http://192.0.2.1:1 is not encrypted"));
}

TEST_F(LogIn, AServersCertificateIsCheckedAgainstTheAuthorityGiven) {
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

class Identities : public CliTest {
protected:
    std::string last_body() { return api.seen().back().body; }
};

TEST_F(Identities, UsersAreMadeLockedOutAndDeleted) {
    EXPECT_EQ(run({"user", "create", "alice", "--role", "operator", "--full-name", "Alice Arden", "--one-time", "--password-file",
                   file("p", "hunter2-hunter2\n")}),
              0)
        << err;
    EXPECT_EQ(out, "user/alice created\n");
    EXPECT_EQ(
        last_body(),
        R"({"kind":"User","name":"alice","spec":{"role":"operator","full_name":"Alice Arden","password":"hunter2-hunter2","one_time":true}})");
    EXPECT_EQ(run({"user", "create", "alice", "--no-password"}), exit_code::conflict);
    EXPECT_EQ(err, "error: User alice exists already\n");
    EXPECT_EQ(run({"user", "create", "bob", "--role", "king"}), exit_code::usage);
    EXPECT_EQ(run({"user", "disable", "alice", "--because", "left"}), 0) << err;
    EXPECT_EQ(out, "user/alice updated (spec.disabled: true added)\n");
    EXPECT_EQ(run({"user", "enable", "alice"}), 0) << err;
    EXPECT_EQ(out, "user/alice updated (spec.disabled: true → false)\n");
    EXPECT_EQ(run({"user", "delete", "alice"}), 0) << err;
    EXPECT_EQ(out, "user/alice removed\n");
    EXPECT_EQ(run({"user", "delete", "alice"}), exit_code::not_found);
}

TEST_F(Identities, OnesOwnPasswordNeedsThePresentOne) {
    answers = {"old password", "new password", "new password"};
    EXPECT_EQ(run({"user", "password"}), 0) << err;
    EXPECT_EQ(api.lines().back(), "POST /v1/users/admin/password");
    EXPECT_EQ(last_body(), R"({"current":"old password","password":"new password"})");
    answers = {"new password", "new password"};
    EXPECT_EQ(run({"user", "password", "bob"}), 0) << err;
    EXPECT_EQ(last_body(), R"({"password":"new password"})");
    EXPECT_EQ(out, "the password of bob was changed\n");
}

TEST_F(Identities, ATokenIsPrintedAloneSoThatItCanGoIntoAFile) {
    EXPECT_EQ(run({"token", "create", "inventory", "--role", "viewer", "--kind", "no", "--kind", "secrets", "--ttl", "30d"}), 0)
        << err;
    EXPECT_EQ(out, "orr_fresh\n");
    EXPECT_EQ(err, "token/inventory created; this is the only time it is shown\n");
    EXPECT_EQ(last_body(), R"({"kind":"Token","name":"inventory","spec":{"role":"viewer","ttl":"30d","kinds":["Node","Secret"]}})");
    EXPECT_EQ(run({"token", "list"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("inventory"));
    EXPECT_EQ(run({"token", "revoke", "inventory"}), 0) << err;
    EXPECT_EQ(out, "token/inventory removed\n");
}

} // namespace
} // namespace orrery::cli
