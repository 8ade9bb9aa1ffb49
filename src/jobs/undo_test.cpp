#include "jobs/engine.h"
#include "jobs/engine_fixture.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::EngineFixture;
using ::testing::HasSubstr;

const json::value& body_of(const Attempt& attempt) { return attempt.body; }

/// Attempts whose body is in `failing` fail.
void fail(EngineFixture& world, std::set<std::string> failing) {
    world.fake.script = [failing = std::move(failing)](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        const auto& body = body_of(attempt);
        if (body.is_string() && failing.contains(std::string(body.get_string())))
            script.outcome = Outcome::failure(ErrorClass::failed, "exit code 3", 3);
        return script;
    };
}

std::vector<std::string> events_of(EngineFixture& world, std::string_view job) {
    std::vector<std::string> out;
    auto page = world.server->resources->list(world.server->kind("Event"), {.limit = 1000});
    for (const auto& record : page->records) {
        auto event = resource::from_stored(*record);
        if (event->spec.at("subject").as_string() == fmt::format("Job/{}", job))
            out.emplace_back(std::string_view(event->spec.at("action").as_string()));
    }
    return out;
}

constexpr std::string_view three = R"(
tasks:
  - {name: a, on: n, run: {fake: a}, undo: {fake: undo-a}}
  - {name: b, on: n, after: a, run: {fake: b}, undo: {fake: undo-b}}
  - {name: c, on: n, after: b, run: {fake: c}, undo: {fake: undo-c}}
)";

TEST(Undo, AFailedJobCanBeUndone) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    fail(world, {"b"});
    world.submit("j", three);
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    world.pass(5min);
    const auto cancelled = world.command("j", {.action = JobCommand::Action::cancel});
    EXPECT_EQ(cancelled.error().message, "job j has ended: its state is failed");
    EXPECT_THAT(cancelled.error().remedy, HasSubstr("orrery job undo j"));
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::undo, .reason = "go back"}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::undone));
    EXPECT_THAT(world.fake.order(), ElementsAre("a@n-1", "b@n-1", "b@n-1", "a@n-1"));
    EXPECT_EQ(world.record("j", "a@n-1").state, TaskState::undone);
    EXPECT_EQ(world.record("j", "b@n-1").state, TaskState::undone);
    EXPECT_EQ(world.record("j", "c@n-1").state, TaskState::skipped) << "it never started";
    EXPECT_EQ(world.record("j", "b@n-1").detail->past.back().message, "exit code 3") << "how its run ended is still known";
    const auto again = world.command("j", {.action = JobCommand::Action::undo});
    EXPECT_EQ(again.error().message, "job j has nothing to undo");
    // What was undone is done again by a retry, in its order.
    fail(world, {});
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::retry}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    const auto& order = world.fake.order();
    EXPECT_THAT(std::vector<std::string>(order.end() - 3, order.end()), ElementsAre("a@n-1", "b@n-1", "c@n-1"));
}

TEST(Undo, AFailedUndoIsAStateAndAnEventOfItsOwn) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    fail(world, {"c", "undo-b"});
    world.submit("j", three);
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::undo}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::undo_failed));
    EXPECT_EQ(world.job("j")->scheduler->job().message, "the undo of 1 task failed: b@n-1 (undo: exit code 3)");
    EXPECT_EQ(world.record("j", "a@n-1").state, TaskState::undone) << "what comes before it is undone";
    EXPECT_EQ(world.record("j", "b@n-1").state, TaskState::undo_failed);
    world.pass(5min);
    EXPECT_THAT(events_of(world, "j"), ::testing::Contains("undo_failed"));
    auto run = world.job("j");
    const auto shown = why(*run, *run->plan.find("b@n-1"), world.catalog);
    EXPECT_EQ(shown.at("message").as_string(), "b@n-1 is undo_failed: undo: exit code 3");
    EXPECT_EQ(progress(*run).at("failed").as_array().size(), 1u);
    // It survives a restart, and is undone again: only what is not undone yet.
    world.stop();
    world.start();
    EXPECT_EQ(world.state("j"), JobState::undo_failed);
    EXPECT_EQ(world.record("j", "b@n-1").state, TaskState::undo_failed);
    fail(world, {});
    const auto before = world.fake.order().size();
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::undo}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::undone));
    EXPECT_EQ(world.fake.order().size(), before + 1);
}

TEST(Undo, CancelledTasksThatNeverStartedDifferFromUndoneTasks) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    world.fake.script = [](const Attempt& attempt) {
        return FakeExecutor::Script{.takes = body_of(attempt) == json::value("b") ? Duration(1h) : Duration(1s)};
    };
    world.submit("j", three);
    ASSERT_TRUE(world.until([&] { return world.fake.order().size() == 2; }));
    const auto running = world.command("j", {.action = JobCommand::Action::undo});
    EXPECT_EQ(running.error().message, "job j is running: only a job that has ended can be undone");
    EXPECT_THAT(running.error().remedy, HasSubstr("orrery job cancel j"));
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::cancel}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::cancelled));
    EXPECT_EQ(world.record("j", "b@n-1").state, TaskState::undone);
    EXPECT_EQ(world.record("j", "c@n-1").state, TaskState::cancelled);
    auto run = world.job("j");
    EXPECT_EQ(why(*run, *run->plan.find("c@n-1"), world.catalog).at("message").as_string(), "c@n-1 is cancelled: it never started");
    EXPECT_EQ(why(*run, *run->plan.find("b@n-1"), world.catalog).at("message").as_string(), "b@n-1 is undone: its undo succeeded");
}

TEST(Undo, AFailedCanaryStopsTheBatchForEveryMaxFail) {
    EngineFixture world;
    world.start();
    world.nodes("db", 6);
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        if (attempt.task == "up@db-1" && attempt.number == 1) script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        if (attempt.task == "up@db-3") script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        return script;
    };
    world.submit("j", "tasks: [{name: up, on: db, run: {fake: {}}, batch: {canary: 1, serial: [2], max_fail: 1}}]");
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_THAT(world.fake.order(), ElementsAre("up@db-1"));
    EXPECT_EQ(world.record("j", "up@db-2").message(), "stopped: a canary failed");
    world.stop();
    world.start();
    EXPECT_THAT(world.fake.order(), ElementsAre("up@db-1"));
    // If the canary succeeds, max_fail applies to the later waves.
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::retry}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "up@db-6").state, TaskState::succeeded);
    EXPECT_EQ(world.fake.order().size(), 7u);
}

} // namespace
} // namespace orrery::jobs
