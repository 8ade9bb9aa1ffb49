#include "core/test_fixture.h"
#include "health/check_spec.h"
#include "health/probes/command_probe.h"
#include "health/probes/node_probe.h"
#include "health/probes/programs.h"
#include "health/vantages/health_aggregator.h"
#include "health/vantages/remote_checker.h"
#include "net/http_server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

namespace orrery::health {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

namespace {

CheckSpec tcp_spec(std::uint16_t port, Duration interval = 10s) {
    return {.probe = json::object{{"kind", "tcp"}},
            .address = "127.0.0.1",
            .port = port,
            .interval = interval,
            .timeout = 5s,
            .thresholds = {.rise = 1, .fall = 2}};
}

json::object report_of(std::string_view key, std::string_view state, std::string_view outcome, int failures = 0) {
    return {{"key", key}, {"state", state}, {"class", outcome}, {"ms", 3}, {"n_fail", failures}, {"age_ms", 0}};
}

json::object reports_from(std::string_view vantage, json::array reports, bool trusted = true) {
    return {{"vantage", vantage},
            {"trusted", trusted},
            {"message", trusted ? "" : "2 of 2 canaries fail"},
            {"reports", std::move(reports)}};
}

/// An aggregator that does not probe, because `run` is not called.
struct Still {
    explicit Still(asio::io_context& loop)
        : aggregator(loop.get_executor(), clock, {}, [this](const std::string& key, const AggregatedHealth& health) {
              changes.push_back(fmt::format("{} {}{}", key, name_of(health.state), health.stale ? " stale" : ""));
          }) {}
    VirtualClock clock;
    std::vector<std::string> changes;
    HealthAggregator aggregator;
};

/// Runs the commands for nodes on this host.
class LocalNode final : public CommandRunner {
public:
    explicit LocalNode(asio::any_io_executor executor) : programs_(std::move(executor)) {}
    Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv, std::string input) override {
        if (node == "gone") co_return Error{Code::unavailable, "there is no way to it"};
        const testing::TemporaryFolder folder;
        const auto file = (folder.path() / "input").string();
        std::ofstream(file) << input;
        argv.insert(argv.begin(), {"/bin/bash", "-c", "exec \"$@\" <\"$0\"", file, "/usr/bin/timeout", "-k", "1", "5"});
        CO_TRY(auto ended, co_await programs_.run(ctx, std::move(argv), {{"PATH", "/usr/bin:/bin"}}));
        co_return Ended{ended.exit_code, std::move(ended.output)};
    }

private:
    Programs programs_;
};

asio::awaitable<Observation> probe_from_node(CommandRunner& node, CheckSpec spec, std::string name = "n1") {
    auto probe = node_probe(node, name, spec);
    if (!probe.ok()) co_return Observation{.outcome = Outcome::failed, .text = probe.error().text()};
    co_return co_await (*probe)->run(Context::background().with_deadline(real_clock().steady() + 10s));
}

/// What the server's API does with an aggregator.
Task<Unit> serve_checkers(HealthAggregator& aggregator, Context ctx, net::Request& request, net::BodyReader& body,
                          net::ResponseWriter& out) {
    if (request.target.path == "/v1/health/assignments") {
        const auto epoch = request.target.param("epoch").value_or("");
        const auto after = std::stoull(request.target.param("after").value_or("0"));
        auto answer = aggregator.assignments(epoch, after);
        if (answer.at("set").get_array().empty() && answer.at("removed").get_array().empty() && !answer.at("reset").get_bool()) {
            std::ignore = co_await aggregator.assignments_changed(ctx.with_deadline(real_clock().steady() + 1s), after);
            answer = aggregator.assignments(epoch, after);
        }
        co_return co_await out.send(ctx, net::Response{200, {}, to_json_text(answer)});
    }
    CO_TRY(auto text, co_await net::read_all(ctx, body, 1 << 20));
    CO_TRY(auto sent, parse_json(text));
    const auto taken = aggregator.receive_reports(sent);
    co_return co_await out.send(ctx, net::Response{taken.ok() ? 200 : 400, {}, taken.ok() ? "{}" : taken.error().text()});
}

} // namespace

TEST(CheckSpec, SurvivesAJsonRoundTrip) {
    auto spec = tcp_spec(80, 1500ms);
    spec.probe["contains"] = "hello";
    spec.fast_interval = 500ms;
    spec.down_interval = 1min;
    const auto again = CheckSpec::from_json(spec.to_json());
    ASSERT_TRUE(again.ok()) << again.error().text();
    EXPECT_TRUE(*again == spec);
    for (const auto& [field, value] : {std::pair<const char*, json::value>{"interval", "1ms"},
                                       {"interval", 5},
                                       {"timeout", "2d"},
                                       {"fast_interval", "1ms"},
                                       {"down_interval", 7},
                                       {"address", ""},
                                       {"probe", "tcp"},
                                       {"probe", json::object{{"kind", "tcp"}, {"path", "/"}}}}) {
        auto broken = spec.to_json();
        broken[field] = value;
        const auto read = CheckSpec::from_json(broken);
        ASSERT_FALSE(read.ok()) << field;
        EXPECT_THAT(read.error().message, HasSubstr(field));
    }
}

CO_TEST(HealthAggregator, AcceptsTheMajorityOfVantages) {
    Still still(loop);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80), {}, HealthState::up));
    EXPECT_TRUE(still.aggregator.health("a")->stale);
    for (const auto* name : {"one", "two", "three"})
        CO_ASSERT_OK(still.aggregator.receive_reports(reports_from(name, {report_of("a", "up", "ok")})));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up);
    EXPECT_FALSE(still.aggregator.health("a")->stale);
    CO_ASSERT_OK(still.aggregator.receive_reports(reports_from("one", {report_of("a", "down", "refused", 2)})));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up);
    EXPECT_TRUE(still.aggregator.health("a")->decision.withheld);
    EXPECT_EQ(still.aggregator.health("a")->decision.message, "1 of 3 down, need 2");
    CO_ASSERT_OK(still.aggregator.receive_reports(reports_from("two", {report_of("a", "down", "refused", 2)})));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::down);
    EXPECT_EQ(still.aggregator.health("a")->rtt.at("three"), 3);
    co_return;
}

CO_TEST(HealthAggregator, IgnoresSilentAndQuarantinedVantages) {
    Still still(loop);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80)));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::unknown);
    TaskGroup group(loop.get_executor());
    for (const auto* name : {"one", "two", "three"})
        CO_ASSERT_OK(still.aggregator.receive_reports(reports_from(name, {report_of("a", "up", "ok")})));
    // Two are isolated and see everything down; they quarantine themselves, and do not count.
    for (const auto* name : {"one", "two"})
        CO_ASSERT_OK(still.aggregator.receive_reports(reports_from(name, {report_of("a", "down", "timeout_connect", 3)}, false)));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up);
    EXPECT_THAT(to_json_text(still.aggregator.health("a")->decision.evidence), HasSubstr("2 of 2 canaries fail"));
    const auto vantages = to_json_text(still.aggregator.vantages());
    EXPECT_THAT(vantages, HasSubstr(R"({"name":"one","kind":"checker","trusted":false)"));
    // Then all checkers are silent: the state stays, and is stale.
    still.clock.advance(2min);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80)));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up);
    EXPECT_TRUE(still.aggregator.health("a")->stale);
    EXPECT_EQ(still.aggregator.health("a")->decision.message, "no vantage has fresh evidence");
    co_return;
}

CO_TEST(HealthAggregator, ACheckerThatLeavesOrDiesDoesNotDelayAWithdrawal) {
    Still still(loop);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80), {}, HealthState::up));
    const auto beat = [](std::string_view name, json::array reports) {
        auto out = reports_from(name, std::move(reports));
        out["heartbeat_ms"] = 2000;
        return out;
    };
    EXPECT_EQ(still.aggregator.vantage_expiry(), 0s) << "there is no other vantage";
    for (const auto* name : {"one", "two", "three"})
        CO_ASSERT_OK(still.aggregator.receive_reports(beat(name, {report_of("a", "up", "ok")})));
    EXPECT_EQ(still.aggregator.vantage_expiry(), 7s);
    CO_ASSERT_OK(still.aggregator.receive_reports(beat("one", {report_of("a", "down", "refused", 2)})));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up) << "one of three";
    // One signs off: it no longer counts, and is not listed.
    auto leaving = beat("two", {});
    leaving["leaving"] = true;
    CO_ASSERT_OK(still.aggregator.receive_reports(leaving));
    EXPECT_THAT(to_json_text(still.aggregator.vantages()), ::testing::Not(HasSubstr("two")));
    EXPECT_EQ(still.aggregator.health("a")->decision.message, "1 of 2 down, need 2");
    // The other dies: after three missed heartbeats its reports do not count.
    still.clock.advance(4s);
    CO_ASSERT_OK(still.aggregator.receive_reports(beat("one", {})));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::up);
    still.clock.advance(3s);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80)));
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::down);
    EXPECT_THAT(to_json_text(still.aggregator.health("a")->decision.evidence), HasSubstr("silent for 7s"));
    EXPECT_THAT(
        to_json_text(still.aggregator.vantages()),
        HasSubstr(
            R"({"name":"three","kind":"checker","trusted":false,"targets":0,"message":"silent for 7s: its reports do not count","last_report_ms_ago":7000})"));
    co_return;
}

CO_TEST(HealthAggregator, EvidenceHasTheObservedMessage) {
    Still still(loop);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80)));
    auto report = report_of("a", "down", "bad_status", 2);
    report["message"] = "HTTP GET http://192.0.2.1/: 500 Internal\x1b[31m Server\nError";
    CO_ASSERT_OK(still.aggregator.receive_reports(reports_from("one", {report})));
    EXPECT_THAT(to_json_text(still.aggregator.health("a")->decision.evidence),
                HasSubstr(R"("message":"HTTP GET http://192.0.2.1/: 500 Internal [31m Server Error")"));
    // A vantage that cannot check does not count, and reports why.
    report = report_of("a", "unknown", "local_error");
    report["error"] = "disk: exit code 3";
    CO_ASSERT_OK(still.aggregator.receive_reports(reports_from("one", {report})));
    EXPECT_EQ(still.aggregator.health("a")->decision.error, "disk: exit code 3");
    EXPECT_EQ(still.aggregator.health("a")->state, HealthState::down) << "as it was";
    co_return;
}

CO_TEST(HealthAggregator, SendsChangedAssignmentsToCheckers) {
    Still still(loop);
    auto& aggregator = still.aggregator;
    for (int i = 0; i < 2500; ++i) CO_ASSERT_OK(aggregator.set(fmt::format("t{}", i), tcp_spec(80)));
    auto answer = aggregator.assignments("", 0);
    EXPECT_TRUE(answer.at("reset").get_bool());
    const std::string epoch{std::string_view(answer.at("epoch").get_string())};
    std::size_t count = answer.at("set").get_array().size();
    while (answer.at("more").get_bool()) {
        answer = aggregator.assignments(epoch, answer.at("revision").to_number<std::uint64_t>());
        EXPECT_FALSE(answer.at("reset").get_bool());
        count += answer.at("set").get_array().size();
    }
    EXPECT_EQ(count, 2500U);
    const auto seen = answer.at("revision").to_number<std::uint64_t>();
    EXPECT_EQ(aggregator.assignments(epoch, seen).at("set").get_array().size(), 0U);
    aggregator.remove("t7");
    CO_ASSERT_OK(aggregator.set("t8", tcp_spec(81)));
    CO_ASSERT_OK(aggregator.set("t9", tcp_spec(80))); // as before
    answer = aggregator.assignments(epoch, seen);
    EXPECT_EQ(to_json_text(answer.at("removed")), R"(["t7"])");
    EXPECT_EQ(answer.at("set").get_array().size(), 1U);
    EXPECT_TRUE(aggregator.assignments("another", seen).at("reset").get_bool());
    // A report about an earlier spec is ignored.
    auto late = report_of("t8", "down", "refused", 2);
    late["revision"] = 9;
    CO_ASSERT_OK(aggregator.receive_reports(reports_from("one", {late})));
    EXPECT_EQ(aggregator.health("t8")->state, HealthState::unknown);
    co_return;
}

CO_TEST(HealthAggregator, RejectsMalformedReports) {
    Still still(loop);
    CO_ASSERT_OK(still.aggregator.set("a", tcp_spec(80)));
    for (const auto* bad :
         {"[]", "{}", R"({"vantage":"","trusted":true,"reports":[]})", R"({"vantage":"x","reports":[]})",
          R"({"vantage":"x","trusted":true})", R"({"vantage":"x","trusted":true,"reports":[1]})",
          R"({"vantage":"x","trusted":true,"reports":[{"state":"down"}]})", R"({"vantage":"server","trusted":true,"reports":[]})",
          R"({"vantage":"a\nb","trusted":true,"reports":[]})"})
        EXPECT_FALSE(still.aggregator.receive_reports(*parse_json(bad)).ok()) << bad;
    EXPECT_EQ(still.aggregator.vantages().size(), 1U);
    for (int i = 0; i < 64; ++i)
        CO_ASSERT_OK(still.aggregator.receive_reports(reports_from(fmt::format("v{}", i), {report_of("gone", "down", "ok")})));
    EXPECT_EQ(still.aggregator.receive_reports(reports_from("v64", {})).error().code, Code::throttled);
    EXPECT_FALSE(still.aggregator.set("b\nc", tcp_spec(80)).ok());
    EXPECT_FALSE(still.aggregator.set("b", tcp_spec(0)).ok());
    co_return;
}

CO_TEST(NodeProbe, ProbesWithToolsThatEveryNodeHas) {
    LocalNode node(loop.get_executor());
    asio::ip::tcp::acceptor open(loop, {asio::ip::make_address("127.0.0.1"), 0});
    asio::ip::tcp::acceptor closed(loop, {asio::ip::make_address("127.0.0.1"), 0});
    const auto closed_port = closed.local_endpoint().port();
    closed.close();
    auto seen = co_await probe_from_node(node, tcp_spec(open.local_endpoint().port()));
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    seen = co_await probe_from_node(node, tcp_spec(closed_port));
    EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
    seen = co_await probe_from_node(node, tcp_spec(closed_port), "gone");
    EXPECT_EQ(seen.outcome, Outcome::local_error) << seen.text;

    net::HttpServer server(loop.get_executor(), {},
                           [](Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               const bool good = request.target.path == "/ok" && request.headers.get("host") == "www.example:1234";
                               co_return co_await out.send(ctx, net::Response{good ? 200 : 503, {}, "x"});
                           });
    CO_ASSERT_OK(server.start());
    auto web = tcp_spec(server.port());
    web.probe = {{"kind", "http"}, {"path", "/ok"}, {"headers", json::object{{"Host", "www.example:1234"}}}};
    seen = co_await probe_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    web.probe["path"] = "/other";
    seen = co_await probe_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::bad_status) << seen.text;
    web.probe["expect"] = "503";
    seen = co_await probe_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::ok) << seen.text;
    web.port = closed_port;
    seen = co_await probe_from_node(node, web);
    EXPECT_EQ(seen.outcome, Outcome::refused) << seen.text;
    for (const auto& probe : {json::object{{"kind", "udp"}, {"send", "x"}}, json::object{{"kind", "tcp"}, {"contains", "x"}},
                              json::object{{"kind", "http"}, {"headers", json::object{{"@/etc/passwd", "x"}}}}}) {
        auto other = tcp_spec(80);
        other.probe = probe;
        EXPECT_EQ(node_probe(node, "n1", other).error().code, Code::unsupported);
    }
    co_await server.stop(0s);
}

CO_TEST(RemoteChecker, ProbesForAServerAndCountsTowardsQuorum) {
    asio::ip::tcp::acceptor target(loop, {asio::ip::make_address("127.0.0.1"), 0});
    asio::ip::tcp::acceptor gateway(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Notifier changed(loop.get_executor());
    HealthAggregator aggregator(loop.get_executor(), real_clock(), {},
                                [&changed](const std::string&, const AggregatedHealth&) { changed.notify_all(); });
    net::HttpServer server(loop.get_executor(), {},
                           [&aggregator](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
                               return serve_checkers(aggregator, ctx, request, body, out);
                           });
    CO_ASSERT_OK(server.start());
    const auto until = Context::background().with_deadline(real_clock().steady() + 60s);
    const auto state_of = [&](const std::string& key) { return aggregator.health(key)->state; };
    CO_ASSERT_OK(aggregator.set("a", tcp_spec(target.local_endpoint().port(), 100ms)));

    TaskGroup group(loop.get_executor());
    RemoteChecker checker(loop.get_executor(), real_clock(),
                          {.server = *net::parse_url(fmt::format("http://127.0.0.1:{}/", server.port())),
                           .token = "secret",
                           .name = "elsewhere",
                           .deps = {},
                           .rule = {},
                           .canaries = {tcp_spec(gateway.local_endpoint().port(), 100ms)},
                           .tls = nullptr,
                           .refresh = 200ms,
                           .poll_timeout = 2s,
                           .max_backoff = 200ms});
    const auto run = [](RemoteChecker& one, Result<Unit>& into) -> asio::awaitable<void> {
        into = co_await one.run(Context::make("test"));
    };
    Result<Unit> ended;
    group.spawn(run(checker, ended));
    while (state_of("a") != HealthState::up) CO_ASSERT_OK(co_await changed.wait(until));
    // A second target while it runs; then the first one fails.
    asio::ip::tcp::acceptor second(loop, {asio::ip::make_address("127.0.0.1"), 0});
    CO_ASSERT_OK(aggregator.set("b", tcp_spec(second.local_endpoint().port(), 100ms)));
    while (state_of("b") != HealthState::up) CO_ASSERT_OK(co_await changed.wait(until));
    target.close();
    while (state_of("a") != HealthState::down) CO_ASSERT_OK(co_await changed.wait(until));
    EXPECT_EQ(state_of("b"), HealthState::up);
    EXPECT_THAT(to_json_text(aggregator.health("a")->decision.evidence), HasSubstr(R"("vantage":"elsewhere","class":"refused")"));
    // The network of the checker fails: it quarantines itself, and no target goes down.
    gateway.close();
    while (checker.counts().trusted) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    second.close();
    const auto sent = checker.counts().sent;
    while (checker.counts().sent < sent + 6) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    EXPECT_EQ(state_of("b"), HealthState::up);
    EXPECT_TRUE(aggregator.health("b")->stale);
    aggregator.remove("a");
    while (checker.counts().targets != 1) CO_ASSERT_OK(co_await real_clock().sleep(20ms));
    co_await group.stop();
    co_await server.stop(0s);
}

CO_TEST(HealthAggregator, PeersReportUnhealthyTargetsOnly) {
    Still still(loop);
    auto& aggregator = still.aggregator;
    std::map<std::string, std::uint64_t> digests;
    aggregator.share_reports(
        [&](const std::string& key, const PeerReport* report) { digests[key] = report == nullptr ? 0 : report->digest; }, {});
    CO_ASSERT_OK(aggregator.set("a", tcp_spec(80), {}, HealthState::up));
    const auto report_of_state = [&](HealthState state) {
        PeerReport report{.report = {.state = state, .last = Outcome::refused}, .digest = digests.at("a")};
        return report;
    };
    for (const auto* name : {"s2", "s3"}) aggregator.set_peer(name, {.ready = true});
    EXPECT_TRUE(aggregator.health("a")->stale) << "no peer has had the time to probe it";
    still.clock.advance(26s);
    aggregator.set_peer("s2", {.ready = false});
    aggregator.set_peer("s2", {.ready = true});
    EXPECT_FALSE(aggregator.health("a")->stale) << "two peers do not report it: they consider it healthy";
    EXPECT_EQ(aggregator.health("a")->decision.counted, 2);
    aggregator.set_peer_report("s2", "a", report_of_state(HealthState::down));
    EXPECT_EQ(aggregator.health("a")->state, HealthState::up);
    EXPECT_TRUE(aggregator.health("a")->decision.withheld);
    aggregator.set_peer_report("s3", "a", report_of_state(HealthState::down));
    EXPECT_EQ(aggregator.health("a")->state, HealthState::down);
    // A quarantined peer, and a report about another spec, do not count.
    aggregator.set_peer_report("s3", "a", std::nullopt);
    EXPECT_EQ(aggregator.health("a")->state, HealthState::up);
    aggregator.set_peer("s2",
                        {.trusted = false, .message = "2 of 2 canaries fail", .cause = QuarantineCause::canaries, .ready = true});
    EXPECT_FALSE(aggregator.health("a")->decision.withheld);
    EXPECT_EQ(aggregator.health("a")->decision.counted, 1);
    CO_ASSERT_OK(aggregator.set("a", tcp_spec(81)));
    aggregator.set_peer("s2", {.ready = true});
    EXPECT_EQ(aggregator.health("a")->decision.counted, 0);
    still.clock.advance(26s);
    aggregator.set_peer("s3", {.ready = true, .targets = 1});
    aggregator.set_peers_connected(false);
    EXPECT_TRUE(aggregator.health("a")->stale) << "disconnected peers do not count";
    EXPECT_EQ(aggregator.health("a")->state, HealthState::up);
    aggregator.set_peers_connected(true);
    EXPECT_EQ(aggregator.health("a")->decision.counted, 2);
    aggregator.remove_peer("s3");
    EXPECT_EQ(aggregator.health("a")->decision.counted, 1);
    aggregator.remove("a");
    EXPECT_EQ(digests.at("a"), 0U);
    co_return;
}

CO_TEST(HealthAggregator, CloseWakesWaitingCheckers) {
    Still still(loop);
    TaskGroup group(loop.get_executor());
    bool woken = false;
    const auto wait = [](Still& from, bool& done) -> asio::awaitable<void> {
        done = (co_await from.aggregator.assignments_changed(Context::background(), 0)).ok();
    };
    group.spawn(wait(still, woken));
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    EXPECT_FALSE(woken);
    still.aggregator.close();
    co_await group.join();
    EXPECT_TRUE(woken);
    still.aggregator.disable("this server makes no probes");
    EXPECT_FALSE(still.aggregator.receive_reports(reports_from("ams", {})).ok());
}

} // namespace orrery::health
