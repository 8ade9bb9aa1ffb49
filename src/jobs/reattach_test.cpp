#include "jobs/engine.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using testing::EngineFixture;
using ::testing::HasSubstr;

TEST(Reattach, ACancellationIsContinuedByAnotherServer) {
    EngineFixture world;
    world.start();
    world.nodes("n", 3);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 1h}; };
    world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: {}}, timeout: 2h}
  - {name: b, on: n, after: a, run: {fake: {}}}
)");
    ASSERT_TRUE(world.until([&] { return world.fake.running() == 3; }));
    // The command arrived while no server ran, and the next server stops as soon as it has recorded it.
    world.stop();
    {
        store::MemoryStore side(world.loop.get_executor(), world.shared);
        store::Transaction order;
        order.put("jobs.orders/j/01", R"({"what":"cancel","actor":"tester","undo":true})");
        ASSERT_TRUE(world.wait(side.apply(Context::background(), std::move(order))).ok());
    }
    world.server = std::make_unique<EngineFixture::Server>(world);
    for (int i = 0; i < 10'000 && world.shared->records.contains("jobs.orders/j/01"); ++i) {
        world.loop.restart();
        world.loop.poll_one();
    }
    world.stop();
    world.start();
    ASSERT_TRUE(world.reaches("j", JobState::cancelled, 30min));
    EXPECT_EQ(world.fake.order().size(), 3u);
    for (const auto& [id, begun] : world.fake.attempts()) EXPECT_TRUE(begun.killed) << id;
}

TEST(Reattach, AnAttemptWhoseSecretChangedIsReattachedAndItsOutputWithheld) {
    for (const bool deleted : {false, true}) {
        EngineFixture world;
        world.start();
        world.nodes("n", 1);
        const auto& secrets = world.server->kind("Secret");
        ASSERT_TRUE(
            world
                .wait(world.server->resources->create(Context::background(), secrets,
                                                      resource::testing::a_secret("db", {{"password", "canary-old-value"}}), {}))
                .ok());
        world.fake.script = [](const Attempt& attempt) {
            FakeExecutor::Script script{.takes = 10min};
            script.out = "login with canary-old-value\n";
            script.outcome = Outcome::failure(ErrorClass::failed, "exit code 3: bad password canary-old-value", 3);
            script.outcome.values = {{"leak", "canary-old-value"}};
            return script;
        };
        world.submit("j", "tasks: [{name: a, on: n, run: {fake: \"use ${secret.db.password}\"}}]");
        ASSERT_TRUE(world.until([&] { return world.fake.running() == 1; }));
        world.pass(1min);
        if (deleted) {
            ASSERT_TRUE(world.wait(world.server->resources->remove(Context::background(), secrets, "db", {})).ok());
        } else {
            ASSERT_TRUE(
                world
                    .wait(world.server->resources->replace(
                        Context::background(), secrets, resource::testing::a_secret("db", {{"password", "canary-new-value"}}), {}))
                    .ok());
        }
        world.stop();
        world.start();
        ASSERT_TRUE(world.reaches("j", JobState::failed));
        EXPECT_EQ(world.record("j", "a@n-1").exit_code, 3) << "it was followed to its end";
        EXPECT_EQ(world.record("j", "a@n-1").attempt, 1u);
        const auto run = world.job("j");
        auto page =
            world.wait(world.server->engine->output().read(Context::background(), {run->uid, 0, 1, Phase::run}, 0, 1 << 20));
        ASSERT_TRUE(page.ok());
        ASSERT_EQ(page->pieces.size(), 1u);
        EXPECT_THAT(page->pieces[0].bytes, HasSubstr("the secret db was changed"));
        EXPECT_EQ(page->pieces[0].bytes.find("canary"), std::string::npos);
        for (const auto& [key, record] : world.shared->records)
            EXPECT_EQ(record->value.find("canary-"), std::string::npos) << key << record->value;
    }
}

TEST(Reattach, ReattachesToRunningAttemptsAfterAKillAndStartsNothingTwice) {
    for (unsigned seed = 1; seed <= 12; ++seed) {
        std::mt19937 random(seed);
        EngineFixture world;
        world.start();
        world.nodes("n", 6);
        world.fake.script = [&](const Attempt& attempt) {
            return FakeExecutor::Script{.takes = std::chrono::milliseconds(500 + std::hash<std::string>{}(attempt.task) % 4000)};
        };
        world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, after: a, same_host: true, run: {fake: {}}, verify: {fake: {}}}
  - {name: c, on: n, after: b, run: {fake: {}}}
  - {name: d, after: c, run: {local: {}}}
)");
        for (int kills = 0; kills < 8 && world.state("j") == JobState::running; ++kills) {
            for (auto steps = random() % 12; steps > 0; --steps) {
                world.loop.restart();
                for (auto polls = random() % 20; polls > 0; --polls) world.loop.poll_one();
                if (random() % 3 == 0) world.clock.advance_to_next();
            }
            world.stop();
            world.pass(std::chrono::milliseconds(random() % 2000));
            world.start();
        }
        ASSERT_TRUE(world.reaches("j", JobState::succeeded)) << seed;
        std::map<std::string, int> begun;
        for (const auto& [id, one] : world.fake.attempts()) {
            EXPECT_EQ(one.starts, 1) << id;
            ++begun[one.attempt.task];
        }
        for (const auto& [task, times] : begun) EXPECT_EQ(times, task.starts_with("b@") ? 2 : 1) << task << " seed " << seed;
        EXPECT_EQ(begun.size(), 18u);
    }
}

TEST(Reattach, FilesOfAttemptsAreRemovedFromNodesAlsoAfterACrash) {
    for (int steps = 1; steps < 60; steps += 3) {
        EngineFixture world;
        world.start();
        world.nodes("n", 2);
        world.submit("j", "tasks: [{name: a, on: n, check: {fake: {}}, run: {fake: {}}}]");
        world.stop();
        world.server = std::make_unique<EngineFixture::Server>(world);
        for (int i = 0; i < steps; ++i) {
            world.loop.restart();
            world.loop.poll_one();
        }
        world.stop();
        world.start();
        ASSERT_TRUE(world.reaches("j", JobState::succeeded));
        world.pass(10min);
        for (const auto& [id, begun] : world.fake.attempts()) EXPECT_TRUE(begun.cleaned) << id << " after " << steps;
        const auto object = world.server->resources->get(world.server->kind("Job"), "j");
        EXPECT_TRUE(object->status.at("cleaned").as_bool());
    }
}

TEST(Reattach, FilesOfAPhaseThatEndedBeforeACrashAreRemovedAlthoughTheNextPhaseRuns) {
    for (const bool crash_again : {false, true}) {
        EngineFixture world;
        world.start();
        world.nodes("n", 1);
        world.fake.out_of_reach = 1; // the clean-up of `run` is tried again later, and the server is killed before
        world.fake.script = [](const Attempt& attempt) {
            return FakeExecutor::Script{.takes = attempt.id.ends_with('v') ? 10min : 0min};
        };
        world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}, verify: {fake: {}}}]");
        ASSERT_TRUE(world.until([&] { return world.fake.attempts().size() == 2 && world.fake.out_of_reach == 0; }, 1s));
        world.stop();
        world.fake.out_of_reach = crash_again ? 1000 : 0;
        world.fake.out_of_reach_id = "r";
        world.start();
        ASSERT_TRUE(world.reaches("j", JobState::succeeded));
        if (crash_again) { // `verify` is clean, and the files of `run` cannot be reached yet
            world.pass(1min);
            world.stop();
            world.fake.out_of_reach = 0;
            world.start();
        }
        world.pass(2h);
        for (const auto& [id, begun] : world.fake.attempts()) EXPECT_TRUE(begun.cleaned) << id;
        const auto object = world.server->resources->get(world.server->kind("Job"), "j");
        EXPECT_TRUE(object->status.at("cleaned").as_bool());
    }
}

TEST(Reattach, ALostAttemptIsReportedAndOnlyTheOperatorStartsANewOne) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 1h}; };
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}]");
    ASSERT_TRUE(world.until([&] { return world.fake.running() == 1; }));
    world.stop();
    world.fake.forget(world.fake.attempts().begin()->first);
    world.start();
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "a@n-1").state, TaskState::lost);
    EXPECT_EQ(world.record("j", "a@n-1").message(), "the host was rebooted meanwhile");
}

TEST(Reattach, AServerThatLostLeadershipStartsNothing) {
    EngineFixture world;
    world.start();
    world.nodes("n", 2);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 10s}; };
    world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, after: a, run: {fake: {}}}
)");
    ASSERT_TRUE(world.until([&] { return world.fake.running() == 2; }));
    // Another server takes the leader's key behind its back, as it would after a long pause.
    auto stolen = std::make_shared<store::Record>(*world.shared->records.at("sys/leader/controllers"));
    stolen->created = ++world.shared->revision;
    stolen->modified = stolen->created;
    stolen->lease = 77;
    world.shared->records["sys/leader/controllers"] = stolen;
    world.pass(1min);
    EXPECT_EQ(world.fake.order().size(), 2u); // the first two, and nothing on top
}

} // namespace
} // namespace orrery::jobs
