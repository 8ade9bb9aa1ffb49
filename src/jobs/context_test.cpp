#include "core/log_history.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// One context through all that a job does.
namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::EngineFixture;
using ::testing::HasSubstr;

constexpr std::string_view two_tasks = R"(
tasks:
  - {name: first, on: db, run: {fake: {}}, retries: {times: 1, on: [failed]}}
  - {name: second, on: db, after: first, run: {fake: {}}}
)";

void submit_under(EngineFixture& world, const std::string& name, const std::string& request) {
    auto documents = parse_yaml(two_tasks);
    ASSERT_TRUE(documents.ok());
    auto made = world.wait(
        world.server->resources->create(Context::make("alice", request), world.server->kind("Job"),
                                        resource::testing::an_object("Job", name, documents->at(0).value.as_object()), {}));
    ASSERT_TRUE(made.ok()) << made.error().text();
    world.until([&] { return world.server->engine->find(name).ok(); });
}

std::vector<std::string> events_under(EngineFixture& world, const std::string& context) {
    resource::ListQuery query;
    query.fields = {{"context", context}};
    const auto page = world.server->resources->list(world.server->kind("Event"), query);
    std::vector<std::string> out;
    for (const auto& record : page->records) {
        const auto event = resource::from_stored(*record);
        out.push_back(fmt::format("{} {}", std::string_view(event->spec.at("subject").as_string()),
                                  std::string_view(event->spec.at("action").as_string())));
    }
    return out;
}

TEST(JobContext, OfTheRequestReachesEveryAttemptEventAndLogLineOfItsJobOnly) {
    EngineFixture world;
    world.start();
    world.nodes("db", 1);
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.takes = 1s;
        if (attempt.task == "first@db-1" && attempt.number == 1)
            script.outcome = Outcome::failure(ErrorClass::failed, "exit code 3", 3);
        return script;
    };
    submit_under(world, "one", "request-one");
    submit_under(world, "two", "request-two");
    ASSERT_TRUE(world.reaches("one", JobState::succeeded));
    ASSERT_TRUE(world.reaches("two", JobState::succeeded));
    for (const auto& [id, begun] : world.fake.attempts()) {
        const auto& environment = begun.attempt.environment;
        EXPECT_EQ(environment.at("ORRERY_CONTEXT"), "request-" + begun.attempt.job);
        EXPECT_EQ(environment.at("ORRERY_ATTEMPT_NUMBER"), std::to_string(begun.attempt.number));
    }
    EXPECT_EQ(world.fake.attempts().size(), 6u);
    world.until([&] { return world.server->resources->get(world.server->kind("Job"), "one")->status.at("state") == "succeeded"; });
    EXPECT_THAT(events_under(world, "request-one"), ElementsAre("Job/one created", "Job/one running", "Job/one succeeded"));
    std::vector<std::string> lines;
    for (const auto& line : log::history().find({.context = "request-one"})) {
        EXPECT_EQ(line.actor, "job/one");
        lines.push_back(line.message);
    }
    EXPECT_THAT(lines, Contains(HasSubstr("attempt failed task=first@db-1 attempt=1 phase=run message=\"exit code 3")));
    EXPECT_THAT(lines, Contains("job state changed job=one state=succeeded"));
}

TEST(JobContext, IsTheSameAfterARestartAndOnAnotherServer) {
    EngineFixture world;
    world.start();
    world.nodes("db", 1);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 60s}; };
    submit_under(world, "kept", "request-kept");
    ASSERT_TRUE(world.until([&] { return world.fake.running() == 1; }));
    world.stop();
    world.start("another");
    ASSERT_TRUE(world.reaches("kept", JobState::succeeded));
    ASSERT_EQ(world.fake.attempts().size(), 2u);
    for (const auto& [id, begun] : world.fake.attempts())
        EXPECT_EQ(begun.attempt.environment.at("ORRERY_CONTEXT"), "request-kept") << begun.attempt.task;
    world.until([&] { return world.server->resources->get(world.server->kind("Job"), "kept")->status.at("state") == "succeeded"; });
    EXPECT_THAT(events_under(world, "request-kept"), Contains("Job/kept succeeded"));
    EXPECT_EQ(world.server->resources->get(world.server->kind("Job"), "kept")->status.at("context"), "request-kept");
}

TEST(JobOutput, PiecesHaveTheirArrivalTime) {
    EngineFixture world;
    world.start();
    world.nodes("db", 1);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 5s, .out = "hello\n"}; };
    submit_under(world, "said", "request-said");
    const auto begun = world.clock.wall();
    ASSERT_TRUE(world.reaches("said", JobState::succeeded));
    const auto run = world.job("said");
    const auto page = world.wait(world.server->engine->output().read(
        Context::background(), {run->uid, run->plan.find("first@db-1").value(), 1, Phase::run}, 0, 1000));
    ASSERT_TRUE(page.ok());
    ASSERT_EQ(page->pieces.size(), 1u);
    EXPECT_EQ(page->pieces[0].bytes, "hello\n");
    ASSERT_TRUE(page->pieces[0].time.has_value());
    EXPECT_LE(*page->pieces[0].time, begun + 5s);
    EXPECT_GE(*page->pieces[0].time, begun + 4900ms);
}

} // namespace
} // namespace orrery::jobs
