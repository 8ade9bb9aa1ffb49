#include "jobs/engine.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::EngineFixture;

TEST(Rolling, APredictionKeepsTheRulesThatAreStored) {
    EngineFixture world;
    world.start();
    world.nodes("controller", 2);
    world.nodes("compute", 6);
    world.nodes("never", 1);
    const auto predict = [&](std::string_view on) {
        auto documents = parse_yaml(fmt::format("tasks: [{{name: up, on: {}, run: {{fake: {{}}}}, rolling: true}}]", on));
        auto plan = world.server->engine->plan("up", documents->at(0).value.as_object());
        EXPECT_TRUE(plan.ok());
        return simulate(*plan, world.server->engine->conditions(*plan, 0s, 10s), &world.server->engine->membership());
    };
    EXPECT_EQ(predict("compute").makespan, 10s) << "without a rule all at once";
    ASSERT_TRUE(world.apply("RollingRule", "compute", "{limit: 2, after: [controller]}").ok());
    ASSERT_TRUE(world.apply("RollingRule", "default", "{limit: 1}").ok());
    ASSERT_TRUE(world.apply("RollingRule", "never", "{limit: 0}").ok());
    EXPECT_EQ(predict("compute").makespan, 30s) << "six nodes, two at a time";
    EXPECT_EQ(predict("[controller-1, controller-2, compute-1, compute-2]").makespan, 30s)
        << "controllers one by one, then computes";
    const auto stuck = predict("never");
    EXPECT_EQ(stuck.end, JobState::running) << "it would never end";
    EXPECT_THAT(stuck.stuck, ::testing::Contains(::testing::HasSubstr("its limit is 0")));
    // What is predicted is what happens.
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 10s}; };
    const auto begun = world.clock.steady();
    world.submit("up", "tasks: [{name: up, on: compute, run: {fake: {}}, rolling: true}]");
    ASSERT_TRUE(world.reaches("up", JobState::succeeded));
    EXPECT_GE(world.clock.steady() - begun, 30s);
    EXPECT_LT(world.clock.steady() - begun, 32s);
}

TEST(Rolling, ZeroIsRefusedPausingIsAFieldAndRolesWaitForRoles) {
    EngineFixture world;
    world.start();
    world.nodes("controller", 3);
    world.nodes("compute", 4);
    world.nodes("never", 2);
    ASSERT_TRUE(world.apply("RollingRule", "default", "{limit: 2}").ok());
    ASSERT_TRUE(world.apply("RollingRule", "never", "{limit: 0}").ok());
    ASSERT_TRUE(world.apply("RollingRule", "compute", "{limit: 3, after: [controller]}").ok());
    std::map<std::string, std::size_t> max;
    world.fake.script = [&](const Attempt&) {
        std::map<std::string, std::set<std::string>> now;
        for (const auto& [id, begun] : world.fake.attempts())
            if (world.clock.steady() < begun.until)
                now[begun.attempt.targets[0].labels.at("role")].insert(begun.attempt.targets[0].node.name);
        for (const auto& [role, hosts] : now) max[role] = std::max(max[role], hosts.size());
        return FakeExecutor::Script{.takes = 10s};
    };
    world.submit("up", R"(
tasks:
  - {name: upgrade, on: {labels: role}, run: {fake: {}}, rolling: check}
  - {name: check, on: {labels: role}, after: upgrade, same_host: true, run: {fake: {}}}
)");
    world.pass(10min);
    EXPECT_EQ(world.state("up"), JobState::running);
    for (const auto* task : {"check@controller-3", "check@compute-4"})
        EXPECT_EQ(world.record("up", task).state, TaskState::succeeded) << task;
    for (const auto* task : {"upgrade@never-1", "upgrade@never-2"}) EXPECT_EQ(world.record("up", task).state, TaskState::ready);
    const auto run = world.job("up");
    EXPECT_EQ(run->scheduler->blocked_reason(*run->plan.find("upgrade@never-1")), "role never is never changed: its limit is 0");
    const auto& order = world.fake.order();
    const auto last_controller = std::find(order.rbegin(), order.rend(), "check@controller-3").base() - order.begin();
    const auto first_compute = std::find(order.begin(), order.end(), "upgrade@compute-1") - order.begin();
    EXPECT_GT(first_compute, last_controller - 1);
    EXPECT_LE(max["controller"], 2u);
    EXPECT_LE(max["compute"], 3u);
    // The limit is raised, with a pause that the raise does not clear.
    auto changed = world.wait(
        world.server->resources->patch(Context::background(), world.server->kind("RollingRule"), "never",
                                       json::value{{"spec", {{"limit", 5}, {"paused", true}, {"reason", "audit"}}}}, {}));
    ASSERT_TRUE(changed.ok());
    world.pass(1min);
    EXPECT_EQ(world.record("up", "upgrade@never-1").state, TaskState::ready);
    EXPECT_EQ(world.job("up")->scheduler->blocked_reason(*run->plan.find("upgrade@never-1")),
              "changes to role never are paused: audit");
    changed = world.wait(world.server->resources->patch(Context::background(), world.server->kind("RollingRule"), "never",
                                                        json::value{{"spec", {{"paused", false}}}}, {}));
    ASSERT_TRUE(world.reaches("up", JobState::succeeded));
}

TEST(Rolling, AFailedNodeKeepsItsSlotAcrossARestart) {
    EngineFixture world;
    world.start();
    world.nodes("n", 5);
    ASSERT_TRUE(world.apply("RollingRule", "n", "{limit: 1}").ok());
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        if (attempt.task == "up@n-2") script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        return script;
    };
    world.submit("j", "tasks: [{name: up, on: n, run: {fake: {}}, rolling: true}]");
    ASSERT_TRUE(world.reaches("j", JobState::failed)) << "nothing more can begin, so it ends";
    EXPECT_EQ(world.record("j", "up@n-3").state, TaskState::skipped);
    EXPECT_EQ(world.record("j", "up@n-3").message(),
              "stopped: n-2 did not succeed and keeps its rolling slot, and the limit of role n is 1");
    world.pass(5min); // the job is put away
    world.stop();
    world.start();
    world.pass(1min);
    EXPECT_THAT(world.fake.order(), ElementsAre("up@n-1", "up@n-2"));
    // Two jobs share the limit.
    world.submit("k", "tasks: [{name: up, on: [n-5], run: {fake: {}}, rolling: true}]");
    world.pass(1min);
    EXPECT_EQ(world.record("k", "up@n-5").state, TaskState::ready);
    EXPECT_EQ(world.job("k")->scheduler->blocked_reason(0), "1 of role n are being changed (n-2 by job j), and its limit is 1");
    world.fake.script = {};
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::retry, .task = "up@n-2"}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    ASSERT_TRUE(world.reaches("k", JobState::succeeded));
}

TEST(Rolling, AFailureEndsTheJobWhenNoNodeCanStart) {
    EngineFixture world;
    world.start();
    world.nodes("db", 4);
    world.nodes("web", 2);
    ASSERT_TRUE(world.apply("RollingRule", "db", "{limit: 2}").ok());
    ASSERT_TRUE(world.apply("RollingRule", "web", "{limit: 1, after: [db]}").ok());
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        if (attempt.task == "up@db-1") script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        return script;
    };
    world.submit("j", R"(
tasks:
  - {name: up, on: {labels: role}, run: {fake: {}}, rolling: true}
  - {name: report, after: up, run: {local: {}}}
)");
    ASSERT_TRUE(world.reaches("j", JobState::failed, 1h));
    for (const auto* task : {"up@db-2", "up@db-3", "up@db-4"})
        EXPECT_EQ(world.record("j", task).state, TaskState::succeeded) << "one slot is left, and the job continues with it";
    EXPECT_EQ(world.record("j", "up@web-1").message(), "stopped: role web comes after role db, where up@db-1 failed");
    EXPECT_EQ(world.record("j", "report").state, TaskState::skipped);
    // Deleting the job releases the slot of the node that failed.
    world.submit("k", "tasks: [{name: up, on: [db-2, db-3], run: {fake: {}}, rolling: true}]");
    ASSERT_TRUE(world.reaches("k", JobState::succeeded)) << "one at a time";
    auto gone = world.wait(world.server->resources->remove(Context::background(), world.server->kind("Job"), "j", {}));
    ASSERT_TRUE(gone.ok()) << gone.error().text();
    world.run_ready();
    EXPECT_EQ(world.job("k")->limits->rolling_slots_used("db"), 0u);
}

} // namespace
} // namespace orrery::jobs
