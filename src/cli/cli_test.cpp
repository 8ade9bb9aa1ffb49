#include "cli/cli_testing.h"
#include "cli/command.h"

namespace orrery::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Line : public CliTest {
protected:
    Line() {
        application.version = "1.2.3";
        application.commit = "abc123";
        application.own_commands = {{"server", "Run the server"}};
        application.settings = {{"store.url", Setting::Type::text, "", "Where the store is."},
                                {"events.keep", Setting::Type::duration, "90d", "How long."},
                                {"ldap.password_file", Setting::Type::secret_file, "", "Password."}};
        application.load_config = [this](const std::vector<std::string>& flags,
                                         std::vector<std::pair<std::string, std::string>> variables) -> Result<Config> {
            ConfigSources sources;
            for (auto& variable : variables)
                if (variable.first == "ORRERY_STORE_URL") sources.environment.push_back(std::move(variable));
            TRY(std::ignore, read_flags(application.settings, flags, sources));
            return Config::load(application.settings, std::move(sources));
        };
    }
};

TEST_F(Line, TyposGetTheNearest) {
    EXPECT_EQ(run({"gte", "nodes"}), exit_code::usage);
    EXPECT_EQ(err, "error: there is no command \"gte\"\nremedy: did you mean \"orrery get\"?\n");
    EXPECT_EQ(run({"sevrer"}), exit_code::usage);
    EXPECT_THAT(err, HasSubstr("did you mean \"orrery server\"?"));
    EXPECT_EQ(run({"user", "craete"}), exit_code::usage);
    EXPECT_EQ(err, "error: orrery user has no command \"craete\"\nremedy: did you mean \"orrery user create\"?\n");
    EXPECT_EQ(run({"get", "nodes", "--lables", "x"}), exit_code::usage);
    EXPECT_EQ(err, "error: orrery get has no option --lables\nremedy: did you mean --labels?\n");
    EXPECT_EQ(run({"get", "nodes", "-o", "yml"}), exit_code::usage);
    EXPECT_EQ(err, "error: --output must be one of table, wide, yaml, json, name, not \"yml\"\nremedy: did you mean yaml?\n");
    EXPECT_EQ(run({"completion", "tcsh"}), exit_code::usage);
    EXPECT_EQ(api.seen().size(), 0U); // nothing was asked of the server
}

TEST_F(Line, WhatIsMissingOrTooMuchIsSaid) {
    EXPECT_EQ(run({"get"}), exit_code::usage);
    EXPECT_EQ(err, "error: orrery get needs KIND: a kind, as \"orrery kinds\" lists them, or kind/name\n"
                   "remedy: usage: orrery get KIND [NAME...] [OPTIONS]; \"orrery get --help\" says more\n");
    EXPECT_EQ(run({"whoami", "now"}), exit_code::usage);
    EXPECT_THAT(err, StartsWith("error: \"now\" is one argument too many\n"));
    EXPECT_EQ(run({"apply", "-f"}), exit_code::usage);
    EXPECT_EQ(run({"get", "nodes", "-o", "json", "-o", "yaml"}), exit_code::usage);
    EXPECT_EQ(run({"user"}), exit_code::usage);
    EXPECT_THAT(err, HasSubstr("orrery user create"));
    EXPECT_EQ(run({"-q"}), exit_code::usage);
}

TEST_F(Line, OptionsMayStandBeforeAndAfterTheCommand) {
    EXPECT_EQ(run({"--timeout", "10s", "-q", "get", "nodes", "-s", api.url()}), 0) << err;
    EXPECT_EQ(run({"get", "--output=name", "nodes"}), 0) << err;
    EXPECT_EQ(run({"get", "nodes", "--timeout", "10"}), exit_code::invalid);
    EXPECT_EQ(run({"get", "nodes", "-s", "ftp://x"}), exit_code::invalid);
}

TEST_F(Line, EveryCommandHasHelpWithExamples) {
    for (const auto& command : all_commands()) {
        if (command.hidden) continue;
        std::vector<std::string> args;
        std::istringstream words(command.path);
        for (std::string word; words >> word;) args.push_back(word);
        args.emplace_back("--help");
        EXPECT_EQ(run(args), 0) << command.path;
        EXPECT_THAT(out, StartsWith(command.summary)) << command.path;
        EXPECT_THAT(out, HasSubstr("\nExamples\n")) << command.path;
        for (const auto& example : command.examples) EXPECT_THAT(example.line, HasSubstr("orrery ")) << command.path;
    }
}

TEST_F(Line, HelpIsALaidOutPage) {
    EXPECT_EQ(run({"logout", "--help"}), 0);
    EXPECT_EQ(out, "End the session\n"
                   "\nUsage\n  orrery logout [OPTIONS]\n"
                   "\nOptions\n      --force  forget the token here even if the server cannot be told\n"
                   "\nOptions of every command\n"
                   "  -s, --server URL        the server; else ORRERY_SERVER, the session's, or http://127.0.0.1:8421\n"
                   "      --ca FILE           the authority that signed the server's certificate; else ORRERY_CA\n"
                   "      --token-file FILE   a file that holds a token; else ORRERY_TOKEN_FILE, or the session's\n"
                   "      --timeout DURATION  how long to wait for an answer; 30s unless said otherwise\n"
                   "  -q, --quiet             say nothing but what was asked for\n"
                   "\nExamples\n  # its token no longer counts\n  orrery logout\n");
    EXPECT_EQ(run({}), 0);
    EXPECT_THAT(out, HasSubstr("\nResources\n  apply     Create or update resources from files\n"));
    EXPECT_THAT(out, HasSubstr("\n  server      Run the server\n"));
    EXPECT_THAT(out, HasSubstr("\n  user    list | create | password | disable | enable | delete\n"));
    const auto page = out;
    EXPECT_EQ(run({"--help"}), 0);
    EXPECT_EQ(out, page);
    EXPECT_EQ(run({"help", "get"}), 0);
    EXPECT_THAT(out, StartsWith("List resources"));
    EXPECT_EQ(run({"store", "--help"}), 0);
    EXPECT_THAT(out, HasSubstr("orrery store backup"));
}

TEST_F(Line, SaysItsVersion) {
    EXPECT_EQ(run({"version"}), 0);
    EXPECT_EQ(out, "orrery 1.2.3 (abc123)\n");
    EXPECT_EQ(run({"--version"}), 0);
    EXPECT_EQ(out, "orrery 1.2.3 (abc123)\n");
}

TEST_F(Line, ErrorsBecomeSentencesAndExitCodes) {
    const auto answer_with = [this](net::Response response) {
        api.intercept = [response](const net::Request&, const std::string&) { return std::optional(response); };
    };
    answer_with(FakeApi::problem(503, "unavailable", "the store is out of reach: etcd has no leader", "try again in a moment"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    EXPECT_EQ(err, "error: the store is out of reach: etcd has no leader\nremedy: try again in a moment\n");
    answer_with(FakeApi::problem(403, "denied", "bob is viewer, and this needs operator", "ask an admin"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::denied);
    answer_with(FakeApi::problem(507, "no_space", "the disk is full"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    answer_with(FakeApi::problem(500, "internal", "a bug"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::other);
    EXPECT_THAT(err, HasSubstr("remedy: the server's log has more, under "));
    answer_with({502, {{"Content-Type", "text/html"}}, "<html>bad gateway</html>"});
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    EXPECT_EQ(err, "error: " + api.url() + " answered 502 Bad Gateway\n");
    answer_with({200, {{"Content-Type", "text/html"}}, "<html>hello</html>"});
    EXPECT_EQ(run({"get", "nodes"}), exit_code::other);
    EXPECT_THAT(err, HasSubstr("is this the address of an orrery server?"));
    answer_with({200, {}, "{\"items\":[{\"kind\":7},{},null,{\"kind\":\"X\",\"plural\":\"xs\",\"columns\":3,\"fields\":[1]}]}"});
    EXPECT_EQ(run({"kinds"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\nX "));
    answer_with({200, {}, "[]"});
    EXPECT_EQ(run({"kinds"}), exit_code::other);
}

TEST_F(Line, ASilentOrAbsentServerIsNamed) {
    EXPECT_EQ(run({"get", "nodes", "-s", "http://127.0.0.1:1"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("127.0.0.1:1"));
    EXPECT_THAT(err, HasSubstr("remedy: is the server running, and is its address right?"));
    api.streams = {": nothing more\n\n"};
    api.intercept = [](const net::Request&, const std::string&) -> std::optional<net::Response> {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return {};
    };
    EXPECT_EQ(run({"get", "nodes", "--timeout", "50ms"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("did not answer within 50ms"));
}

TEST_F(Line, ConfigIsShownWithItsOrigins) {
    environment.emplace_back("ORRERY_STORE_URL", "etcd://me:hunter2@h:2379");
    EXPECT_EQ(run({"config", "show", "--events-keep", "7d"}), 0) << err;
    EXPECT_EQ(out, "SETTING             VALUE                 FROM\n"
                   "store.url           etcd://me:***@h:2379  ORRERY_STORE_URL\n"
                   "events.keep         7d                    --events-keep\n"
                   "ldap.password_file  -                     default\n");
    EXPECT_EQ(run({"config", "show", "-o", "yaml"}), 0) << err;
    EXPECT_EQ(out, "store:\n  url: etcd://me:***@h:2379\nevents:\n  keep: 90d\nldap:\n  password_file: \"\"\n");
    EXPECT_EQ(run({"config", "show", "-o", "json"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\"origin\": \"ORRERY_STORE_URL\""));
    EXPECT_THAT(out, Not(HasSubstr("hunter2")));
    EXPECT_EQ(run({"config", "show", "-o", "xml"}), exit_code::invalid);
    EXPECT_EQ(run({"config", "check"}), 0);
    EXPECT_EQ(out, "the configuration is good: 1 of 3 settings are set, the others have their defaults\n");
    const auto path = file("o.yaml", "store:\n  ulr: x\nevents: {keep: forever}\n");
    EXPECT_EQ(run({"config", "check", "-f", path}), exit_code::invalid);
    EXPECT_EQ(err, "error: the configuration has 2 errors\n"
                   "  " +
                       path +
                       ":2: store.ulr is not a setting; did you mean store.url?\n"
                       "  " +
                       path +
                       ":3: events.keep must be a duration such as 30s, 15m or 90d, not \"forever\"\n"
                       "remedy: \"orrery config default\" prints every setting with its meaning\n");
    EXPECT_EQ(run({"config", "default"}), 0);
    EXPECT_THAT(out, HasSubstr("#events:\n#  # How long.\n#  keep: 90d\n"));
}

TEST_F(Line, StoreCommandsGoThroughTheServer) {
    EXPECT_EQ(run({"store", "status"}), 0) << err;
    EXPECT_EQ(out, "engine     sqlite\nidentity   store1\nrevision   12\nkeys       4\n");
    const std::string path = home / "backup.db";
    EXPECT_EQ(run({"store", "backup", path}), 0) << err;
    EXPECT_EQ(out, path + " has the store as of revision 12 (13 B); \"orrery store verify " + path + "\" checks it\n");
    EXPECT_EQ(contents(path), "SQLite backup");
    EXPECT_EQ(run({"store", "backup", path}), exit_code::conflict);
    EXPECT_EQ(run({"store", "backup", path, "--force"}), 0) << err;
    api.intercept = [](const net::Request&, const std::string&) {
        return std::optional(FakeApi::problem(507, "no_space", "the disk is full"));
    };
    EXPECT_EQ(run({"store", "backup", home / "other.db"}), exit_code::unavailable);
    EXPECT_FALSE(std::filesystem::exists(home / "other.db"));
    EXPECT_FALSE(std::filesystem::exists(home / "other.db.part"));
}

TEST_F(Line, MigrationTellsItsProgressAndItsEnd) {
    api.streams = {"event: progress\ndata: {\"done\":1,\"total\":4}\n\nevent: done\ndata: "
                   "{\"keys\":4,\"digest\":\"d1\",\"to\":\"etcd://h:2379\"}\n\n",
                   "event: error\ndata: {\"code\":\"conflict\",\"detail\":\"the target is not empty\",\"remedy\":\"choose another "
                   "prefix\"}\n\n",
                   "event: progress\ndata: {\"done\":1}\n\n"};
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), 0) << err;
    EXPECT_EQ(out, "4 keys moved to etcd://h:2379, digest d1\n");
    EXPECT_EQ(api.seen().back().body, "{\"to\":\"etcd://h:2379\"}");
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), exit_code::conflict);
    EXPECT_EQ(err, "error: the target is not empty\nremedy: choose another prefix\n");
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), exit_code::unavailable);
    EXPECT_EQ(run({"store", "migrate"}), exit_code::invalid);
}

TEST_F(Line, OfflineCommandsAreHandedOn) {
    std::vector<std::string> given;
    application.offline.verify = [&](std::vector<std::string> args, Streams& streams) {
        given = std::move(args);
        streams.out << "verified\n";
        return 42;
    };
    EXPECT_EQ(run({"store", "verify", "x.db", "--data-folder", "/d"}), 42);
    EXPECT_EQ(given, (std::vector<std::string>{"x.db", "--data-folder", "/d"}));
    EXPECT_EQ(run({"store", "restore", "x.db"}), exit_code::invalid);
}

TEST_F(Line, CompletesCommandsOptionsKindsAndNames) {
    api.put("nodes", {{"kind", "Node"}, {"name", "n1"}});
    api.put("nodes", {{"kind", "Node"}, {"name", "n2"}});
    const auto completed = [this](std::vector<std::string> words) {
        words.insert(words.begin(), "__complete");
        EXPECT_EQ(run(words), 0);
        return out;
    };
    EXPECT_EQ(completed({"de"}), "describe\ndelete\n");
    EXPECT_EQ(completed({"ser"}), "server\n");
    EXPECT_EQ(completed({"user", "dis"}), "disable\n");
    EXPECT_EQ(completed({"get", "no"}), "nodes\n");
    EXPECT_EQ(completed({"get", "nodes", "n"}), "n1\nn2\n");
    EXPECT_EQ(completed({"get", "nodes", "-o", "ya"}), "yaml\n");
    EXPECT_EQ(completed({"get", "nodes", "-o", "yaml", "n"}), "n1\nn2\n");
    EXPECT_EQ(completed({"get", "--la"}), "--labels\n");
    EXPECT_EQ(completed({"delete", "nodes", "n1", "n"}), "n1\nn2\n");
    EXPECT_EQ(completed({"apply", "-f", ""}), ""); // the shell's own files
    EXPECT_EQ(completed({"completion", ""}), "bash\nzsh\nfish\n");
    EXPECT_EQ(completed({"get", "nodes", "--help"}), "--help\n");
    EXPECT_THAT(completed({""}), HasSubstr("apply\n"));
    EXPECT_THAT(completed({""}), Not(HasSubstr("__complete")));
    save_session(api.url(), "wrong");
    EXPECT_EQ(completed({"get", "no"}), ""); // silent where the server does not answer
    EXPECT_EQ(err, "");
    for (const auto* shell : {"bash", "zsh", "fish"}) {
        EXPECT_EQ(run({"completion", shell}), 0);
        EXPECT_THAT(out, HasSubstr("orrery __complete"));
    }
}

} // namespace
} // namespace orrery::cli
