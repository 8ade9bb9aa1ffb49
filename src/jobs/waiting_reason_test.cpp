#include "jobs/engine_fixture.h"
#include "jobs/simulate.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <gmock/gmock.h>

/// The messages that explain why a task or a job is not further.
namespace orrery::jobs {
namespace {

using namespace testing;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct WaitingReason : ::testing::Test, EngineFixture {
    WaitingReason() {
        start();
        nodes("n", 3);
        local.script = fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 10s}; };
    }
    std::string why_of(const std::string& name, std::string_view task) {
        const auto run = job(name);
        return std::string(std::string_view(why(*run, run->plan.find(task).value(), catalog).at("message").as_string()));
    }
    std::vector<std::string> lacking(const std::string& name) {
        std::vector<std::string> out;
        for (const auto& one : missing(*job(name)))
            out.push_back(fmt::format("{}: {}", std::string_view(one.at("name").as_string()),
                                      std::string_view(one.at("message").as_string())));
        return out;
    }
};

TEST_F(WaitingReason, OfALockAndOfAWaveIsASentence) {
    submit("first", "tasks: [{name: a, lock: db, run: {local: {}}}]");
    submit("second", "tasks: [{name: b, lock: db, run: {local: {}}}]");
    submit("waves", "tasks: [{name: c, on: n, batch: {canary: 1, hold: 1m}, run: {fake: {}}}]");
    pass(1s);
    EXPECT_EQ(why_of("second", "b"), "b is ready: lock db is held by first/a");
    EXPECT_EQ(why_of("waves", "c@n-2"), "c@n-2 is ready: wave 1 of 2 has not ended");
    pass(10s);
    EXPECT_EQ(why_of("waves", "c@n-2"), "c@n-2 is ready: wave 1 of 2 has ended and is held for 1m");
}

TEST_F(WaitingReason, OfAJobWhoseDoneMustHoldNamesTheHold) {
    catalog.pass("web", "n-1");
    submit("up", "{tasks: [{name: a, run: {local: {}}}], done: {hold: 5m, services: [{service: web}]}}");
    pass(1min);
    EXPECT_THAT(lacking("up"), ElementsAre("job: all of \"done\" is met, and must hold for 5m"));
    submit("one", "{tasks: [{name: a, run: {local: {}}}], done: {service: web, hold: 5m}}");
    pass(1min);
    EXPECT_THAT(lacking("one"), ElementsAre("web: 1 of web passing for 5m: met, but not for 5m yet"));
}

TEST_F(WaitingReason, OfAPausedJobNamesTheOperator) {
    submit("up", "tasks: [{name: a, on: [n-1], run: {fake: {}}}, {name: b, on: [n-1], run: {fake: {}}}]");
    pass(1s);
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::pause, .reason = "lunch"}, "alice").ok());
    EXPECT_EQ(progress(*job("up")).at("message").as_string(), "paused by alice: lunch");
    EXPECT_EQ(why_of("up", "b@n-1"), "b@n-1 is ready: the job is paused by alice: lunch");
    EXPECT_THAT(lacking("up"), Contains("job: it is paused by alice: lunch"));
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::resume}, "alice").ok());
    EXPECT_FALSE(progress(*job("up")).contains("message"));
}

TEST_F(WaitingReason, IsNotAPauseAfterTheJobWasCancelled) {
    submit("up", "tasks: [{name: a, run: {local: {}}}]");
    pass(1s);
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::pause, .reason = "lunch"}, "alice").ok());
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::cancel, .reason = "enough"}, "alice").ok());
    ASSERT_TRUE(reaches("up", JobState::cancelled));
    EXPECT_EQ(progress(*job("up")).at("message").as_string(), "by alice: enough");
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::retry}).ok());
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min)) << "a retry is not held by the pause of before";
}

TEST_F(WaitingReason, OfASecondJobWithTheSameNameIsWhatCanBeDone) {
    submit("up", "tasks: [{name: a, run: {local: {}}}]");
    const auto again = apply("Job", "up", "tasks: [{name: b}]");
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().message, "Job up exists already");
    EXPECT_THAT(again.error().remedy, HasSubstr("submit it under another name"));
    EXPECT_THAT(again.error().remedy, ::testing::Not(HasSubstr("replace")));
}

TEST_F(WaitingReason, OnTheCriticalPathIsTheWaveWhereItEndedLast) {
    const auto documents = parse_yaml(R"(
tasks:
  - {name: base, on: n, run: {fake: {}}}
  - {name: up, on: n, after: base, same_host: true, batch: {canary: 1, serial: [1]}, run: {fake: {}}}
)");
    const auto plan = server->engine->plan("up", documents->at(0).value.as_object());
    ASSERT_TRUE(plan.ok());
    const auto predicted = simulate(*plan, server->engine->conditions(*plan, 0s, 10s), &server->engine->membership());
    std::vector<std::string> path;
    for (const auto& step : predicted.critical_path) path.push_back(plan->task_name(step.task) + ": " + step.message);
    EXPECT_THAT(path, ElementsAre("base@n-1: ", "up@n-1: after base@n-1", "up@n-2: wave 1 ended", "up@n-3: wave 2 ended"));
}

TEST_F(WaitingReason, IsNotPredictedFromChecksThatAreStillToCome) {
    auto member = catalog::fake_member("n-1", "192.0.2.1", 80, MemberState::passing);
    member.evidence = Evidence::awaited; // the server has just started
    catalog.set("web", member);
    const auto documents = parse_yaml("tasks: [{name: a, wait: web, run: {local: {}}}]");
    const auto plan = server->engine->plan("up", documents->at(0).value.as_object());
    ASSERT_TRUE(plan.ok());
    const auto predicted = simulate(*plan, server->engine->conditions(*plan, 0s, 10s), &server->engine->membership());
    EXPECT_EQ(predicted.end, JobState::succeeded);
    EXPECT_THAT(predicted.stuck, ElementsAre());
}

} // namespace
} // namespace orrery::jobs
