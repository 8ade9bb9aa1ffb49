#include "catalog/checker.h"
#include "catalog/json_read.h"
#include "core/testing.h"
#include "resource/testing.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

namespace orrery::catalog {

using namespace std::chrono_literals;

namespace {

using resource::testing::an_object;
using ::testing::HasSubstr;

const Context checker_tester = Context::make("tester");

asio::awaitable<void> settle_all() {
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
    Task<Ended> run(Context, std::string node, std::vector<std::string>) override {
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
          house(executor_, std::move(shared), catalog_kinds()),
          catalog(house.store),
          leadership(executor_, house.store, {.server = "me", .clock = &house.clock}),
          checker(executor_, *house.resources, catalog, leadership, house.clock, {.commands = &commands}),
          group(executor_) {}
    asio::awaitable<void> start() {
        group.spawn(leadership.run(checker_tester));
        group.spawn(checker.run(checker_tester));
        co_await settle_all();
    }
    asio::awaitable<void> pass(Duration time, Duration step = 500ms) {
        for (Duration gone{}; gone < time; gone += step) {
            house.clock.advance(step);
            co_await settle_all();
        }
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, json::object spec) {
        const auto& of = house.kind(kind);
        return house.resources->create(checker_tester, of, an_object(of.name(), std::move(name), std::move(spec)), {});
    }
    json::object status(std::string_view kind, std::string_view name) const {
        const auto object = house.resources->get(house.kind(kind), name);
        return object.ok() ? object->status : json::object{{"error", object.error().text()}};
    }
    std::string state(std::string_view name) const { return text_at(status("instances", name), "state"); }

    asio::any_io_executor executor;
    resource::testing::House house;
    Catalog catalog;
    store::Leadership leadership;
    Commands commands;
    Checker checker;
    TaskGroup group;
};

json::object ttl_instance(std::string ttl) {
    return {{"service", "tick"},
            {"node", "n1"},
            {"address", "192.0.2.1"},
            {"checks", {{{"id", "t"}, {"kind", "ttl"}, {"ttl", std::move(ttl)}}}}};
}

} // namespace

CO_TEST(Checker, RunsChecksAndWritesOnlyChanges) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("services", "web", {{"wanted", 1}}));
    CO_ASSERT_OK(co_await site.create(
        "instances", "w",
        {{"service", "web"},
         {"node", "n1"},
         {"checks", {{{"id", "c"}, {"kind", "command"}, {"command", {"check"}}, {"interval", "5s"}, {"rise", 1}, {"fall", 2}}}}}));
    co_await settle_all();
    EXPECT_EQ(site.state("w"), "registered");
    co_await site.pass(6s);
    EXPECT_GE(site.commands.runs, 1);
    EXPECT_EQ(site.state("w"), "passing");
    EXPECT_EQ(text_at(site.status("services", "web"), "state"), "complete");
    const auto revision = site.house.store.revision();
    co_await site.pass(60s);
    EXPECT_EQ(site.house.store.revision(), revision) << "nothing changed, and something was written";
    EXPECT_GE(site.commands.runs, 10);

    site.commands.exit_code = 2;
    co_await site.pass(16s);
    EXPECT_EQ(site.state("w"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "w"), "why"), HasSubstr("word from n1"));
    EXPECT_EQ(text_at(site.status("services", "web"), "state"), "empty");
    site.commands.unreachable = true; // evidence of nothing
    const auto then = site.house.store.revision();
    co_await site.pass(60s);
    EXPECT_EQ(site.house.store.revision(), then);
    site.commands.unreachable = false;
    site.commands.exit_code = 1;
    co_await site.pass(6s);
    EXPECT_EQ(site.state("w"), "usable");
    co_await site.group.stop();
}

CO_TEST(Checker, LooksWhereTheInstanceIs) {
    asio::ip::tcp::acceptor acceptor(loop, {asio::ip::make_address("127.0.0.1"), 0});
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create(
        "services", "web",
        {{"port", acceptor.local_endpoint().port()}, {"checks", {{{"kind", "tcp"}, {"interval", "1s"}, {"timeout", "1s"}}}}}));
    CO_ASSERT_OK(co_await site.create("instances", "w", {{"service", "web"}, {"node", "n1"}}));
    co_await site.pass(3s);
    EXPECT_EQ(site.state("w"), "registered"); // nobody knows where n1 is
    CO_ASSERT_OK(co_await site.create("nodes", "n1", {{"address", "127.0.0.1"}}));
    co_await site.pass(2s);
    for (int i = 0; i < 200 && site.state("w") != "passing"; ++i) { // a real connection takes a moment of real time
        std::ignore = co_await real_clock().sleep(5ms);
        co_await site.pass(500ms);
    }
    EXPECT_EQ(site.state("w"), "passing");
    co_await site.group.stop();
}

CO_TEST(Checker, LetsTtlChecksExpire) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", ttl_instance("10s")));
    co_await settle_all();
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    co_await settle_all();
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
    EXPECT_THAT(text_at(site.status("instances", "w"), "why"), HasSubstr("TTL expired (last output before timeout follows): fine"));
    auto unknown = co_await site.checker.report(checker_tester, "instances/w", "x", CheckStatus::passing, "");
    EXPECT_EQ(unknown.error().code, Code::not_found);
    co_await site.group.stop();
}

CO_TEST(Checker, AFreshTtlCheckHasItsWholeTimeBeforeTheFirstWord) {
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

CO_TEST(Checker, WordsThatOnlyRenewAreSeldomWritten) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", ttl_instance("40s")));
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    co_await settle_all();
    const auto before = site.house.store.revision();
    for (int i = 0; i < 40; ++i) {
        co_await site.pass(1s);
        CO_ASSERT_OK(co_await site.checker.report(checker_tester, "instances/w", "t", CheckStatus::passing, "fine"));
    }
    EXPECT_LE(site.house.store.revision() - before, 4);
    co_await site.group.stop();
}

CO_TEST(Checker, WhatStoodBeforeARestartStandsUntilThereIsNews) {
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
    site.house.clock.advance(1h); // away for an hour
    site.commands.unreachable = true;
    co_await site.start();
    co_await settle_all();
    EXPECT_EQ(site.state("w"), "passing");
    EXPECT_TRUE(site.catalog.find_resource("w")->checks.at(0).stale);
    EXPECT_EQ(site.state("t"), "passing"); // nobody could tell us while we were away
    site.commands.unreachable = false;
    co_await site.pass(9s);
    EXPECT_EQ(site.state("t"), "passing");
    co_await site.pass(3s);
    EXPECT_EQ(site.state("t"), "registered");
    EXPECT_FALSE(site.catalog.find_resource("w")->checks.at(0).stale);
    co_await site.group.stop();
}

CO_TEST(Checker, RemovesWhatWasCriticalTooLong) {
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

CO_TEST(Checker, ANodesCheckCountsForAllOnIt) {
    Site site(loop.get_executor());
    co_await site.start();
    CO_ASSERT_OK(co_await site.create("instances", "w", {{"service", "web"}, {"node", "n1"}}));
    CO_ASSERT_OK(co_await site.create(
        "catalognodes", "n1", {{"node", "n1"}, {"checks", {{{"id", "disk"}, {"kind", "external"}, {"initial", "passing"}}}}}));
    co_await settle_all();
    EXPECT_EQ(site.state("w"), "passing");
    CO_ASSERT_OK(co_await site.checker.report(checker_tester, "catalognodes/n1", "disk", CheckStatus::critical, "full"));
    co_await settle_all();
    EXPECT_EQ(site.state("w"), "registered");
    EXPECT_THAT(text_at(site.status("instances", "w"), "why"), HasSubstr("the node's check \"disk\" is critical: full"));
    co_await site.group.stop();
}

} // namespace orrery::catalog
