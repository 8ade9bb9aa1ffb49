#include "catalog/checker.h"
#include "core/json_fields.h"
#include "core/test_fixture.h"
#include "net/http_server.h"
#include "resource/resource_fixture.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>

namespace orrery::catalog {

using namespace std::chrono_literals;

namespace {

using resource::testing::an_object;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Context checker_tester = Context::make("tester");

asio::awaitable<void> run_pending_work() {
    for (int i = 0; i < 60; ++i) co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

std::vector<resource::Kind> catalog_kinds() {
    std::vector<resource::Kind> out;
    out.push_back(service_kind());
    out.push_back(instance_kind());
    out.push_back(catalog_node_kind());
    return out;
}

/// A command that ends as a test says.
class Commands final : public health::CommandRunner {
public:
    Task<Ended> run(Context, std::string node, std::vector<std::string>, std::string) override {
        ++runs;
        if (unreachable) co_return Error{Code::unavailable, "no way to " + node};
        co_return Ended{exit_code, "word from " + node};
    }
    int exit_code = 0, runs = 0;
    bool unreachable = false;
};

struct Site {
    explicit Site(asio::any_io_executor executor_,
                  std::shared_ptr<store::MemoryStore::Shared> shared = std::make_shared<store::MemoryStore::Shared>())
        : executor(executor_),
          fixture(executor_, std::move(shared), catalog_kinds()),
          catalog(fixture.store),
          leadership(executor_, fixture.store, {.server = "me", .clock = &fixture.clock}),
          checker(executor_, *fixture.resources, catalog, leadership, fixture.clock,
                  {.commands = &commands,
                   .secrets = [this](std::string_view named) { return fixture.resources->reveal_named(named); },
                   .outbound = *net::OutboundRules::make({.allow = {"127.0.0.0/9"}})}),
          group(executor_) {}
    asio::awaitable<void> start() {
        group.spawn(leadership.run(checker_tester));
        group.spawn(checker.run(checker_tester));
        co_await run_pending_work();
    }
    asio::awaitable<void> pass(Duration time, Duration step = 500ms) {
        for (Duration gone{}; gone < time; gone += step) {
            fixture.clock.advance(step);
            co_await run_pending_work();
        }
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, json::object spec) {
        const auto& of = fixture.kind(kind);
        if (of.name() == "Instance") {
            const auto service = std::string(spec.at("service").as_string());
            if (!fixture.resources->exists(fixture.kind("services"), service)) {
                CO_TRY(std::ignore, co_await create("services", service, {}));
            }
        }
        co_return co_await fixture.resources->create(checker_tester, of, an_object(of.name(), std::move(name), std::move(spec)),
                                                     {});
    }
    json::object status(std::string_view kind, std::string_view name) const {
        const auto object = fixture.resources->get(fixture.kind(kind), name);
        return object.ok() ? object->status : json::object{{"error", object.error().text()}};
    }
    std::string state(std::string_view name) const { return text_at(status("instances", name), "state"); }

    asio::any_io_executor executor;
    resource::testing::ResourceFixture fixture;
    Catalog catalog;
    store::Leadership leadership;
    Commands commands;
    Checker checker;
    TaskGroup group;
};

json::object ttl_instance(std::string ttl) {
    return {
        {"service", "tick"}, {"node", "n1"}, {"address", "192.0.2.1"}, {"checks", {{{"id", "t"}, {"kind", "ttl"}, {"ttl", ttl}}}}};
}

} // namespace

CO_TEST(Checker, ContinuesAfterAStopAndARestart) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create(
        "instances", "w",
        {{"service", "web"},
         {"node", "n1"},
         {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}, {"interval", "5s"}, {"rise", 1}, {"fall", 1}}}}}));
    co_await site.pass(6s);
    EXPECT_EQ(site.state("w"), "passing");
    co_await site.group.stop();
    site.group.reopen();
    site.commands.exit_code = 2;
    co_await site.start();
    co_await site.pass(12s);
    EXPECT_EQ(site.state("w"), "registered");
    co_await site.group.stop();
}

CO_TEST(Checker, RunsChecksAndWritesOnlyChanges) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("services", "web", {{"wanted", 1}}));
    CO_ASSERT_OK(co_await site.create(
        "instances", "w",
        {{"service", "web"},
         {"node", "n1"},
         {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}, {"interval", "5s"}, {"rise", 1}, {"fall", 2}}}}}));
    co_await run_pending_work();
    EXPECT_EQ(site.state("w"), "registered");
    co_await site.pass(6s);
    EXPECT_GE(site.commands.runs, 1);
    EXPECT_EQ(site.state("w"), "passing");
    EXPECT_EQ(text_at(site.status("services", "web"), "state"), "complete");
    const auto revision = site.fixture.store.revision();
    co_await site.pass(60s);
    EXPECT_EQ(site.fixture.store.revision(), revision) << "nothing changed, and something was written";
    EXPECT_GE(site.commands.runs, 10);

    site.commands.exit_code = 2;
    co_await site.pass(16s);
    EXPECT_EQ(site.state("w"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "w"), "message"), HasSubstr("word from n1"));
    EXPECT_EQ(text_at(site.status("services", "web"), "state"), "empty");
    site.commands.unreachable = true; // evidence of nothing
    const auto then = site.fixture.store.revision();
    co_await site.pass(60s);
    EXPECT_EQ(site.fixture.store.revision(), then);
    site.commands.unreachable = false;
    site.commands.exit_code = 1;
    co_await site.pass(6s);
    EXPECT_EQ(site.state("w"), "usable");
    co_await site.group.stop();
}

CO_TEST(Checker, ProbesTheAddressOfTheInstance) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create(
        "services", "web",
        {{"port", acceptor.local_endpoint().port()}, {"checks", {{{"kind", "tcp"}, {"interval", "1s"}, {"timeout", "1s"}}}}}));
    CO_ASSERT_OK(co_await site.create("instances", "w", {{"service", "web"}, {"node", "n1"}}));
    co_await site.pass(3s);
    EXPECT_EQ(site.state("w"), "registered"); // the address of n1 is unknown
    EXPECT_FALSE(site.status("instances", "w").contains("address"));
    CO_ASSERT_OK(co_await site.create("nodes", "n1", {{"address", "127.0.0.1"}}));
    co_await site.pass(2s);
    for (int i = 0; i < 200 && site.state("w") != "passing"; ++i) { // a real connection takes a moment of real time
        std::ignore = co_await real_clock().sleep(5ms);
        co_await site.pass(500ms);
    }
    EXPECT_EQ(site.state("w"), "passing");
    EXPECT_EQ(text_at(site.status("instances", "w"), "address"), "127.0.0.1");             // of the node
    EXPECT_EQ(site.status("instances", "w").at("port"), acceptor.local_endpoint().port()); // of the service
    co_await site.group.stop();
}

CO_TEST(Checker, SendsSecretsAndNeverShowsThem) {
    Site site(loop.get_executor());
    co_await site.start();
    std::string sent;
    int status = 500;
    net::HttpServer server(loop.get_executor(), {},
                           [&](Context ctx, net::Request& request, net::BodyReader&, net::ResponseWriter& out) -> Task<Unit> {
                               sent = request.headers.get("X-Key");
                               co_return co_await out.send(ctx, net::Response{status, {}, "you sent " + sent});
                           });
    CO_ASSERT_OK(server.start());
    auto& resources = *site.fixture.resources;
    const auto& secrets = site.fixture.secrets();
    CO_ASSERT_OK(
        co_await resources.create(checker_tester, secrets, resource::testing::a_secret("site", {{"key", "first-key-4711"}}), {}));
    const json::object check{{"kind", "http"},   {"headers", {{"X-Key", {{"secret", "site.key"}}}}},
                             {"interval", "1s"}, {"timeout", "1s"},
                             {"rise", 1},        {"fall", 1}};
    CO_ASSERT_OK(co_await site.create(
        "instances", "web-1",
        {{"service", "web"}, {"node", "n1"}, {"address", "127.0.0.1"}, {"port", server.port()}, {"checks", json::array{check}}}));
    co_await run_pending_work();
    const auto shown = [&] { return json::serialize(site.status("instances", "web-1")); };
    const auto until = [&](std::function<bool()> holds) -> asio::awaitable<void> { // a real answer takes a moment of real time
        for (int i = 0; i < 400 && !holds(); ++i) {
            std::ignore = co_await real_clock().sleep(5ms);
            co_await site.pass(500ms);
        }
    };
    co_await until([&] { return shown().find("500") != std::string::npos; });
    EXPECT_EQ(sent, "first-key-4711");
    EXPECT_THAT(shown(), AllOf(HasSubstr("500"), Not(HasSubstr("4711"))));
    status = 200;
    CO_ASSERT_OK(
        co_await resources.replace(checker_tester, secrets, resource::testing::a_secret("site", {{"key", "second-key-4712"}}), {}));
    co_await until([&] { return site.state("web-1") == "passing"; });
    EXPECT_EQ(sent, "second-key-4712");
    EXPECT_THAT(shown(), Not(HasSubstr("4712")));
    // Without its value it cannot run: it reports that, and keeps its state.
    CO_ASSERT_OK(co_await resources.replace(checker_tester, secrets, resource::testing::a_secret("site", {{"other", "x"}}), {}));
    co_await site.pass(2s);
    EXPECT_THAT(shown(), AllOf(HasSubstr(R"("state":"passing")"),
                               HasSubstr(R"(cannot run, no evidence: Secret site has no value \"key\")")));
    CO_ASSERT_OK(
        co_await resources.replace(checker_tester, secrets, resource::testing::a_secret("site", {{"key", "third-key-4713"}}), {}));
    co_await until([&] { return sent == "third-key-4713"; });
    EXPECT_THAT(shown(), Not(HasSubstr("cannot run")));
    co_await site.group.stop();
    co_await server.stop(0s);
}

CO_TEST(Checker, ATtlCheckExpires) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", ttl_instance("10s")));
    co_await run_pending_work();
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    co_await run_pending_work();
    EXPECT_EQ(site.state("w"), "passing");
    for (int i = 0; i < 5; ++i) {
        co_await site.pass(8s);
        CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
        EXPECT_EQ(site.state("w"), "passing");
    }
    co_await site.pass(9s);
    EXPECT_EQ(site.state("w"), "passing");
    co_await site.pass(2s);
    EXPECT_EQ(site.state("w"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "w"), "message"),
                HasSubstr("TTL expired (last output before timeout follows): fine"));
    auto unknown = co_await site.checker.report(checker_tester, "instances/w", "x", CheckStatus::passing, "");
    EXPECT_EQ(unknown.error().code, Code::not_found);
    co_await site.group.stop();
}

CO_TEST(Checker, ANewTtlCheckHasItsFullTtlBeforeTheFirstReport) {
    Site site(loop.get_executor());
    co_await site.start();
    co_await site.pass(60s, 5s);
    auto spec = ttl_instance("10s");
    spec["checks"].as_array()[0].as_object()["initial"] = "passing";
    CO_ASSERT_OK(co_await site.create("instances", "w", spec));
    co_await site.pass(9s);
    EXPECT_EQ(site.state("w"), "passing");
    co_await site.pass(2s);
    EXPECT_EQ(site.state("w"), "registered");
    co_await site.group.stop();
}

CO_TEST(Checker, ReportsThatOnlyRenewATtlAreWrittenSeldom) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", ttl_instance("40s")));
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    co_await run_pending_work();
    const auto before = site.fixture.store.revision();
    for (int i = 0; i < 40; ++i) {
        co_await site.pass(1s);
        CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    }
    EXPECT_LE(site.fixture.store.revision() - before, 4);
    co_await site.group.stop();
}

CO_TEST(Checker, TheStateBeforeARestartIsKeptUntilThereIsEvidence) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        Site site(loop.get_executor(), shared);
        co_await site.start();
        CO_ASSERT_OK(co_await site.create(
            "instances", "w",
            {{"service", "web"}, {"node", "n1"}, {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}}}}}));
        CO_ASSERT_OK(co_await site.create("instances", "t", ttl_instance("10s")));
        CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/t", "t", CheckStatus::passing, ""));
        co_await site.pass(11s, 1s);
        EXPECT_EQ(site.state("w"), "passing");
        CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/t", "t", CheckStatus::passing, ""));
        co_await site.group.stop();
    }
    Site site(loop.get_executor(), shared);
    site.fixture.clock.advance(1h); // away for an hour
    site.commands.unreachable = true;
    co_await site.start();
    co_await run_pending_work();
    EXPECT_EQ(site.state("w"), "passing");
    EXPECT_TRUE(site.catalog.find_resource("w")->checks.at(0).stale);
    EXPECT_EQ(site.state("t"), "passing"); // no report could arrive while the server was stopped
    site.commands.unreachable = false;
    co_await site.pass(9s);
    EXPECT_EQ(site.state("t"), "passing");
    co_await site.pass(3s);
    EXPECT_EQ(site.state("t"), "registered");
    EXPECT_FALSE(site.catalog.find_resource("w")->checks.at(0).stale);
    co_await site.group.stop();
}

CO_TEST(Checker, AResultFromBeforeARestartIsNoEvidenceUntilAProbeAgrees) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        Site site(loop.get_executor(), shared);
        co_await site.start();
        CO_ASSERT_OK(co_await site.create(
            "instances", "w",
            {{"service", "web"}, {"node", "n1"}, {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}}}}}));
        co_await site.pass(11s, 1s);
        EXPECT_EQ(site.catalog.members("web", "")->all.at(0).evidence, Evidence::confirmed);
        co_await site.group.stop();
    }
    Site site(loop.get_executor(), shared);
    site.commands.exit_code = 2; // it failed while the server was stopped
    int told = 0;
    auto handle = site.catalog.subscribe([&](const std::string&) { ++told; });
    co_await site.start();
    EXPECT_GT(told, 0);
    const auto member = [&] { return site.catalog.members("web", "")->all.at(0); };
    EXPECT_EQ(member().evidence, Evidence::awaited);
    co_await site.pass(11s, 1s);
    EXPECT_GE(site.commands.runs, 1);
    EXPECT_EQ(member().state, State::passing);
    EXPECT_EQ(member().evidence, Evidence::awaited) << "one failed probe neither brings it down nor confirms it";
    co_await site.pass(21s, 1s);
    EXPECT_EQ(member().state, State::registered);
    EXPECT_EQ(member().evidence, Evidence::confirmed);
    co_await site.group.stop();
}

CO_TEST(Checker, TheFirstRoundAfterARestartIsBounded) {
    const auto shared = std::make_shared<store::MemoryStore::Shared>();
    {
        Site site(loop.get_executor(), shared);
        co_await site.start();
        CO_ASSERT_OK(co_await site.create(
            "instances", "w",
            {{"service", "web"}, {"node", "n1"}, {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}}}}}));
        co_await site.pass(11s, 1s);
        co_await site.group.stop();
    }
    Site site(loop.get_executor(), shared);
    site.commands.unreachable = true;
    co_await site.start();
    co_await site.pass(59s, 1s);
    EXPECT_EQ(site.catalog.members("web", "")->all.at(0).evidence, Evidence::awaited);
    co_await site.pass(2s, 1s);
    EXPECT_EQ(site.catalog.members("web", "")->all.at(0).evidence, Evidence::unconfirmed);
    site.commands.unreachable = false;
    co_await site.pass(11s, 1s);
    EXPECT_EQ(site.catalog.members("web", "")->all.at(0).evidence, Evidence::confirmed);
    co_await site.group.stop();
}

CO_TEST(Checker, RemovesInstancesThatWereCriticalForTooLong) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(
        co_await site.create("instances", "w",
                             {{"service", "web"},
                              {"node", "n1"},
                              {"checks", {{{"id", "c"}, {"kind", "external"}, {"initial", "passing"}, {"remove_after", "2m"}}}}}));
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "c", CheckStatus::critical, "gone"));
    co_await site.pass(110s, 5s);
    EXPECT_EQ(site.state("w"), "registered");
    co_await site.pass(15s, 5s);
    EXPECT_THAT(text_at(site.status("instances", "w"), "error"), HasSubstr("not_found"));
    co_await site.group.stop();
}

CO_TEST(Checker, ACheckOfANodeAppliesToAllItsInstances) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", {{"service", "web"}, {"node", "n1"}}));
    CO_ASSERT_OK(co_await site.create(
        "catalognodes", "n1", {{"node", "n1"}, {"checks", {{{"id", "disk"}, {"kind", "external"}, {"initial", "passing"}}}}}));
    co_await run_pending_work();
    EXPECT_EQ(site.state("w"), "passing");
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "catalognodes/n1", "disk", CheckStatus::critical, "full"));
    co_await run_pending_work();
    EXPECT_EQ(site.state("w"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "w"), "message"), HasSubstr("the node's check \"disk\" is critical: full"));
    co_await site.group.stop();
}

CO_TEST(Checker, ADeniedCheckIsNoEvidenceAndHasAReason) {
    Site site(loop.get_executor());
    co_await site.start();
    const auto instance = [](std::string address, std::string initial) {
        return json::object{
            {"service", "web"},
            {"node", "n1"},
            {"address", std::move(address)},
            {"port", 80},
            {"checks", {{{"id", "c"}, {"kind", "tcp"}, {"interval", "5s"}, {"initial", initial}, {"remove_after", "1m"}}}}};
    };
    CO_ASSERT_OK(co_await site.create("instances", "a", instance("169.254.169.254", "critical")));
    auto passing = instance("169.254.169.254", "passing");
    passing["id"] = "b";
    CO_ASSERT_OK(co_await site.create("instances", "b", std::move(passing)));
    for (int i = 0; i < 200 && text_at(site.status("instances", "a"), "message").find("outbound") == std::string::npos; ++i) {
        co_await site.pass(1s);
        co_await asio::steady_timer(loop, 5ms).async_wait(asio::use_awaitable);
    }
    EXPECT_EQ(site.state("a"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "a"), "message"), HasSubstr("cannot run, no evidence"));
    EXPECT_THAT(text_at(site.status("instances", "a"), "message"), HasSubstr("net.outbound.allow"));
    EXPECT_THAT(text_at(site.status("instances", "b"), "message"), HasSubstr("cannot run, no evidence"));
    const auto status = site.status("instances", "a");
    EXPECT_FALSE(status.at("checks").at("c").as_object().contains("since"));
    co_await site.pass(5min, 10s); // remove_after needs evidence
    EXPECT_EQ(site.state("a"), "registered");
    co_await site.group.stop();
}

CO_TEST(Checker, RegisteredChecksSendNoBodyAndOnlyGetOrHead) {
    Site site(loop.get_executor());
    co_await site.start();
    const auto with = [](json::object check) {
        check["id"] = "c";
        check["kind"] = "http";
        check["url"] = "http://192.0.2.1/";
        return json::object{{"service", "web"}, {"node", "n1"}, {"checks", json::array{std::move(check)}}};
    };
    const auto post = co_await site.create("instances", "a", with({{"method", "POST"}}));
    CO_ASSERT(!post.ok());
    EXPECT_EQ(post.error().fields.front().path, "spec.checks[0].method");
    const auto body = co_await site.create("instances", "a", with({{"body", "x"}}));
    CO_ASSERT(!body.ok());
    EXPECT_EQ(body.error().fields.front().path, "spec.checks[0].body");
    CO_ASSERT_OK(co_await site.create("instances", "a", with({{"method", "HEAD"}})));
    // What a Service declares is an operator's.
    CO_ASSERT_OK(co_await site.create(
        "services", "declared", {{"checks", {{{"id", "c"}, {"kind", "http"}, {"url", "http://192.0.2.1/"}, {"method", "POST"}}}}}));
    // One that was stored before is not sent.
    Check stored{.id = "c", .kind = Check::Kind::http, .method = "PUT", .registered = true};
    EXPECT_THAT(refusal_of(stored), HasSubstr("GET and HEAD only"));
    stored.registered = false;
    EXPECT_EQ(refusal_of(stored), "");
    co_await site.group.stop();
}

} // namespace orrery::catalog
