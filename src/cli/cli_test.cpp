#include "cli/api.h"
#include "cli/cli_fixture.h"
#include "cli/command.h"
#include "cli/recorded_answers.h"

#include <boost/json/parse.hpp>

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

TEST_F(Line, TyposGetASuggestion) {
    EXPECT_EQ(run({"gte", "nodes"}), exit_code::usage);
    EXPECT_EQ(err, "error: there is no command \"gte\"\nremedy: did you mean \"orrery get\"?\n");
    EXPECT_EQ(run({"servr"}), exit_code::usage);
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

TEST_F(Line, HelpAndTheManualListEveryCommand) {
    EXPECT_EQ(run({"--help"}), 0) << err;
    const auto help = out;
    EXPECT_EQ(run({"man"}), 0) << err;
    const auto manual = out;
    EXPECT_THAT(help, HasSubstr("\nJobs\n"));
    EXPECT_THAT(manual, HasSubstr("orrery server"));
    for (const auto& command : all_commands()) {
        if (command.hidden) continue;
        const auto space = command.path.find(' ');
        if (space == std::string::npos)
            EXPECT_THAT(help, HasSubstr("\n  " + command.path + " ")) << command.path;
        else
            EXPECT_THAT(help, ::testing::ContainsRegex("\n  " + command.path.substr(0, space) + " [^\n]*" +
                                                       command.path.substr(space + 1) + "[ \n]"))
                << command.path;
        auto escaped = command.path;
        for (auto at = escaped.find('-'); at != std::string::npos; at = escaped.find('-', at + 2)) escaped.insert(at, "\\");
        EXPECT_THAT(manual, HasSubstr(".SS orrery " + escaped)) << command.path;
    }
}

TEST_F(Line, ASecretIsCreatedFromFiles) {
    EXPECT_EQ(run({"secret", "create", "site-key", "--from-file", "private_key=" + file("id", "-----BEGIN\nx\n"), "--from-file",
                   "token=" + file("t", "abc\n")}),
              0)
        << err;
    EXPECT_EQ(out, "secret/site-key created\n");
    EXPECT_EQ(api.seen().back().body,
              R"({"kind":"Secret","name":"site-key","spec":{"values":{"private_key":"-----BEGIN\nx\n","token":"abc"}}})");
    EXPECT_EQ(run({"secret", "create", "site-key", "--from-file", "a=" + file("t", "abc\n")}), exit_code::conflict);
    EXPECT_EQ(err, "error: Secret site-key exists already\n"
                   "remedy: choose another name, or replace all values of the existing Secret with --replace\n");
    EXPECT_EQ(run({"secret", "create", "site-key", "--replace", "--from-file", "a=" + file("t", "abc\n")}), 0) << err;
    EXPECT_EQ(api.lines().back(), "PUT /v1/secrets/site-key");
    EXPECT_EQ(run({"secret", "create", "none"}), exit_code::usage);
    EXPECT_EQ(run({"secret", "create", "none", "--from-file", "=x"}), exit_code::usage);
    EXPECT_EQ(run({"secret", "create", "none", "--from-file", "a=" + (home / "missing").string()}), exit_code::invalid);
    EXPECT_THAT(err, HasSubstr("cannot be read"));
}

TEST_F(Line, KindsAndVersionHaveJsonOutput) {
    EXPECT_EQ(run({"kinds", "-o", "json"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\"plural\": \"nodes\""));
    EXPECT_EQ(run({"version", "-o", "json"}), 0) << err;
    EXPECT_EQ(out, "{\n  \"version\": \"1.2.3\",\n  \"commit\": \"abc123\"\n}\n");
}

TEST_F(Line, MissingAndUnexpectedArgumentsAreNamed) {
    EXPECT_EQ(run({"get"}), exit_code::usage);
    EXPECT_EQ(err, "error: orrery get needs KIND: a kind (\"orrery kinds\" lists them), or KIND/NAME\n"
                   "remedy: usage: orrery get KIND [NAME...] [OPTIONS]; see \"orrery get --help\"\n");
    EXPECT_EQ(run({"whoami", "now"}), exit_code::usage);
    EXPECT_THAT(err, StartsWith("error: unexpected argument \"now\"\n"));
    EXPECT_EQ(run({"job", "submit", "up.yaml"}), exit_code::usage);
    EXPECT_EQ(err, "error: unexpected argument \"up.yaml\"\nremedy: did you mean \"orrery job submit -f up.yaml\"?\n");
    EXPECT_EQ(run({"store", "migrate", "etcd://h:2379"}), exit_code::usage);
    EXPECT_THAT(err, HasSubstr("did you mean \"orrery store migrate --to etcd://h:2379\"?"));
    EXPECT_EQ(run({"apply", "-f"}), exit_code::usage);
    EXPECT_THAT(err, StartsWith("error: --file needs a value\n"));
    const std::vector<std::vector<std::string>> lines = {{"apply"}, {"diff"}, {"job", "submit"}, {"job", "plan"}};
    for (const auto& line : lines) {
        EXPECT_EQ(run(line), exit_code::usage) << line.front();
        EXPECT_THAT(err, StartsWith("error: the file is missing\n")) << line.front();
    }
    EXPECT_EQ(run({"get", "nodes", "-o", "json", "-o", "yaml"}), exit_code::usage);
    EXPECT_THAT(err, StartsWith("error: --output is given more than once\n"));
    EXPECT_EQ(run({"user"}), exit_code::usage);
    EXPECT_THAT(err, HasSubstr("orrery user create"));
    EXPECT_EQ(run({"-q"}), exit_code::usage);
}

TEST_F(Line, OptionsMayStandBeforeAndAfterTheCommand) {
    EXPECT_EQ(run({"--timeout", "10s", "-q", "get", "nodes", "-s", api.url()}), 0) << err;
    EXPECT_EQ(run({"get", "--output=name", "nodes"}), 0) << err;
    EXPECT_EQ(run({"get", "nodes", "--timeout", "10"}), exit_code::usage);
    EXPECT_EQ(run({"get", "nodes", "-s", "ftp://x"}), exit_code::usage);
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

/// Fails if `seen` lacks a member of `recorded`, or has it with another JSON type. Items of a list are matched by their first
/// member.
void expect_members(const json::value& recorded, const json::value& seen, const std::string& path) {
    ASSERT_EQ(recorded.kind() == json::kind::uint64 ? json::kind::int64 : recorded.kind(),
              seen.kind() == json::kind::uint64 ? json::kind::int64 : seen.kind())
        << path;
    if (const auto* object = recorded.if_object())
        for (const auto& [name, value] : *object) {
            const auto* found = seen.get_object().if_contains(name);
            ASSERT_NE(found, nullptr) << path << "." << std::string_view(name);
            expect_members(value, *found, path + "." + std::string(name));
        }
    if (const auto* list = recorded.if_array())
        for (const auto& item : *list) {
            if (!item.is_object()) continue;
            const auto key = item.get_object().begin()->key();
            const auto& all = seen.get_array();
            const auto found = std::find_if(all.begin(), all.end(),
                                            [&](const json::value& one) { return text_of(one, key) == text_of(item, key); });
            ASSERT_NE(found, all.end()) << path << " has no " << text_of(item, key);
            expect_members(item, *found, path + "[" + text_of(item, key) + "]");
        }
}

TEST_F(Line, FakeResponsesHaveTheRecordedMembers) {
    auto made = Api::make({.server = api.url(), .ca = {}, .token = "orr_abc"});
    ASSERT_TRUE(made.ok());
    const auto recorded = json::parse(recorded_responses);
    for (const auto& [name, exchange] : recorded.as_object()) {
        const auto* body = exchange.at("request").as_object().if_contains("body");
        const auto answer = (*made)->call(text_of(exchange, "request.method"), text_of(exchange, "request.path"),
                                          body == nullptr ? std::optional<json::value>{} : *body);
        ASSERT_TRUE(answer.ok()) << name << ": " << answer.error().text();
        expect_members(exchange.at("answer"), answer->body, std::string(name));
    }
}

TEST_F(Line, ReasonHasAnAliasThatHelpDoesNotList) {
    for (const auto* flag : {"--reason", "--because"}) {
        api.put("nodes", {{"kind", "Node"}, {"name", "n1"}, {"spec", json::object{{"address", "192.0.2.1"}}}});
        EXPECT_EQ(run({"delete", "node", "n1", flag, "sold"}), 0) << err;
        EXPECT_EQ(api.lines().back(), "DELETE /v1/nodes/n1?reason=sold");
    }
    EXPECT_EQ(run({"delete", "node", "n1", "--reason", "a", "--because", "b"}), exit_code::usage);
    EXPECT_EQ(run({"delete", "--help"}), 0);
    EXPECT_THAT(out, HasSubstr("--reason TEXT"));
    EXPECT_THAT(out, Not(HasSubstr("--because")));
}

TEST_F(Line, HelpHasSectionsAndColumns) {
    EXPECT_EQ(run({"logout", "--help"}), 0);
    EXPECT_EQ(
        out,
        "End the session\n"
        "\nUsage\n  orrery logout [OPTIONS]\n"
        "\nOptions\n      --force  delete the local token even if the server cannot be reached\n"
        "\nOptions of every command\n"
        "  -s, --server URL        the server (default: ORRERY_SERVER, then the current context, then http://127.0.0.1:8421)\n"
        "      --ca FILE           the CA certificate of the server (default: ORRERY_CA, then the context)\n"
        "      --token-file FILE   read the token from this file (default: ORRERY_TOKEN_FILE, ORRERY_TOKEN, then the context)\n"
        "      --timeout DURATION  time limit of a request (default: 30s)\n"
        "  -q, --quiet             print only the requested data and errors\n"
        "\nExamples\n  # revoke the token\n  orrery logout\n");
    EXPECT_EQ(run({}), 0);
    EXPECT_THAT(out, HasSubstr("\nResources\n  apply          Create or update resources from files\n"));
    EXPECT_THAT(out, HasSubstr("\n  server      Run the server\n"));
    EXPECT_THAT(out, HasSubstr("\n  user     list | create | password | disable | enable | delete\n"));
    const auto page = out;
    EXPECT_EQ(run({"--help"}), 0);
    EXPECT_EQ(out, page);
    EXPECT_EQ(run({"help", "get"}), 0);
    EXPECT_THAT(out, StartsWith("List resources"));
    EXPECT_EQ(run({"store", "--help"}), 0);
    EXPECT_THAT(out, HasSubstr("orrery store backup"));
}

TEST_F(Line, PrintsItsVersion) {
    EXPECT_EQ(run({"version"}), 0);
    EXPECT_EQ(out, "orrery 1.2.3 (abc123)\n");
    EXPECT_EQ(run({"--version"}), 0);
    EXPECT_EQ(out, "orrery 1.2.3 (abc123)\n");
}

TEST_F(Line, SuggestsOnlySimilarNames) {
    for (const auto* word : {"rollout", "top", "pods"}) {
        EXPECT_EQ(run({word}), exit_code::usage);
        EXPECT_THAT(err, Not(HasSubstr("did you mean"))) << word;
    }
    EXPECT_EQ(run({"get", "nodes", "-z"}), exit_code::usage);
    EXPECT_THAT(err, Not(HasSubstr("did you mean")));
}

TEST_F(Line, AnInvalidOptionValueIsAUsageError) {
    EXPECT_EQ(run({"get", "nodes", "--limit", "abc"}), exit_code::usage);
    EXPECT_EQ(run({"events", "--since", "yesterday"}), exit_code::usage);
    EXPECT_EQ(run({"get", "nodes", "--timeout", "soon"}), exit_code::usage);
    EXPECT_EQ(run({"get", "nodes", "-s", "ftp://x"}), exit_code::usage);
    EXPECT_EQ(run({"gslb", "why", "www", "--at", "then"}), exit_code::usage);
}

TEST_F(Line, UsesATokenFromTheEnvironment) {
    environment.emplace_back("ORRERY_TOKEN", "orr_wrong");
    EXPECT_EQ(run({"get", "nodes"}), exit_code::denied);
    EXPECT_THAT(err, HasSubstr("the token is invalid"));
}

TEST_F(Line, ErrorsHaveMessagesAndExitCodes) {
    const auto answer_with = [this](net::Response response) {
        api.intercept = [response](const net::Request&, const std::string&) { return std::optional(response); };
    };
    answer_with(FakeApi::problem(503, "unavailable", "the store is unreachable: etcd has no leader", "try again in a moment"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    EXPECT_EQ(err, "error: the store is unreachable: etcd has no leader\nremedy: try again in a moment\n");
    answer_with(FakeApi::problem(403, "denied", "bob is viewer, and this needs operator", "ask an admin"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::denied);
    answer_with(FakeApi::problem(507, "no_space", "the disk is full"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    answer_with(FakeApi::problem(500, "internal", "a bug"));
    EXPECT_EQ(run({"get", "nodes"}), exit_code::other);
    EXPECT_THAT(err, HasSubstr("remedy: see the log of the server: orrery logs --context "));
    answer_with({502, {{"Content-Type", "text/html"}}, "<html>bad gateway</html>"});
    EXPECT_EQ(run({"get", "nodes"}), exit_code::unavailable);
    EXPECT_EQ(err, "error: " + api.url() + " answered 502 Bad Gateway\n");
    answer_with({200, {{"Content-Type", "text/html"}}, "<html>hello</html>"});
    EXPECT_EQ(run({"get", "nodes"}), exit_code::other);
    EXPECT_THAT(err, HasSubstr("check that this is the address of an orrery server"));
    answer_with({200, {}, "{\"items\":[{\"kind\":7},{},null,{\"kind\":\"X\",\"plural\":\"xs\",\"columns\":3,\"fields\":[1]}]}"});
    EXPECT_EQ(run({"kinds"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\nX "));
    answer_with({200, {}, "[]"});
    EXPECT_EQ(run({"kinds"}), exit_code::other);
}

TEST_F(Line, ErrorsNameAServerThatDoesNotAnswer) {
    EXPECT_EQ(run({"get", "nodes", "-s", "http://127.0.0.1:1"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("127.0.0.1:1"));
    EXPECT_THAT(err, HasSubstr("remedy: check that the server runs and that --server or ORRERY_SERVER is its address"));
    api.streams = {": nothing more\n\n"};
    api.intercept = [](const net::Request&, const std::string&) -> std::optional<net::Response> {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return {};
    };
    EXPECT_EQ(run({"get", "nodes", "--timeout", "50ms"}), exit_code::unavailable);
    EXPECT_THAT(err, HasSubstr("did not answer within 50ms"));
}

TEST_F(Line, ConfigShowsTheOriginOfEachSetting) {
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
    EXPECT_EQ(run({"config", "show", "-o", "xml"}), exit_code::usage);
    EXPECT_EQ(run({"config", "check"}), 0);
    EXPECT_EQ(out, "the configuration is valid: 1 of 3 settings are set, the others have their defaults\n");
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

TEST_F(Line, StoreCommandsUseTheServer) {
    EXPECT_EQ(run({"store", "status"}), 0) << err;
    EXPECT_EQ(out, "engine     sqlite\nidentity   store1\nrevision   12\nkeys       4\n");
    const std::string path = home / "backup.db";
    EXPECT_EQ(run({"store", "backup", path}), 0) << err;
    EXPECT_EQ(out, path + ": backup of revision 12 (13 B); \"orrery store verify " + path + "\" checks it\n");
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

TEST_F(Line, MigrationShowsProgressAndResult) {
    api.streams = {"event: progress\ndata: {\"done\":1,\"total\":4}\n\nevent: done\ndata: "
                   "{\"keys\":4,\"digest\":\"d1\",\"to\":\"etcd://h:2379\"}\n\n",
                   "event: error\ndata: {\"code\":\"conflict\",\"detail\":\"the target is not empty\",\"remedy\":\"choose another "
                   "prefix\"}\n\n",
                   "event: progress\ndata: {\"done\":1}\n\n"};
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), 0) << err;
    EXPECT_EQ(out, "4 keys moved to etcd://h:2379, digest d1\n");
    const auto seen = api.seen();
    ASSERT_GE(seen.size(), 3U);
    EXPECT_EQ(seen[seen.size() - 3].body, "{\"to\":\"etcd://h:2379\"}");
    EXPECT_EQ(seen.back().target, "/readyz") << "it ends when the server is ready again";
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), exit_code::conflict);
    EXPECT_EQ(err, "error: the target is not empty\nremedy: choose another prefix\n");
    EXPECT_EQ(run({"store", "migrate", "--to", "etcd://h:2379"}), exit_code::unavailable);
    EXPECT_EQ(run({"store", "migrate"}), exit_code::usage);
}

TEST_F(Line, OfflineCommandsArePassedToTheApplication) {
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
    EXPECT_EQ(completed({"why", "node/n"}), "node/n1\nnode/n2\n");
    EXPECT_EQ(completed({"get", "nodes", "-o", "ya"}), "yaml\n");
    EXPECT_EQ(completed({"get", "nodes", "-o", "yaml", "n"}), "n1\nn2\n");
    EXPECT_EQ(completed({"get", "--la"}), "--labels\n");
    EXPECT_EQ(completed({"delete", "nodes", "n1", "n"}), "n1\nn2\n");
    api.put("nodes", {{"kind", "Node"}, {"name", "n1"}, {"labels", json::object{{"role", "web"}, {"rack", "a1"}}}});
    api.put("nodes", {{"kind", "Node"}, {"name", "n2"}, {"labels", json::object{{"role", "web"}}}});
    EXPECT_EQ(completed({"get", "nodes", "-l", "ro"}), "role=web\n");
    EXPECT_EQ(completed({"delete", "nodes", "-l", ""}), "rack=a1\nrole=web\n");
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

/// A disk that is full.
class FullDisk : public std::streambuf {
protected:
    int_type overflow(int_type) override { return traits_type::eof(); }
    std::streamsize xsputn(const char*, std::streamsize) override { return 0; }
};

TEST_F(CliTest, AFailedWriteToStandardOutputIsAnError) {
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"kinds"}, {"get", "nodes"}, {"version"}, {"--help"}, {"get", "--help"}, {"config", "default"}}) {
        api.put("nodes", {{"kind", "Node"}, {"name", "n1"}, {"labels", json::object{}}, {"spec", json::object{{"address", "x"}}}});
        FullDisk disk;
        std::istringstream in;
        std::ostream full(&disk);
        std::ostringstream error;
        Streams streams{.in = in, .out = full, .err = error};
        streams.environment = environment;
        EXPECT_EQ(cli::run(args, streams, application), exit_code::other) << args.front();
        EXPECT_THAT(error.str(), ::testing::HasSubstr("error: writing to standard output failed"));
    }
}

} // namespace
} // namespace orrery::cli
