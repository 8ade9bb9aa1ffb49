#include "core/text.h"
#include "jobs/command_queue.h"
#include "jobs/engine_fixture.h"
#include "jobs/output_frames.h"
#include "resource/migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

/// Records as earlier versions stored them, literally: they must stay readable.
namespace orrery::jobs {
namespace {

using ::testing::ElementsAre;
using testing::EngineFixture;

constexpr auto old_job = R"({"kind":"Job","name":"up","labels":{},
  "spec":{"tasks":[{"name":"a","on":"n","run":{"fake":{}},"retries":{"times":3,"first":"2s","longest":"9s","on":["connect"]}},
                   {"name":"b","run":{"local":{}},"retries":2}]},
  "status":{"uid":"u1","state":"failed","words":"1 failed, 0 lost, 0 skipped","machines":4,"began_at":"2026-01-01T00:00:00Z",
            "rolling_held":[{"role":"n","node":"n-1"}],"cleaned":true},
  "created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"})";

TEST(OldRecords, AStoredJobIsMigrated) {
    EngineFixture world;
    world.start();
    auto& store = world.server->store;
    store::Transaction old;
    old.put("jobs/up", old_job);
    ASSERT_TRUE(world.wait(store.apply(Context::background(), std::move(old))).ok());
    auto count = world.wait(resource::migrate_stored_fields(Context::background(), store, world.server->registry));
    ASSERT_TRUE(count.ok()) << count.error().text();
    const auto job = world.server->resources->get(world.server->kind("Job"), "up");
    ASSERT_TRUE(job.ok()) << job.error().text();
    EXPECT_EQ(to_json_text(job->spec.at("tasks").at(0).at("retries")),
              R"({"times":3,"on":["connect"],"delay":"2s","max_delay":"9s"})");
    EXPECT_EQ(job->spec.at("tasks").at(1).at("retries").as_int64(), 2);
    EXPECT_EQ(job->status.at("message").as_string(), "1 failed, 0 lost, 0 skipped");
    EXPECT_EQ(job->status.at("nodes").as_int64(), 4);
    EXPECT_EQ(job->status.at("started_at").as_string(), "2026-01-01T00:00:00Z");
    EXPECT_EQ(to_json_text(job->status.at("rolling_slots")), R"([{"role":"n","node":"n-1"}])");
    for (const auto* name : {"words", "machines", "began_at", "rolling_held"}) EXPECT_FALSE(job->status.contains(name)) << name;
}

TEST(OldRecords, AStoredCommandIsRead) {
    const auto old = CommandQueue::parse(
        "jobs.orders/up/01",
        R"({"what":"approve","task":"a@n-1","digest":"12ab","because":"reviewed","actor":"alice","context":"c"})");
    ASSERT_TRUE(old);
    EXPECT_EQ(old->job, "up");
    EXPECT_EQ(old->command.action, JobCommand::Action::approve);
    EXPECT_EQ(old->command.reason, "reviewed");
    EXPECT_TRUE(old->command.undo);
    const auto current =
        CommandQueue::parse("jobs.orders/up/02", R"({"action":"cancel","reason":"lunch","undo":false,"actor":"bob"})");
    ASSERT_TRUE(current);
    EXPECT_EQ(current->command.action, JobCommand::Action::cancel);
    EXPECT_EQ(current->command.reason, "lunch");
    EXPECT_FALSE(current->command.undo);
    EXPECT_FALSE(CommandQueue::parse("jobs.orders/up/03", R"({"error":{"code":"conflict"}})"));
}

TEST(OldRecords, AJournalEntryOfVersion1IsReplayed) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    const auto plan =
        world.server->engine->plan("j", parse_yaml("tasks: [{name: a, on: n, run: {fake: {}}}]")->front().value.as_object());
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    Limits limits(10);
    Scheduler scheduler(*plan, limits, world.catalog, [](std::uint32_t, Phase) { return Result<std::uint64_t>(std::uint64_t{1}); });
    Journal journal("uid", plan->tasks);
    using namespace std::string_literals;
    // The job: failed, flag undo, message, since 1000, started 0, ended 1000.
    // The task: failed in its run, flag uncleaned, attempt 1, try 1, exit code 3, since 1000, started 500, ended 1000, inputs 7.
    const auto entry = "1h\x04\x04\x08"s + "1 failed" + "\xd0\x0f\x00\xd0\x0f"s +
                       "r\x00\x05\x01\x00\x00\x04\x10\x01\x01\x06\x00\xd0\x0f\xe7\x07\x00\x07\x0b"s + "exit code 3" + "\x00"s +
                       "v\x00\x0e"s + R"({"built":"v2"})";
    auto replayed = journal.replay(scheduler, "jobs.log/uid/0000000000000001", entry);
    ASSERT_TRUE(replayed.ok()) << replayed.error().text();
    EXPECT_EQ(scheduler.job().state, JobState::failed);
    EXPECT_EQ(scheduler.job().message, "1 failed");
    EXPECT_EQ(scheduler.job().ended, 1000);
    const auto& record = scheduler.record(0);
    EXPECT_EQ(record.state, TaskState::failed);
    EXPECT_EQ(record.error, ErrorClass::failed);
    EXPECT_EQ(record.exit_code, 3);
    EXPECT_EQ(record.started, 500);
    EXPECT_EQ(record.message(), "exit code 3");
    EXPECT_TRUE(record.uncleaned);
    EXPECT_EQ(to_json_text(record.detail->values), R"({"built":"v2"})");
    // Written again, it is the same bytes.
    scheduler.mutable_record(0).detail->values_new = true;
    Journal again("uid", plan->tasks);
    EXPECT_THAT(again.record(scheduler, {0}, true), ElementsAre(std::pair("jobs.log/uid/0000000000000001"s, entry)));
}

TEST(OldRecords, AListOfArtefactsIsRead) {
    EngineFixture world;
    ArtefactFiles files(world.pool, {world.folder.path()});
    std::filesystem::create_directories(world.folder.path() / "uid");
    std::ofstream(world.folder.path() / "uid" / "0-1a")
        << R"([{"node":"n-1","path":"/none","words":"is not there"},{"node":"n-1","path":"/x","size":4,"sha256":"abcd"}])";
    auto list = world.wait(files.list({"uid", 0, 1}));
    ASSERT_TRUE(list.ok()) << list.error().text();
    EXPECT_EQ(list->at(0).message, "is not there");
    EXPECT_EQ(list->at(1).size, 4u);
    EXPECT_EQ(list->at(1).message, "");
}

TEST(OldRecords, AStepInStoredOutputHasItsMessage) {
    EXPECT_EQ(current_step(R"({"host":"n","name":"a \",\"words\":\" b","result":"ok","took_ms":3,"words":"fine"})"),
              R"({"host":"n","name":"a \",\"words\":\" b","result":"ok","took_ms":3,"message":"fine"})");
    EXPECT_EQ(current_step(R"({"host":"n","message":"fine"})"), R"({"host":"n","message":"fine"})");
}

} // namespace
} // namespace orrery::jobs
