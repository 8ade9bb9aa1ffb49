#include "core/test_fixture.h"
#include "health/check_spec.h"
#include "health/probes/command_probe.h"
#include "health/probes/node_probe.h"
#include "health/probes/programs.h"
#include "health/vantages/health_aggregator.h"
#include "health/vantages/remote_checker.h"
#include "net/http_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

const std::string probe_secret = "s3cr\"et \\n {\"a\":1} top-secret-4711";

/// What Secrets hold, by "NAME.KEY".
struct HeldSecrets {
    std::map<std::string, std::string> values;
    SecretReader reader() {
        return [this](std::string_view named) -> Result<std::string> {
            const auto found = values.find(std::string(named));
            if (found == values.end()) return Error{Code::not_found, fmt::format("Secret value {} does not exist", named)};
            return found->second;
        };
    }
};

json::object named_secret_value(std::string_view named) { return {{"secret", named}}; }

/// Answers 500 with everything that it was sent, and keeps it.
struct EchoServer {
    explicit EchoServer(asio::any_io_executor executor)
        : server(executor, {},
                 [this](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) -> Task<Unit> {
                     CO_TRY(auto sent, co_await net::read_all(ctx, body, 1 << 20));
                     for (const auto& [name, value] : request.headers) headers[std::string(name)] = std::string(value);
                     bodies.push_back(sent);
                     std::string answer;
                     for (const auto& [name, value] : headers) answer += fmt::format("{}={}\n", name, value);
                     co_return co_await out.send(ctx, net::Response{status, {}, answer + sent});
                 }) {}
    int status = 500;
    std::map<std::string, std::string> headers;
    std::vector<std::string> bodies;
    net::HttpServer server;
};

CheckSpec http_spec(std::uint16_t port, json::object probe) {
    probe["kind"] = "http";
    return {.probe = std::move(probe),
            .address = "127.0.0.1",
            .port = port,
            .interval = 100ms,
            .timeout = 5s,
            .thresholds = {.rise = 1, .fall = 2}};
}

/// Runs the commands for nodes on this host, and records the arguments.
class RecordingNode final : public CommandRunner {
public:
    explicit RecordingNode(asio::any_io_executor executor) : programs_(std::move(executor)) {}
    Task<Ended> run(Context ctx, std::string, std::vector<std::string> argv, std::string input) override {
        for (const auto& argument : argv) arguments += argument + "\n";
        const testing::TemporaryFolder folder;
        const auto file = (folder / "input").string();
        std::ofstream(file) << input;
        argv.insert(argv.begin(), {"/bin/bash", "-c", "exec \"$@\" <\"$0\"", file});
        CO_TRY(auto ended, co_await programs_.run(ctx, std::move(argv), {{"PATH", "/usr/bin:/bin"}}));
        co_return Ended{ended.exit_code, std::move(ended.output)};
    }
    std::string arguments;

private:
    Programs programs_;
};

} // namespace

TEST(ProbeSecrets, AreNamedInPlaceOfTexts) {
    const auto errors_of = [](json::object spec) {
        std::string out;
        for (const auto& error : validate_probe(spec, "spec", {})) out += error.path + " " + error.message + "\n";
        return out;
    };
    const json::object spec{{"kind", "http"},
                            {"headers", {{"Authorization", named_secret_value("site.token")}}},
                            {"body", named_secret_value("site.body")}};
    EXPECT_EQ(errors_of(spec), "");
    EXPECT_EQ(errors_of({{"kind", "https"}, {"ca", named_secret_value("site.ca")}}), "");
    EXPECT_THAT(errors_of({{"kind", "http"}, {"path", named_secret_value("site.token")}}), HasSubstr("spec.path must be a text"));
    EXPECT_THAT(errors_of({{"kind", "http"}, {"body", {{"secret", "a.b"}, {"other", "x"}}}}),
                HasSubstr("spec.body must be a text"));
    EXPECT_TRUE(names_secrets(spec));
    EXPECT_FALSE(names_secrets({{"kind", "http"}, {"body", "x"}}));

    // Nothing is sent instead of an unknown value.
    const auto unknown = probe_from(spec, "192.0.2.1", 80, {});
    EXPECT_EQ(unknown.error().code, Code::unavailable);
    EXPECT_THAT(unknown.error().message, HasSubstr("site.token"));
    HeldSecrets secrets{{{"site.token", probe_secret + "\n"}, {"site.body", "b\r\nc"}}};
    const auto probe = probe_from(with_secret_values(spec, secrets.reader()), "192.0.2.1", 80, {});
    ASSERT_TRUE(probe.ok()) << probe.error().text();
    EXPECT_THAT((*probe)->program()->request,
                AllOf(HasSubstr("Authorization: " + probe_secret + "\r\n"), HasSubstr("\r\n\r\nb\r\nc")));
    ASSERT_NE((*probe)->masker(), nullptr);
    EXPECT_THAT((*probe)->masker()->mask_cut("500: you sent " + probe_secret + "!"), Not(HasSubstr("4711")));
    // A header cannot be split.
    secrets.values["site.token"] = "x\r\nX-Other: y";
    const auto split = probe_from(with_secret_values(spec, secrets.reader()), "192.0.2.1", 80, {});
    EXPECT_THAT(split.error().message, AllOf(HasSubstr("Authorization"), Not(HasSubstr("X-Other"))));
}

CO_TEST(ProbeSecrets, AreFollowedAndNeverShown) {
    EchoServer echo(loop.get_executor());
    CO_ASSERT_OK(echo.server.start());
    HeldSecrets secrets;
    Notifier changed(loop.get_executor());
    ProbeDeps deps;
    deps.secrets = secrets.reader();
    HealthAggregator aggregator(loop.get_executor(), real_clock(), {.deps = deps},
                                [&](const std::string&, const AggregatedHealth&) { changed.notify_all(); });
    TaskGroup group(loop.get_executor());
    group.spawn(aggregator.run(Context::make("test")));
    const auto until = Context::background().with_deadline(real_clock().steady() + 60s);
    const auto spec = http_spec(echo.server.port(), {{"headers", {{"Authorization", named_secret_value("site.token")}}}});

    CO_ASSERT_OK(aggregator.set("a", spec));
    EXPECT_EQ(aggregator.health("a")->state, HealthState::unknown) << "it is neither up nor down";
    EXPECT_EQ(aggregator.health("a")->decision.error, "Secret value site.token does not exist");

    secrets.values["site.token"] = "first-token-4711";
    aggregator.refresh_secrets();
    while (aggregator.health("a")->state != HealthState::down) CO_ASSERT_OK(co_await changed.wait(until));
    EXPECT_EQ(echo.headers.at("Authorization"), "first-token-4711");
    const auto evidence = to_json_text(aggregator.health("a")->decision.evidence);
    EXPECT_THAT(evidence, AllOf(HasSubstr("500"), Not(HasSubstr("token-4711"))));

    // A changed value reaches the probes at once.
    echo.status = 200;
    secrets.values["site.token"] = "second-token-4712";
    aggregator.refresh_secrets();
    while (aggregator.health("a")->state != HealthState::up) CO_ASSERT_OK(co_await changed.wait(until));
    EXPECT_EQ(echo.headers.at("Authorization"), "second-token-4712");

    // Without the value the check cannot run; the last state stays.
    secrets.values.clear();
    aggregator.refresh_secrets();
    EXPECT_EQ(aggregator.health("a")->state, HealthState::up);
    EXPECT_TRUE(aggregator.health("a")->stale);
    EXPECT_EQ(aggregator.health("a")->decision.error, "Secret value site.token does not exist");
    co_await group.stop();
    co_await echo.server.stop(0s);
}

CO_TEST(ProbeSecrets, GoToCheckersOverAPrivateConnectionOnly) {
    HeldSecrets secrets{{{"site.token", "token-4711"}}};
    VirtualClock clock;
    ProbeDeps deps;
    deps.secrets = secrets.reader();
    HealthAggregator aggregator(loop.get_executor(), clock, {.deps = deps}, nullptr);
    CO_ASSERT_OK(aggregator.set("a", http_spec(80, {{"headers", {{"Authorization", named_secret_value("site.token")}}}})));
    EXPECT_THAT(to_json_text(aggregator.assignments("", 0)), AllOf(Not(HasSubstr("4711")), HasSubstr("over TLS only")));
    EXPECT_THAT(to_json_text(aggregator.assignments("", 0, true)), HasSubstr("token-4711"));
    // The checker reads both forms: it can run the first, and reports the error of the second.
    for (const bool with : {true, false}) {
        const auto answer = aggregator.assignments("", 0, with);
        const auto spec = CheckSpec::from_json(answer.at("set").get_array().at(0).get_object());
        CO_ASSERT_OK(spec);
        const auto probe = probe_from(spec->probe, spec->address, spec->port, {});
        EXPECT_EQ(probe.ok(), with);
        if (!with) EXPECT_THAT(probe.error().message, HasSubstr("join this server by https://"));
    }
    // A changed value changes the assignment.
    const auto revision = aggregator.assignments("", 0).at("revision").to_number<std::uint64_t>();
    const std::string epoch(aggregator.assignments("", 0).at("epoch").as_string());
    secrets.values["site.token"] = "token-4712";
    aggregator.refresh_secrets();
    EXPECT_THAT(to_json_text(aggregator.assignments(epoch, revision, true)), HasSubstr("token-4712"));
    co_return;
}

CO_TEST(ProbeSecrets, AreNotInTheArgumentsOnANode) {
    EchoServer echo(loop.get_executor());
    echo.status = 200;
    CO_ASSERT_OK(echo.server.start());
    RecordingNode node(loop.get_executor());
    testing::TemporaryFolder folder;
    const auto hostile_file = (folder / "made").string();
    json::object headers{{"Authorization", {{"secret", "site.token"}, {"value", probe_secret}}},
                         {"X-Quote", "a\"b\\c\\\\d\\\"e\\n'f' # g = h"},
                         {"X-Option", fmt::format("\" output = \"{}", hostile_file)},
                         {"X-Unicode", "é✓"},
                         {"X-Empty", ""},
                         {"X-At", "@/etc/hostname"}};
    const std::string body = fmt::format("line\n\"\noutput = \"{}\"\n@/etc/hostname \\ \t{}", hostile_file, probe_secret);
    const auto spec = http_spec(echo.server.port(), {{"method", "POST"},
                                                     {"headers", headers},
                                                     {"path", "/a?token=in-the-path"},
                                                     {"body", {{"secret", "site.body"}, {"value", body}}}});
    const auto probe = node_probe(node, "n1", spec);
    CO_ASSERT_OK(probe);
    const auto seen = co_await (*probe)->run(Context::background().with_deadline(real_clock().steady() + 20s));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    EXPECT_EQ(echo.headers["Authorization"], probe_secret);
    for (const auto* name : {"X-Quote", "X-Option", "X-Unicode", "X-Empty", "X-At"})
        EXPECT_EQ(echo.headers[name], std::string_view(headers.at(name).as_string())) << name;
    EXPECT_THAT(echo.bodies, ::testing::ElementsAre(body));
    EXPECT_FALSE(echo.headers.contains("Content-Type")) << "as from this server";
    EXPECT_FALSE(std::filesystem::exists(hostile_file));
    EXPECT_THAT(node.arguments,
                AllOf(HasSubstr("-K"), Not(HasSubstr("4711")), Not(HasSubstr("in-the-path")), Not(HasSubstr("X-Quote"))));
    co_await echo.server.stop(0s);
}

} // namespace orrery::health
