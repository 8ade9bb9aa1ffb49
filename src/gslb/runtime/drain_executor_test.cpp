#include "core/json_fields.h"
#include "gslb/runtime/drain_executor.h"
#include "gslb/runtime/gslb_fixture.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::GslbFixture;
using ::testing::HasSubstr;

class NoOutput final : public jobs::Output {
public:
    void write(jobs::Stream, std::uint64_t, std::string_view) override {}
    void step(jobs::Step) override {}
};

jobs::Attempt attempt_on(const std::string& node, json::object body) {
    jobs::Attempt out;
    out.job = "kernel";
    out.task = "drain@" + node;
    out.id = "a1";
    jobs::Target target;
    target.node.name = node;
    out.targets.push_back(std::move(target));
    out.body = std::move(body);
    return out;
}

struct Run {
    bool over = false;
    Result<jobs::Outcome> outcome = Error{Code::internal, "not over"};
};
asio::awaitable<void> run_to(jobs::Executor& executor, jobs::Attempt attempt, NoOutput& output, Run& run) {
    run.outcome = co_await executor.start(testing::carla, attempt, output);
    run.over = true;
}

Task<Unit> two_nodes(GslbFixture& fixture) {
    CO_TRY(std::ignore, co_await fixture.put("nodes", "n1", "address: 192.0.2.1"));
    CO_TRY(std::ignore, co_await fixture.put("nodes", "n2", "address: 192.0.2.2"));
    CO_TRY(std::ignore, co_await fixture.put("services", "web", "{port: 8080}"));
    CO_TRY(std::ignore, co_await fixture.put("instances", "web-n2", "{service: web, node: n2, port: 8080}"));
    CO_TRY(std::ignore, co_await fixture.put("pools", "p", "{min_healthy: 1}"));
    CO_TRY(std::ignore, co_await fixture.put("members", "m1", "{pool: p, node: n1, capacity: 100}"));
    CO_TRY(std::ignore, co_await fixture.put("members", "m2", "{pool: p, instance: web-n2, capacity: 100}"));
    CO_TRY(std::ignore,
           co_await fixture.put("loadbalancers", "www", "{fqdn: www.gslb.test, pools: [{pool: p}], ttl: {max: 20s}, demand: 90}"));
    co_return Unit{};
}

} // namespace

CO_TEST(GslbDrain, AJobDrainsANodeWaitsForResolversAndUndrainsIt) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await two_nodes(fixture));
    co_await fixture.run_until_idle();
    const auto executor = drain_executor(loop.get_executor(), *fixture.base.resources, fixture.controller, fixture.base.clock);
    NoOutput output;
    Run run;
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"drain", "new kernel"}}), output, run));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    EXPECT_FALSE(run.over) << "resolvers may still have it";
    co_await fixture.run_until_idle(21s);
    CO_ASSERT(run.over);
    CO_ASSERT_OK(run.outcome);
    EXPECT_EQ(run.outcome->message, "drained: m1");
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "reason"), "job kernel: new kernel");
    EXPECT_EQ(text_at(fixture.decisions("www").back(), "actor"), "carla");
    // Draining the other node as well would leave no member.
    Run second;
    fixture.group.spawn(run_to(*executor, attempt_on("n2", {{"drain", "new kernel"}}), output, second));
    co_await fixture.run_until_idle();
    CO_ASSERT(second.over);
    EXPECT_EQ(second.outcome->error, jobs::ErrorClass::refused);
    EXPECT_THAT(second.outcome->message, HasSubstr("unsafe for LoadBalancer www"));
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.2"));
    Run back;
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"undrain", true}}), output, back));
    co_await fixture.run_until_idle();
    CO_ASSERT(back.over);
    EXPECT_EQ(back.outcome->message, "undrained: m1");
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    const auto lifted = fixture.decisions("www").back();
    EXPECT_EQ(text_at(lifted, "cause"), "admin");
    EXPECT_EQ(text_at(lifted, "actor"), "carla");
    EXPECT_EQ(text_at(lifted, "reason"), "job kernel: its work is done");
    EXPECT_EQ(to_json_text(object_at(object_at(lifted, "trigger"), "cleared")),
              R"({"override":"drain","actor":"carla","reason":"job kernel: new kernel"})");
    co_await fixture.group.stop();
}

CO_TEST(GslbDrain, MaintenanceRecordsWhoStartedAndWhoEndedIt) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await two_nodes(fixture));
    co_await fixture.run_until_idle();
    const auto latest = [&] {
        const auto record = fixture.decisions("www").back();
        return fmt::format("{} {} {}", text_at(record, "cause"), text_at(record, "actor"), text_at(record, "reason"));
    };
    CO_ASSERT_OK(co_await fixture.put("nodes", "n2", "{address: 192.0.2.2, maintenance: {enabled: true, reason: disk}}"));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1"));
    EXPECT_EQ(latest(), "admin carla Node n2 is in maintenance: disk");
    json::value over = json::object{{"spec", json::object{{"maintenance", nullptr}}}};
    CO_ASSERT_OK(co_await fixture.base.resources->patch(testing::carla, fixture.base.kind("nodes"), "n2", std::move(over),
                                                        {.reason = "the disk is new"}));
    co_await fixture.run_until_idle();
    EXPECT_THAT(fixture.publisher.addresses("www.gslb.test"), ElementsAre("192.0.2.1", "192.0.2.2"));
    EXPECT_EQ(latest(), "admin carla the disk is new");
    co_await fixture.group.stop();
}

CO_TEST(GslbDrain, ANewLeaderWaitsForTheRestOfADrain) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await two_nodes(fixture));
    co_await fixture.run_until_idle();
    const auto executor = drain_executor(loop.get_executor(), *fixture.base.resources, fixture.controller, fixture.base.clock);
    NoOutput output;
    Run run, again, late;
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"drain", "new kernel"}}), output, run));
    co_await fixture.run_until_idle();
    co_await fixture.run_until_idle(8s);
    // As after a restart: the attempt never started, and starts.
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"drain", "new kernel"}}), output, again));
    co_await fixture.run_until_idle(8s);
    EXPECT_FALSE(again.over) << "resolvers may still have it";
    co_await fixture.run_until_idle(5s);
    EXPECT_TRUE(again.over);
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"drain", "new kernel"}}), output, late));
    co_await fixture.run_until_idle();
    EXPECT_TRUE(late.over) << "they have forgotten it already";
    co_await fixture.group.stop();
}

CO_TEST(GslbDrain, AnOverrideOfAnotherUserIsKept) {
    GslbFixture fixture(loop);
    CO_ASSERT_OK(co_await two_nodes(fixture));
    CO_ASSERT_OK(
        co_await fixture.put("members", "m1", "{pool: p, node: n1, capacity: 100, override: {state: up, reason: keep it}}"));
    co_await fixture.run_until_idle();
    const auto executor = drain_executor(loop.get_executor(), *fixture.base.resources, fixture.controller, fixture.base.clock);
    NoOutput output;
    Run run, back;
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"drain", "x"}}), output, run));
    fixture.group.spawn(run_to(*executor, attempt_on("n1", {{"undrain", true}}), output, back));
    co_await fixture.run_until_idle(1s);
    CO_ASSERT(run.over && back.over);
    EXPECT_EQ(run.outcome->message, "drained: nothing");
    EXPECT_EQ(back.outcome->message, "undrained: nothing");
    EXPECT_EQ(text_at(object_at(fixture.base.resources->get(fixture.base.kind("members"), "m1")->spec, "override"), "reason"),
              "keep it");
    for (const auto& [body, field] :
         std::vector<std::pair<json::value, std::string>>{{json::object{}, "either"},
                                                          {"drain", "must be"},
                                                          {json::object{{"undrain", true}, {"wait", "5s"}}, "wait"},
                                                          {json::object{{"drain", "x"}, {"now", 1}}, "now"}}) {
        const auto checked = executor->check(body);
        EXPECT_FALSE(checked.ok());
        if (!checked.ok()) EXPECT_THAT(checked.error().text(), HasSubstr(field));
    }
    co_await fixture.group.stop();
}

} // namespace orrery::gslb
