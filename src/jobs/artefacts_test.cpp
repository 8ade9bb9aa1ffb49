#include "jobs/artefacts.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::EngineFixture;
using ::testing::HasSubstr;

struct ArtefactWorld : EngineFixture {
    ArtefactWorld() {
        start();
        nodes("n", 2);
        fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 1s}; };
    }
    std::vector<Artefact> of(const std::string& job_name, std::string_view task, int attempt = 1) {
        const auto run = job(job_name);
        auto all = wait(server->engine->artefacts().list({run->uid, run->plan.find(task).value(), attempt}));
        EXPECT_TRUE(all.ok());
        return all.ok() ? *all : std::vector<Artefact>{};
    }
};

TEST(Artefacts, AreFetchedWhenATaskEndsAlsoIfItFailed) {
    ArtefactWorld world;
    world.artefact_fetcher.files = {{"n-1:/var/log/n-1.log", std::string("a\0b", 3)}, {"n-2:/var/log/n-2.log", "other"}};
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        if (attempt.task == "a@n-2") script.outcome = Outcome::failure(ErrorClass::failed, "exit code 3", 3);
        return script;
    };
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}, artefacts: ['/var/log/${node.name}.log', /nowhere]}]");
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    const auto first = world.of("j", "a@n-1"), second = world.of("j", "a@n-2");
    ASSERT_EQ(first.size(), 2u);
    EXPECT_EQ(first[0].path, "/var/log/n-1.log");
    EXPECT_EQ(first[0].size, 3u);
    EXPECT_EQ(first[0].sha256, "59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138");
    EXPECT_EQ(first[1].message, "is not there");
    ASSERT_EQ(second.size(), 2u);
    EXPECT_EQ(second[0].message, "");
    const auto run = world.job("j");
    auto bytes = world.wait(world.server->engine->artefacts().read({run->uid, 0, 1}, 0, 1, 10));
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(*bytes, std::string("\0b", 2));
}

TEST(Artefacts, WithASecretOrOverTheLimitAreNotKept) {
    ArtefactWorld world;
    ASSERT_TRUE(world
                    .wait(world.server->resources->create(Context::background(), world.server->kind("Secret"),
                                                          resource::testing::a_secret("db", {{"password", "canary-value-77"}}), {}))
                    .ok());
    world.artefact_fetcher.files = {{"n-1:/conf", "x=canary-value-77"}, {"n-1:/big", std::string(1000, 'x')}, {"n-1:/small", "y"}};
    world.stop();
    world.options.artefact_limit = 900;
    world.options.artefacts_of_job = 1;
    world.start();
    world.submit(
        "j", "tasks: [{name: a, on: [n-1], env: {P: '${secret.db.password}'}, run: {fake: {}}, artefacts: [/small, /conf, /big]}]");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    const auto all = world.of("j", "a@n-1");
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].message, "");
    EXPECT_THAT(all[1].message, HasSubstr("which is the limit"));
    world.stop();
    world.options.artefacts_of_job = 1 << 20;
    world.start();
    world.submit(
        "k", "tasks: [{name: a, on: [n-1], env: {P: '${secret.db.password}'}, run: {fake: {}}, artefacts: [/small, /conf, /big]}]");
    ASSERT_TRUE(world.reaches("k", JobState::succeeded));
    const auto more = world.of("k", "a@n-1");
    EXPECT_EQ(more[1].message, "holds a secret of its task, and is not stored");
    EXPECT_EQ(more[2].message, "is too large");
}

TEST(Artefacts, AreFetchedByTheServerThatReattaches) {
    ArtefactWorld world;
    world.artefact_fetcher.files = {{"n-1:/log", "text"}};
    world.submit("j", "tasks: [{name: a, on: [n-1], run: {fake: {}}, artefacts: [/log]}]");
    ASSERT_TRUE(world.until([&] { return world.fake.running() == 1; }));
    world.stop();
    world.start();
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    EXPECT_THAT(world.artefact_fetcher.requested, ElementsAre("n-1:/log"));
    EXPECT_EQ(world.of("j", "a@n-1").at(0).size, 4u);
}

TEST(Artefacts, OfAnUnreachableNodeDoNotFailTheTask) {
    ArtefactWorld world;
    world.artefact_fetcher.unreachable = true;
    world.submit("j", "tasks: [{name: a, on: [n-1], run: {fake: {}}, artefacts: [/log]}]");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    EXPECT_EQ(world.of("j", "a@n-1").at(0).message, "could not be fetched: no route to host");
}

TEST(Artefacts, OfOldAttemptsAreRemoved) {
    orrery::testing::TemporaryFolder folder;
    ArtefactWorld world;
    ArtefactFiles files(world.pool, {folder.path(), 100, 1000});
    for (int attempt = 1; attempt <= 6; ++attempt) {
        const ArtefactFiles::Name name{"u", 7, attempt};
        auto kept = world.wait(files.keep(name, 0, {"n", "/x", 0, {}, {}}, "text", Masker(Secrets{})));
        ASSERT_TRUE(kept.ok());
        ASSERT_TRUE(world.wait(files.finish(name, {*kept})).ok());
    }
    EXPECT_EQ(world.wait(files.list({"u", 7, 1}))->size(), 0u);
    EXPECT_EQ(world.wait(files.list({"u", 7, 2}))->size(), 0u);
    EXPECT_EQ(world.wait(files.list({"u", 7, 3}))->size(), 1u);
    EXPECT_FALSE(world.wait(files.read({"u", 7, 2}, 0, 0, 10)).ok());
    EXPECT_EQ(*world.wait(files.read({"u", 7, 6}, 0, 0, 10)), "text");
    EXPECT_GT(*world.wait(files.used("u")), 16u);
}

TEST(Artefacts, AreCheckedWithTheJob) {
    ArtefactWorld world;
    const auto problems = [&](std::string_view task) {
        auto made = world.apply("Job", "wrong", fmt::format("tasks: [{{name: a, {}}}]", task));
        std::string all;
        if (!made.ok())
            for (const auto& field : made.error().fields) all += field.path + " " + field.message + "\n";
        return all;
    };
    EXPECT_THAT(problems("on: n, run: {fake: {}}, artefacts: [relative]"),
                HasSubstr("artefacts[0] task a: must be the absolute path"));
    EXPECT_THAT(problems("on: n, run: {fake: {}}, artefacts: [/a/../b]"), HasSubstr("without \"..\""));
    EXPECT_THAT(problems("run: {local: {}}, artefacts: [/a]"), HasSubstr("needs \"on\""));
    EXPECT_THAT(problems("on: n, artefacts: [/a]"), HasSubstr("needs \"run\""));
    EXPECT_THAT(problems("on: n, run: {fake: {}}, artefacts: ['/${with.x}']"), HasSubstr("has no x"));
    EXPECT_THAT(problems("on: n, run: {fake: {}}, artefacts: ['/${secret.s.x}']"), HasSubstr("cannot use a secret"));
}

} // namespace
} // namespace orrery::jobs
