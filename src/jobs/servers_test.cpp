#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

/// Several servers on one store: the leader, a deposed leader, and what each server shows.
namespace orrery::jobs::testing {

using ::testing::HasSubstr;

namespace {

std::string output_of(EngineFixture& world, EngineFixture::Server& at, std::string_view task, int attempt = 1) {
    auto caught_up = world.wait(at.store.catch_up(Context::background()));
    EXPECT_TRUE(caught_up.ok());
    auto run = at.engine->find("j");
    if (!run.ok()) return run.error().text();
    const auto number = (*run)->plan.find(task).value();
    std::string all;
    for (std::uint64_t from = 0;;) { // in small pages
        auto page =
            world.wait(at.engine->output().read(Context::background(), {(*run)->uid, number, attempt, Phase::run}, from, 1000));
        if (!page.ok()) return page.error().text();
        if (page->pieces.empty()) return all;
        for (const auto& piece : page->pieces) all += piece.bytes;
        from = page->next;
    }
}

} // namespace

TEST(Servers, ADeposedLeaderStartsNothingAndWritesNothing) {
    int unaware = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
        std::mt19937 random(seed);
        EngineFixture world;
        world.options.shared = true;
        world.lease = 24h; // it does not check its lease by itself
        world.start("old");
        world.nodes("n", 4);
        world.fake.script = [](const Attempt& attempt) {
            return FakeExecutor::Script{.takes = 10s, .out = attempt.task + " was here\n"};
        };
        world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, after: a, same_host: true, run: {fake: {}}}
  - {name: c, on: n, after: b, same_host: true, run: {fake: {}}}
)");
        auto other = std::make_unique<EngineFixture::Server>(world, "new");
        world.pass(std::chrono::milliseconds(random() % 25'000));
        for (auto polls = random() % 60; polls > 0; --polls) world.loop.poll_one();
        world.depose(*other);
        unaware += world.server->leadership->leads() ? 1 : 0;
        ASSERT_TRUE(world.until([&] {
            auto run = other->engine->find("j");
            return run.ok() && (*run)->scheduler->job().state == JobState::succeeded;
        })) << seed;
        std::map<std::string, int> begun;
        for (const auto& [id, one] : world.fake.attempts()) {
            EXPECT_EQ(one.starts, 1) << id << " seed " << seed;
            ++begun[one.attempt.task];
        }
        EXPECT_EQ(begun.size(), 12u);
        for (const auto& [task, times] : begun) EXPECT_EQ(times, 1) << task << " seed " << seed;
        for (const auto* task : {"a@n-1", "b@n-2", "c@n-3"})
            EXPECT_EQ(output_of(world, *other, task), std::string(task) + " was here\n") << "seed " << seed;
        world.stop(other);
    }
    EXPECT_GT(unaware, 10);
}

TEST(Servers, EveryServerShowsTheOutputOfAttempts) {
    EngineFixture world;
    world.options.shared = true;
    world.start("first");
    world.nodes("n", 1);
    std::string lines;
    for (int i = 0; i < 20'000; ++i) lines += fmt::format("line {}\n", i);
    world.fake.script = [&](const Attempt&) { return FakeExecutor::Script{.takes = 1min, .out = lines, .err = "and an error\n"}; };
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}]");
    auto other = std::make_unique<EngineFixture::Server>(world, "second");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    EXPECT_EQ(output_of(world, *other, "a@n-1"), lines + "and an error\n");
    EXPECT_EQ(output_of(world, *world.server, "a@n-1"), lines + "and an error\n");
    for (const auto& [key, record] : world.shared->records) EXPECT_LT(record->value.size(), 200u << 10) << key;
    // No server holds it in memory.
    for (const auto& record : other->store.range("", 0, "").records) EXPECT_LT(record->value.size(), 10'000u) << record->key;
    // With the job it goes.
    world.pass(1s);
    auto removed = world.wait(world.server->resources->remove(Context::background(), world.server->kind("Job"), "j", {}));
    ASSERT_TRUE(removed.ok()) << removed.error().text();
    world.pass(1s);
    for (const auto& [key, record] : world.shared->records) EXPECT_EQ(key.find("output"), std::string::npos) << key;
    world.stop(other);
}

TEST(Servers, OldOutputIsRemovedAndReadersGetANotice) {
    EngineFixture world;
    world.options.shared = true;
    world.options.output_total = 100'000;
    world.start();
    world.nodes("n", 1);
    world.fake.script = [&](const Attempt&) { return FakeExecutor::Script{.out = std::string(60'000, 'x')}; };
    for (const auto* job : {"j", "j2", "j3"}) {
        world.submit(job, "tasks: [{name: a, on: n, run: {fake: {}}}]");
        ASSERT_TRUE(world.reaches(job, JobState::succeeded));
        world.pass(1min);
    }
    EXPECT_THAT(output_of(world, *world.server, "a@n-1"), HasSubstr("removed to make room"));
    std::size_t kept = 0;
    for (const auto& [key, record] : world.shared->records)
        if (key.starts_with("~output/")) kept += record->value.size();
    EXPECT_GT(kept, 60'000u);
    EXPECT_LT(kept, 130'000u);
}

TEST(Servers, AnAttemptOnAServerIsLostWithItAndDoesNotRunTwice) {
    EngineFixture world;
    world.options.shared = true;
    world.local.here = true;
    world.local.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 1h}; };
    world.start("alpha");
    world.submit("j", "tasks: [{name: a, run: {local: {}}}, {name: b, run: {local: {}}}]");
    ASSERT_TRUE(world.until([&] { return world.local.running() == 2; }));
    world.stop();
    world.start("alpha"); // the same one again: it asks for them
    world.pass(10min);
    EXPECT_EQ(world.state("j"), JobState::running);
    world.stop();
    world.start("beta");
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "a").state, TaskState::lost);
    EXPECT_THAT(std::string(world.record("j", "a").message()), HasSubstr("started on the server alpha"));
    for (const auto& [id, one] : world.local.attempts()) EXPECT_EQ(one.starts, 1) << id;
    EXPECT_EQ(world.local.attempts().size(), 2u);
}

TEST(Servers, AnUnreachableNodeIsCleanedUpWhenItReturns) {
    EngineFixture world;
    world.start();
    world.nodes("n", 2);
    world.fake.out_of_reach = 7;
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}]");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    const auto cleaned = [&] {
        const auto object = world.server->resources->get(world.server->kind("Job"), "j");
        const auto* output_of = object->status.if_contains("cleaned");
        return output_of != nullptr && output_of->as_bool();
    };
    world.pass(40s);
    EXPECT_FALSE(cleaned());
    world.stop(); // the next leader continues it
    world.start();
    world.pass(1min);
    EXPECT_FALSE(cleaned());
    world.pass(2h);
    EXPECT_TRUE(cleaned());
    for (const auto& [id, begun] : world.fake.attempts()) EXPECT_TRUE(begun.cleaned) << id;
}

TEST(Servers, CleaningUpANodeThatNeverReturnsEnds) {
    EngineFixture world;
    world.options.clean_for = 1h;
    world.start();
    world.nodes("n", 1);
    world.fake.out_of_reach = 1'000'000;
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}]");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    world.pass(2h);
    EXPECT_GT(world.fake.out_of_reach, 999'900);
    const auto object = world.server->resources->get(world.server->kind("Job"), "j");
    EXPECT_TRUE(object->status.at("cleaned").as_bool()); // nothing is left where it could be reached
}

} // namespace orrery::jobs::testing
