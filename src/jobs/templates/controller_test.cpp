#include "jobs/engine_fixture.h"
#include "jobs/templates/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::EngineFixture;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Servers that run templates, on one virtual clock.
struct TemplateWorld : EngineFixture {
    std::unique_ptr<TemplateController> templates;

    TemplateWorld() {
        add_kinds = [this](resource::Registry& registry) { registry.add(job_template_kind(executors, clock)); };
        // A round minute, so that due times are easy to read.
        const auto now = clock.wall();
        clock.advance(std::chrono::ceil<std::chrono::hours>(now) - now);
        up();
        nodes("web", 2);
    }
    ~TemplateWorld() { down(); }

    void up(const std::string& name = "s") {
        start(name);
        templates = serve(*server);
        run_ready();
    }
    std::unique_ptr<TemplateController> serve(Server& on) {
        auto made = std::make_unique<TemplateController>(*on.resources, *on.leadership, clock);
        on.group.spawn(made->run(Context::background()));
        return made;
    }
    void down() {
        stop();
        templates.reset();
    }
    void add(const std::string& name, std::string_view schedule, std::string_view more = {}) {
        const auto made =
            apply("JobTemplate", name,
                  fmt::format("job: {{tasks: [{{name: a, on: web, run: {{fake: {{}}}}}}]}}\n{}\nschedules: [{{name: s, {}}}]", more,
                              schedule));
        ASSERT_TRUE(made.ok()) << made.error().text();
        run_ready();
    }
    void replace(const std::string& name, const std::function<void(json::object& spec)>& change) {
        auto object = server->resources->get(server->kind("JobTemplate"), name);
        ASSERT_TRUE(object.ok());
        change(object->spec);
        const auto made = wait(server->resources->replace(Context::make("tester"), server->kind("JobTemplate"), *object, {}));
        ASSERT_TRUE(made.ok()) << made.error().text();
    }
    std::vector<std::string> jobs() {
        std::vector<std::string> out;
        const auto page = server->resources->list(server->kind("Job"), {});
        for (const auto& record : page->records) out.push_back(record->key.substr(5));
        return out;
    }
    json::object status(const std::string& name) { return server->resources->get(server->kind("JobTemplate"), name)->status; }
    std::vector<std::string> events(std::string_view what) {
        std::vector<std::string> out;
        const auto page = server->resources->list(server->kind("Event"), {});
        for (const auto& record : page->records) {
            const auto event = resource::from_stored(*record);
            if (event->spec.at("action") == json::value(what))
                out.emplace_back(std::string_view(event->spec.at("reason").as_string()));
        }
        return out;
    }
    /// Moves the clock while no server runs.
    void pass_without_server(Duration time) { clock.advance(time); }
};

TEST(TemplateController, EachDueRunStartsOnceUnderAUniqueName) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *'");
    world.pass(35min);
    EXPECT_THAT(world.jobs(), SizeIs(3));
    for (const auto& name : world.jobs()) {
        EXPECT_THAT(name, HasSubstr("t.s."));
        const auto job = world.server->resources->get(world.server->kind("Job"), name);
        EXPECT_EQ(job->status.at("state"), json::value("succeeded"));
        EXPECT_EQ(job->status.at("submitted_by"), json::value("jobtemplate/t"));
        EXPECT_EQ(job->spec.at("schedule"), json::value("s"));
    }
    EXPECT_THAT(world.fake.attempts(), SizeIs(6));
    const auto status = world.status("t");
    EXPECT_EQ(status.at("last_run").at("job"), json::value(world.jobs().back()));
    EXPECT_EQ(status.at("last_run").at("state"), json::value("succeeded"));
    EXPECT_EQ(status.at("running"), json::value(0));
    const auto next = from_rfc3339(std::string_view(status.at("next_run").as_string()));
    EXPECT_EQ(*next, std::chrono::ceil<std::chrono::minutes>(world.clock.wall()) + 5min);
}

TEST(TemplateController, RunsMissedWhileNoServerRanFollowThePolicy) {
    TemplateWorld world;
    world.add("skips", "cron: '0 * * * *', missed: skip");
    world.add("once", "cron: '0 * * * *', missed: run-once");
    world.add("all", "cron: '0 * * * *', missed: run-all, overlap: queue");
    world.down();
    world.pass_without_server(3h + 20min);
    world.up();
    world.pass(10s);
    std::map<std::string, int> count;
    for (const auto& name : world.jobs()) ++count[std::string(template_of_run(name))];
    EXPECT_EQ(count["skips"], 0);
    EXPECT_EQ(count["once"], 1);
    EXPECT_EQ(count["all"], 3);
    EXPECT_THAT(world.events("run-missed"), SizeIs(2));
    EXPECT_THAT(world.events("run-missed").front(), HasSubstr("runs of schedule s could not start in time"));
    world.pass(1h);
    EXPECT_THAT(world.jobs(), SizeIs(7)) << "and all go on as usual";
}

TEST(TemplateController, StoppedAndStartedAtAnyTimeItStartsEachDueRunExactlyOnce) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
        TemplateWorld world;
        std::mt19937 random(seed);
        world.add("t", "cron: '*/2 * * * *', missed: run-all, overlap: allow", "max_finished_runs: 1000");
        const auto begin = world.clock.wall();
        for (int term = 0; term < 12; ++term) {
            world.pass(std::chrono::seconds(random() % 150));
            world.down();
            world.pass_without_server(std::chrono::seconds(random() % 240));
            world.up(fmt::format("s{}", term));
        }
        world.pass(3min);
        const auto expected = (world.clock.wall() - begin) / 2min;
        EXPECT_EQ(static_cast<long>(world.jobs().size()), expected) << "seed " << seed;
        std::map<std::string, int> attempts;
        for (const auto& [id, begun] : world.fake.attempts()) {
            EXPECT_EQ(begun.starts, 1);
            ++attempts[begun.attempt.job];
        }
        for (const auto& [job, number] : attempts) EXPECT_EQ(number, 2) << job;
    }
}

TEST(TemplateController, ARunThatWasCreatedButNotNotedIsNotStartedAgain) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *'");
    // As a server that was killed between the two writes leaves it.
    const auto of = read_job_template("t", world.server->resources->get(world.server->kind("JobTemplate"), "t")->spec);
    ASSERT_TRUE(of.ok());
    const auto due = std::chrono::ceil<std::chrono::minutes>(world.clock.wall()) + 10min;
    auto job = make_run(*of, {{}, "s", due}, due);
    ASSERT_TRUE(job.ok());
    ASSERT_TRUE(world.wait(world.server->resources->create(Context::make("tester"), world.server->kind("Job"), *job, {})).ok());
    world.pass(15min);
    EXPECT_THAT(world.jobs(), ElementsAre(job->name));
    EXPECT_THAT(world.fake.attempts(), SizeIs(2));
    EXPECT_THAT(world.events("run-missed"), IsEmpty());
    EXPECT_THAT(world.events("run-skipped"), IsEmpty());
}

TEST(TemplateController, ADeposedLeaderAndItsSuccessorStartARunOnce) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *', missed: run-once");
    auto second = std::make_unique<EngineFixture::Server>(world, "other");
    auto of_second = world.serve(*second);
    world.pass(9min + 55s);
    world.depose(*second);
    world.pass(5min);
    world.server.swap(second); // asked of the server that leads now
    EXPECT_THAT(world.jobs(), SizeIs(1));
    EXPECT_THAT(world.fake.attempts(), SizeIs(2));
    world.stop(second);
}

TEST(TemplateController, ARunThatHasNotEndedKeepsTheNextFromStarting) {
    TemplateWorld world;
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 25min}; };
    world.add("forbids", "cron: '*/10 * * * *'");
    world.add("queues", "cron: '*/10 * * * *', overlap: queue");
    world.pass(34min);
    std::map<std::string, int> count;
    for (const auto& name : world.jobs()) ++count[std::string(template_of_run(name))];
    EXPECT_EQ(count["forbids"], 1) << "due at 10; 20 and 30 are skipped";
    EXPECT_THAT(world.events("run-skipped"), SizeIs(3)) << "and the queue holds one: 30 replaced 20";
    world.pass(30min);
    count.clear();
    for (const auto& name : world.jobs()) ++count[std::string(template_of_run(name))];
    EXPECT_EQ(count["forbids"], 2);
    EXPECT_GE(count["queues"], 2);
}

TEST(TemplateController, FinishedRunsAreKeptUpToTheLimit) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *'", "max_finished_runs: 2");
    world.pass(65min);
    const auto kept = world.jobs();
    ASSERT_THAT(kept, SizeIs(2));
    EXPECT_EQ(world.status("t").at("last_run").at("job"), json::value(kept.back()));
    EXPECT_THAT(world.fake.attempts(), SizeIs(12)) << "six runs of two tasks";
}

TEST(TemplateController, RunsDueDuringSuspensionAreNotStartedLater) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *', missed: run-all, overlap: allow, suspended: true");
    world.pass(35min);
    EXPECT_THAT(world.jobs(), IsEmpty());
    EXPECT_FALSE(world.status("t").contains("next_run"));
    world.replace("t", [](json::object& spec) { spec["schedules"].as_array()[0].as_object()["suspended"] = false; });
    world.pass(1min);
    EXPECT_THAT(world.jobs(), IsEmpty());
    world.pass(10min);
    EXPECT_THAT(world.jobs(), SizeIs(1));
}

TEST(TemplateController, ARefusedRunIsAnEventAndTheScheduleContinues) {
    TemplateWorld world;
    world.add("t", "cron: '*/10 * * * *'");
    world.replace("t", [](json::object& spec) { spec["job"].as_object()["tasks"].as_array()[0].as_object()["on"] = "nobody"; });
    world.pass(11min);
    EXPECT_THAT(world.jobs(), IsEmpty());
    ASSERT_THAT(world.events("run-refused"), SizeIs(1));
    EXPECT_THAT(world.events("run-refused")[0], HasSubstr("no node has role=nobody"));
    world.replace("t", [](json::object& spec) { spec["job"].as_object()["tasks"].as_array()[0].as_object()["on"] = "web"; });
    world.pass(10min);
    EXPECT_THAT(world.jobs(), SizeIs(1));
}

TEST(TemplateController, UsersRunTemplatesWithParameters) {
    TemplateWorld world;
    const auto made = world.apply(
        "JobTemplate", "t",
        "parameters: [{name: role, required: true}]\njob: {tasks: [{name: a, on: \"${param.role}\", run: {fake: {}}}]}");
    ASSERT_TRUE(made.ok()) << made.error().text();
    const auto dry = world.wait(world.templates->start(Context::make("alice"), "t", {{"role", "web"}}, {.dry_run = true}));
    ASSERT_TRUE(dry.ok()) << dry.error().text();
    EXPECT_THAT(world.jobs(), IsEmpty());
    const auto run = world.wait(world.templates->start(Context::make("alice"), "t", {{"role", "web"}}, {.reason = "asked"}));
    ASSERT_TRUE(run.ok()) << run.error().text();
    ASSERT_TRUE(world.reaches(run->object.name, JobState::succeeded));
    world.pass(1s);
    EXPECT_EQ(world.status("t").at("last_run").at("state"), json::value("succeeded"));
    EXPECT_EQ(run->object.status.at("submitted_by"), json::value("alice"));
    const auto refused = world.wait(world.templates->start(Context::make("alice"), "t", {}, {}));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().fields.at(0).path, "parameters.role");
    EXPECT_EQ(world.wait(world.templates->start(Context::make("alice"), "none", {}, {})).error().code, Code::not_found);
}

} // namespace
} // namespace orrery::jobs
