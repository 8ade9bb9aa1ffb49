#include "jobs/engine.h"
#include "jobs/engine_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace orrery::jobs {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::EngineFixture;
using ::testing::HasSubstr;

TEST(Engine, RunsATaskWhenItsDependenciesAreDone) {
    EngineFixture world;
    world.start();
    world.nodes("db", 2);
    world.nodes("oc", 2);
    world.submit("j", R"(
tasks:
  - {name: base, on: {labels: role}, run: {fake: {}}}
  - {name: app, on: oc, after: base, same_host: true, run: {fake: {}}}
  - {name: last, after: [app, base], run: {local: {}}}
)");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    EXPECT_EQ(world.fake.order().size(), 6u);
    EXPECT_THAT(world.local.order(), ElementsAre("last"));
    world.until([&] { return world.fake.attempts().begin()->second.cleaned; });
    for (const auto& [id, begun] : world.fake.attempts()) {
        EXPECT_EQ(begun.starts, 1);
        EXPECT_TRUE(begun.cleaned);
        EXPECT_EQ(begun.attempt.environment.at("ORRERY_TASK"), begun.attempt.task);
    }
    const auto status = world.server->resources->get(world.server->kind("Job"), "j");
    EXPECT_EQ(status->status.at("state").as_string(), "succeeded");
    EXPECT_EQ(status->status.at("progress").as_string(), "7/7");
}

TEST(Engine, AFailureSkipsAllDependentsAtOnceAndNoOtherTask) {
    EngineFixture world;
    world.start();
    world.nodes("db", 2);
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.takes = attempt.task == "slow@db-1" ? 20min : 1s;
        if (attempt.task == "a@db-1") script.outcome = Outcome::failure(ErrorClass::failed, "exit code 3", 3);
        return script;
    };
    world.submit("j", R"(
limits: {per_host: 10}
tasks:
  - {name: a, on: db, run: {fake: {}}}
  - {name: b, on: db, after: a, same_host: true, run: {fake: {}}}
  - {name: c, on: db, after: b, run: {fake: {}}}
  - {name: slow, on: [db-1], run: {fake: {}}}
)");
    ASSERT_TRUE(world.until([&] { return world.record("j", "c@db-2").state == TaskState::skipped; }, 10s));
    EXPECT_EQ(world.record("j", "a@db-1").exit_code, 3);
    EXPECT_EQ(world.record("j", "b@db-1").message(), "a@db-1 failed");
    EXPECT_EQ(world.record("j", "c@db-1").message(), "b@db-1 skipped");
    EXPECT_EQ(world.state("j"), JobState::running);
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "b@db-2").state, TaskState::succeeded);
    EXPECT_EQ(world.record("j", "slow@db-1").state, TaskState::succeeded);

    // Only what failed, and what waited for it, runs again.
    world.fake.script = {};
    const auto before = world.fake.order().size();
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::retry}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    EXPECT_EQ(world.fake.order().size() - before, 4u);
    EXPECT_FALSE(world.command("j", {.action = JobCommand::Action::retry}).ok());
}

TEST(Engine, ATaskAtABarrierUsesNoSlotAndIsWokenByTheWatch) {
    EngineFixture world;
    world.start();
    world.nodes("db", 3);
    world.node("web-1", {{"role", "web"}});
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.takes = attempt.task.starts_with("db") ? 100s : 1s;
        return script;
    };
    world.catalog.set("db", catalog::fake_member("db-1", "a", 1, MemberState::registered, "connection refused"));
    world.submit("j", R"(
tasks:
  - {name: db, on: db, run: {fake: {}}, provides: db}
  - {name: web, on: web, wait: {service: db, count: all, hold: 5s}, run: {fake: {}}}
  - {name: other, on: web, run: {fake: {}}}
)");
    ASSERT_TRUE(world.until([&] { return world.record("j", "other@web-1").state == TaskState::succeeded; }, 10s));
    EXPECT_EQ(world.record("j", "web@web-1").state, TaskState::waiting);
    for (const auto* node : {"db-1", "db-2", "db-3"}) world.catalog.pass("db", node);
    world.pass(3s);
    EXPECT_EQ(world.record("j", "web@web-1").state, TaskState::waiting); // not held for five seconds yet
    world.catalog.set_evidence(Error{Code::unavailable, "the catalog cannot be asked"});
    world.pass(10s);
    EXPECT_EQ(world.record("j", "web@web-1").state, TaskState::waiting); // no evidence
    world.catalog.set_evidence({});
    ASSERT_TRUE(world.until([&] { return world.record("j", "web@web-1").state == TaskState::succeeded; }, 5s));
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
}

TEST(Engine, TheDeadlineOfABarrierFailsHoldsOrContinues) {
    EngineFixture world;
    world.start();
    world.node("n", {{"role", "n"}});
    world.catalog.set("db", catalog::fake_member("db-1", "a", 1, MemberState::registered, "connection refused"));
    world.submit("j", R"(
limits: {per_host: 5}
tasks:
  - {name: fails, on: n, wait: {service: db, deadline: 10m}, run: {fake: {}}}
  - {name: asks, on: n, wait: {service: db, deadline: 10m, on_timeout: ask}, run: {fake: {}}}
  - {name: goes, on: n, wait: {service: db, deadline: 10m, on_timeout: continue}, run: {fake: {}}}
)");
    world.pass(599s);
    EXPECT_EQ(world.fake.order().size(), 0u);
    world.stop();
    world.start();
    world.pass(7s); // time since it was last noted that a server is at work, five seconds at most, does not count
    EXPECT_EQ(world.record("j", "fails@n").state, TaskState::failed);
    EXPECT_THAT(std::string(world.record("j", "fails@n").message()),
                HasSubstr("0 of 1 db passing (db-1 is registered: connection refused)"));
    EXPECT_EQ(world.record("j", "asks@n").waits, Waits::decision);
    EXPECT_THAT(world.fake.order(), ElementsAre("goes@n"));
    const auto digest = world.job("j")->plan.digest;
    EXPECT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .task = "asks@n", .digest = digest}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "asks@n").state, TaskState::succeeded);
}

TEST(Engine, ReRunsWhenMembersDifferAndCoalescesChanges) {
    EngineFixture world;
    world.start();
    world.node("lb", {{"role", "lb"}});
    world.catalog.pass("web", "w1");
    world.submit("j", R"(
tasks:
  - {name: pools, on: lb, with: {members: "${service.web.addresses}"}, rerun_on: web, run: {fake: {}}}
)");
    ASSERT_TRUE(world.reaches("j", JobState::converged));
    const auto runs = [&] { return world.fake.order().size(); };
    EXPECT_EQ(runs(), 1u);
    // Two members within the debounce are one run.
    world.catalog.pass("web", "w2");
    world.pass(1s);
    world.catalog.pass("web", "w3");
    world.pass(60s);
    EXPECT_EQ(runs(), 2u);
    EXPECT_EQ(world.record("j", "pools@lb").detail->inputs, (json::value{{"members", {"addr-w1", "addr-w2", "addr-w3"}}}));
    EXPECT_EQ(world.state("j"), JobState::converged);
    // Gone and back again is no change; nor is a catalog that cannot be asked.
    world.catalog.remove("web", "w2");
    world.catalog.pass("web", "w2");
    world.catalog.set_evidence(Error{Code::unavailable, "the catalog cannot be asked"});
    world.pass(60s);
    world.catalog.set_evidence({});
    world.pass(60s);
    EXPECT_EQ(runs(), 2u);
    // Twenty flaps in ten seconds are at most three runs.
    for (int i = 0; i < 20; ++i) {
        if (i % 2 == 0)
            world.catalog.remove("web", "w3");
        else
            world.catalog.pass("web", "w3");
        world.pass(500ms);
    }
    world.pass(60s);
    EXPECT_LE(runs(), 5u);
    // What follows it survives the server.
    world.stop();
    world.catalog.pass("web", "w9");
    world.start();
    const auto before = runs();
    world.pass(60s);
    EXPECT_EQ(runs(), before + 1);
    EXPECT_TRUE(world.command("j", {.action = JobCommand::Action::cancel}).ok());
    EXPECT_EQ(world.state("j"), JobState::succeeded);
}

TEST(Engine, RetriesByErrorClassWithBackoff) {
    EngineFixture world;
    world.start();
    world.node("n", {{"role", "n"}});
    world.fake.unreachable["a@n"] = 2;
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        if (attempt.task == "b@n") script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        if (attempt.task == "c@n") script.outcome = Outcome::failure(ErrorClass::lost, "rebooted");
        if (attempt.task == "d@n" && attempt.number == 1) script.outcome = Outcome::failure(ErrorClass::lost, "rebooted");
        return script;
    };
    const auto begin = world.clock.steady();
    world.submit("j", R"(
limits: {per_host: 9}
tasks:
  - {name: a, on: n, run: {fake: {}}, retries: {times: 2, delay: 10s}}
  - {name: b, on: n, run: {fake: {}}, retries: 5}
  - {name: c, on: n, run: {fake: {}}, retries: 5}
  - {name: d, on: n, run: {fake: {}}, retries: 5, idempotent: true}
)");
    ASSERT_TRUE(world.reaches("j", JobState::failed));
    EXPECT_EQ(world.record("j", "a@n").state, TaskState::succeeded);
    EXPECT_EQ(world.record("j", "a@n").attempt, 3);
    EXPECT_EQ(world.record("j", "a@n").detail->past.size(), 2u);
    EXPECT_GE(world.clock.steady() - begin, 30s);
    EXPECT_LE(world.clock.steady() - begin, 40s);
    EXPECT_EQ(world.record("j", "b@n").attempt, 1);             // it ran and reported a failure
    EXPECT_EQ(world.record("j", "c@n").state, TaskState::lost); // the outcome is unknown, and it must not run twice
    EXPECT_EQ(world.record("j", "c@n").attempt, 1);
    EXPECT_EQ(world.record("j", "d@n").state, TaskState::succeeded);
}

TEST(Engine, CheckVerifyAndTimeout) {
    EngineFixture world;
    world.start();
    world.node("n", {{"role", "n"}});
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        const auto what = attempt.body.as_string();
        if (what == "no") script.outcome = Outcome::failure(ErrorClass::failed, "not so", 1);
        if (what == "long") script.takes = 1h;
        return script;
    };
    world.submit("j", R"(
limits: {per_host: 9}
tasks:
  - {name: already, on: n, check: {fake: "yes"}, run: {fake: "run"}}
  - {name: needed, on: n, check: {fake: "no"}, run: {fake: "run"}, verify: {fake: "yes"}}
  - {name: wrong, on: n, run: {fake: "run"}, verify: {fake: "no"}}
  - {name: late, on: n, run: {fake: "long"}, timeout: 1m}
)");
    ASSERT_TRUE(world.reaches("j", JobState::failed, 10min));
    EXPECT_EQ(world.record("j", "already@n").change, Outcome::Change::unchanged);
    EXPECT_EQ(world.record("j", "needed@n").state, TaskState::succeeded);
    EXPECT_EQ(world.record("j", "wrong@n").message(), "verify: not so");
    EXPECT_EQ(world.record("j", "late@n").error, ErrorClass::timeout);
    EXPECT_EQ(world.fake.order().size(), 7u);
    for (const auto& [id, begun] : world.fake.attempts()) {
        if (begun.attempt.task == "late@n") EXPECT_TRUE(begun.killed);
    }
}

TEST(Engine, CancelsKillsAndUndoesFromTheEnd) {
    EngineFixture world;
    world.start();
    world.nodes("n", 2);
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script;
        script.takes = attempt.task.starts_with("c@") ? 1h : 1s;
        return script;
    };
    world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: a}, undo: {fake: undo-a}}
  - {name: b, on: n, after: a, run: {fake: b}, undo: {fake: undo-b}}
  - {name: c, on: n, after: b, run: {fake: c}}
  - {name: d, on: n, after: c, run: {fake: d}, undo: {fake: undo-d}}
)");
    ASSERT_TRUE(world.until([&] { return world.fake.order().size() == 6; }));
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::cancel, .reason = "wrong rack"}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::cancelled));
    std::vector<std::string> bodies;
    for (const auto& task : world.fake.order()) bodies.push_back(task);
    EXPECT_THAT(std::vector<std::string>(bodies.begin() + 6, bodies.end()), ElementsAre("b@n-1", "b@n-2", "a@n-1", "a@n-2"));
    EXPECT_EQ(world.record("j", "c@n-1").state, TaskState::cancelled);
    EXPECT_EQ(world.record("j", "d@n-1").state, TaskState::cancelled);
    EXPECT_TRUE(world.record("j", "a@n-2").undone);
    EXPECT_EQ(world.record("j", "a@n-2").state, TaskState::undone);
    EXPECT_FALSE(world.command("j", {.action = JobCommand::Action::pause}).ok());
}

TEST(Engine, LimitsSlotsHostsLocksAndRoles) {
    EngineFixture world;
    world.start();
    world.nodes("n", 6);
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 10s}; };
    world.submit("j", R"(
limits: {slots: 4}
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, run: {fake: {}}}
  - {name: locked, on: n, lock: shared, run: {fake: {}}}
)");
    world.submit("k", "tasks: [{name: x, on: n, lock: shared, run: {fake: {}}}]");
    std::size_t locked = 0, same_host = 0;
    ASSERT_TRUE(world.until([&] {
        std::map<std::string, int> hosts;
        std::size_t holders = 0;
        for (const auto& [id, begun] : world.fake.attempts()) {
            if (world.clock.steady() >= begun.until) continue;
            if (++hosts[begun.attempt.targets.at(0).node.name] > 1) ++same_host;
            if (begun.attempt.task.starts_with("locked") || begun.attempt.task.starts_with("x")) ++holders;
        }
        locked = std::max(locked, holders);
        return world.state("j") == JobState::succeeded && world.state("k") == JobState::succeeded;
    }));
    EXPECT_EQ(locked, 1u);
    EXPECT_EQ(same_host, 0u);
    EXPECT_LE(world.fake.max_running(), 5u); // four of j and one of k
}

TEST(Engine, WavesCanaryHoldAndStop) {
    EngineFixture world;
    world.start();
    world.nodes("n", 10);
    std::set<std::string> bad;
    world.fake.script = [&](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 10s};
        if (bad.contains(attempt.task)) script.outcome = Outcome::failure(ErrorClass::failed, "no", 1);
        return script;
    };
    const auto begin = world.clock.steady();
    world.submit("good", R"(
tasks:
  - {name: drain, on: n, run: {fake: {}}, batch: {canary: 1, serial: [2, "50%"], hold: 60s, through: verify}}
  - {name: verify, on: n, after: drain, same_host: true, run: {fake: {}}}
)");
    // 1, then 2, then 5, then 2; each wave takes two tasks of ten seconds, and a minute's hold.
    ASSERT_TRUE(world.reaches("good", JobState::succeeded));
    EXPECT_EQ(world.clock.steady() - begin, 4 * 20s + 3 * 60s);
    bad = {"a@n-2", "a@n-3"};
    world.submit("stops", R"(
tasks:
  - {name: a, on: n, run: {fake: {}}, batch: {canary: 1, serial: 3, max_fail: 1}}
)");
    ASSERT_TRUE(world.reaches("stops", JobState::failed));
    int skipped = 0;
    for (const auto& record : world.job("stops")->scheduler->records()) skipped += record.state == TaskState::skipped ? 1 : 0;
    EXPECT_EQ(skipped, 6); // the canary and a wave of three ran
    EXPECT_THAT(std::string(world.record("stops", "a@n-9").message()), HasSubstr("max_fail is 1"));
}

TEST(Engine, ApprovalIsForOnePlanAndPauseHoldsTasksThatHaveNotStarted) {
    EngineFixture world;
    world.start();
    world.nodes("n", 2);
    world.submit("j", R"(
approve: true
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, after: a, approve: true, run: {fake: {}}}
)");
    world.pass(1min);
    EXPECT_EQ(world.state("j"), JobState::planned);
    auto refused = world.command("j", {.action = JobCommand::Action::approve, .digest = "0123"});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::conflict);
    const auto digest = world.job("j")->plan.digest;
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::pause, .reason = "lunch"}).ok());
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .digest = digest}).ok());
    world.pass(1min);
    EXPECT_EQ(world.fake.order().size(), 0u);
    world.stop();
    world.start();
    world.pass(1min);
    EXPECT_EQ(world.fake.order().size(), 0u);
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::resume}).ok());
    ASSERT_TRUE(world.until([&] { return world.record("j", "b@n-1").waits == Waits::approval; }));
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .task = "b@n-1", .digest = digest}).ok());
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .task = "b@n-2", .digest = digest}).ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
}

TEST(Engine, TheSubmitterCannotGiveAnApprovalThatNeedsAnotherUser) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    world.submit("j", R"(
approve: {by_another: true}
tasks:
  - {name: a, on: n, run: {fake: {}}}
  - {name: b, on: n, after: a, approve: {by_another: true}, run: {fake: {}}}
)");
    ASSERT_TRUE(world.until([&] { return world.state("j") == JobState::planned; }));
    const auto digest = world.job("j")->plan.digest;
    const auto own = world.command("j", {.action = JobCommand::Action::approve, .digest = digest});
    ASSERT_FALSE(own.ok());
    EXPECT_EQ(own.error().code, Code::denied);
    EXPECT_THAT(own.error().message, HasSubstr("must be approved by another user"));
    world.pass(1min);
    EXPECT_EQ(world.state("j"), JobState::planned);
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .digest = digest}, "colleague").ok());
    ASSERT_TRUE(world.until([&] { return world.record("j", "b@n-1").waits == Waits::approval; }));
    EXPECT_FALSE(world.command("j", {.action = JobCommand::Action::approve, .task = "b@n-1", .digest = digest}).ok());
    ASSERT_TRUE(world.command("j", {.action = JobCommand::Action::approve, .task = "b@n-1", .digest = digest}, "colleague").ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    for (const auto* bad : {"approve: {by_another: 1}", "approve: {}", "approve: {other: true}", "approve: 5"}) {
        const auto made = world.apply("Job", "k", fmt::format("{}\ntasks: [{{name: a, on: n, run: {{fake: {{}}}}}}]", bad));
        ASSERT_FALSE(made.ok()) << bad;
        EXPECT_THAT(made.error().text(), HasSubstr("{by_another: true}"));
    }
}

TEST(Engine, PublishedValuesSecretsAndOutputAreSeparate) {
    EngineFixture world;
    world.start();
    world.nodes("n", 1);
    auto made =
        world.wait(world.server->resources->create(Context::background(), world.server->kind("Secret"),
                                                   resource::testing::a_secret("db", {{"password", "canary-31337-value"}}), {}));
    ASSERT_TRUE(made.ok());
    world.fake.script = [](const Attempt& attempt) {
        FakeExecutor::Script script{.takes = 1s};
        if (attempt.task == "a@n-1") {
            script.outcome.values = {{"version", "1.2"}};
            script.out = with_secrets("login with ${secret.db.password}\n", attempt.secrets);
            script.err = "Y2FuYXJ5LTMxMzM3LXZhbHVl\n";
            script.outcome.message = "said " + attempt.secrets.at("db.password");
        } else {
            script.outcome.values = {{"leak", "x" + attempt.secrets.at("db.password")}};
        }
        return script;
    };
    world.submit("j", R"(
tasks:
  - {name: a, on: n, run: {fake: "use ${secret.db.password}"}}
  - {name: b, on: n, after: a, with: {v: "${task.a.values.version}"}, env: {PW: "${secret.db.password}"}, run: {fake: "v ${with.v}"}}
)");
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    for (const auto& [id, begun] : world.fake.attempts()) {
        if (begun.attempt.task == "b@n-1") EXPECT_EQ(begun.attempt.body.as_string(), "v 1.2");
    }
    const auto run = world.job("j");
    auto page = world.wait(world.server->engine->output().read(Context::background(), {run->uid, 0, 1, Phase::run}, 0, 1 << 20));
    ASSERT_TRUE(page.ok());
    ASSERT_EQ(page->pieces.size(), 2u);
    EXPECT_EQ(page->pieces[0].bytes, "login with (secret)\n");
    EXPECT_EQ(page->pieces[1].bytes, "(secret)\n");
    EXPECT_THAT(std::string(world.record("j", "b@n-1").message()), HasSubstr("held a secret"));
    // Nowhere in the store, and in no file.
    for (const auto& [key, record] : world.shared->records) EXPECT_EQ(record->value.find("canary-31337"), std::string::npos) << key;
    for (const auto& file : std::filesystem::recursive_directory_iterator(world.folder.path())) {
        if (!file.is_regular_file()) continue;
        std::ifstream in(file.path());
        const std::string all((std::istreambuf_iterator<char>(in)), {});
        EXPECT_EQ(all.find("canary-31337"), std::string::npos) << file.path();
        EXPECT_EQ(all.find("Y2FuYXJ5"), std::string::npos) << file.path();
    }
}

TEST(Engine, TasksWaitForNodesInMaintenanceAndJobsAreImmutable) {
    EngineFixture world;
    world.start();
    world.nodes("n", 2);
    auto changed = world.wait(
        world.server->resources->patch(Context::background(), world.server->kind("Node"), "n-1",
                                       json::value{{"spec", {{"maintenance", {{"enabled", true}, {"reason", "disk"}}}}}}, {}));
    ASSERT_TRUE(changed.ok());
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}]");
    world.pass(1min);
    EXPECT_EQ(world.record("j", "a@n-1").waits, Waits::evidence);
    EXPECT_EQ(world.record("j", "a@n-1").message(), "n-1 is in maintenance: disk");
    EXPECT_EQ(world.record("j", "a@n-2").state, TaskState::succeeded);
    EXPECT_FALSE(world.wait(world.server->resources->remove(Context::background(), world.server->kind("Job"), "j", {})).ok());
    EXPECT_FALSE(world
                     .wait(world.server->resources->patch(Context::background(), world.server->kind("Job"), "j",
                                                          json::value{{"spec", {{"description", "other"}}}}, {}))
                     .ok());
    changed = world.wait(world.server->resources->patch(Context::background(), world.server->kind("Node"), "n-1",
                                                        json::value{{"spec", {{"maintenance", {{"enabled", false}}}}}}, {}));
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    ASSERT_TRUE(world.until([&] {
        return world.server->resources->get(world.server->kind("Job"), "j")->status.at("state").as_string() == "succeeded";
    }));
    ASSERT_TRUE(world.wait(world.server->resources->remove(Context::background(), world.server->kind("Job"), "j", {})).ok());
    world.pass(1s);
    for (const auto& [key, record] : world.shared->records)
        EXPECT_FALSE(key.starts_with("jobs.log/") || key.starts_with("jobs.plan/")) << key;
}

TEST(Engine, ATaskUsesTheCurrentAddressOfItsNode) {
    EngineFixture world;
    world.fake.script = [](const Attempt&) { return FakeExecutor::Script{.takes = 1min}; };
    world.start();
    world.nodes("n", 1);
    world.submit("j", "tasks: [{name: a, on: n, run: {fake: {}}}, {name: b, on: n, after: a, run: {fake: {}}}]");
    ASSERT_TRUE(world.until([&] { return world.fake.order().size() == 1; }));
    ASSERT_TRUE(world
                    .wait(world.server->resources->patch(Context::background(), world.server->kind("Node"), "n-1",
                                                         json::value{{"spec", {{"address", "192.0.2.9"}}}}, {}))
                    .ok());
    ASSERT_TRUE(world.reaches("j", JobState::succeeded));
    std::map<std::string, std::string> addresses;
    for (const auto& [id, begun] : world.fake.attempts()) addresses[begun.attempt.task] = begun.attempt.targets.at(0).node.address;
    EXPECT_EQ(addresses["a@n-1"], "192.0.2.1");
    EXPECT_EQ(addresses["b@n-1"], "192.0.2.9");
}

} // namespace
} // namespace orrery::jobs
