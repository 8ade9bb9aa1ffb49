#include "jobs/engine_fixture.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <gmock/gmock.h>

/// Barriers may never open wrongly, and those that cannot open are named when the job is submitted.
namespace orrery::jobs {
namespace {

using namespace testing;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct Barriers : ::testing::Test, EngineFixture {
    Barriers() {
        start();
        fake.script = [](const Attempt&) {
            FakeExecutor::Script script;
            script.takes = 10s;
            return script;
        };
    }
    Member member(const std::string& node, MemberState state) { return catalog::fake_member(node, "addr-" + node, 80, state); }
    std::vector<std::string> mistakes(const std::string& yaml) {
        const auto made = apply("Job", "wrong", yaml);
        std::vector<std::string> out;
        if (made.ok()) return {"(accepted)"};
        for (const auto& field : made.error().fields) out.push_back(field.path + ": " + field.message);
        return out;
    }
    std::vector<std::string> warnings(const std::string& yaml) {
        const auto made = server->engine->plan("p", parse_yaml(yaml)->at(0).value.as_object());
        return made.ok() ? made->warnings : std::vector<std::string>{made.error().text()};
    }
    std::vector<std::string> instances() {
        std::vector<std::string> out;
        for (const auto& record : server->store.range("instances/", 100, "").records) {
            const auto object = resource::from_stored(*record);
            out.push_back(object->name + " " + to_json_text(object->spec));
        }
        return out;
    }
    std::string deletion(const std::string& kind, const std::string& name) {
        auto gone = wait(server->resources->remove(Context::make("tester"), server->kind(kind), name, {}));
        return gone.ok() ? "deleted" : gone.error().message;
    }
};

constexpr auto waits_for_two = R"(
tasks:
  - {name: use, wait: {service: pg, count: 2}, run: {local: {}}}
)";

TEST_F(Barriers, AServiceOrANodeThatAnUnfinishedJobUsesIsNotDeleted) {
    nodes("db", 2);
    ASSERT_TRUE(apply("Service", "pg", "{port: 5432}").ok());
    ASSERT_TRUE(apply("Service", "other", "{port: 1}").ok());
    catalog.declare("pg");
    submit("up", R"(
tasks:
  - {name: start, on: [db-1], wait: {service: pg, count: 2}, run: {fake: {}}}
  - {name: use, on: [db-1], with: {list: "${service.other.addresses}"}, after: start, run: {fake: {}}}
)");
    EXPECT_THAT(deletion("Service", "pg"), HasSubstr("Service pg is referred to by Job/up (task start waits for it)"));
    EXPECT_THAT(deletion("Service", "other"), HasSubstr("Job/up (task use takes values from it)"));
    EXPECT_THAT(deletion("Node", "db-1"), HasSubstr("Job/up (task start runs on it)"));
    EXPECT_EQ(deletion("Node", "db-2"), "deleted");
    ASSERT_TRUE(command("up", {.action = JobCommand::Action::cancel}).ok());
    ASSERT_TRUE(until([&] { return is_terminal(state("up")); }));
    pass(200s); // the status of the Job is brought up to date
    EXPECT_EQ(deletion("Service", "pg"), "deleted");
    EXPECT_EQ(deletion("Node", "db-1"), "deleted");
}

TEST_F(Barriers, StateFromBeforeARestartOpensNoBarrier) {
    auto one = member("db-1", MemberState::passing), two = member("db-2", MemberState::passing);
    one.evidence = two.evidence = Evidence::awaited;
    catalog.set("pg", one);
    catalog.set("pg", two);
    submit("up", waits_for_two);
    pass(1min);
    EXPECT_EQ(record("up", "use").state, TaskState::waiting);
    one.evidence = Evidence::unconfirmed; // the first cycle of checks has ended without a result for it
    catalog.set("pg", one);
    two.evidence = Evidence::confirmed;
    catalog.set("pg", two);
    pass(1min);
    EXPECT_EQ(record("up", "use").state, TaskState::waiting);
    EXPECT_THAT(to_json_text(why(*job("up"), 0, catalog)), HasSubstr("not confirmed since this server started"));
    one.evidence = Evidence::confirmed;
    catalog.set("pg", one);
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min));
}

TEST_F(Barriers, ValuesWaitForTheFirstRoundOfChecks) {
    auto one = member("db-1", MemberState::passing);
    one.evidence = Evidence::awaited;
    catalog.set("pg", one);
    submit("up", R"(
tasks:
  - {name: use, with: {list: "${service.pg.endpoints}"}, run: {local: {}}}
)");
    pass(1min);
    EXPECT_EQ(record("up", "use").state, TaskState::waiting);
    EXPECT_THAT(waits_for(*job("up"), 0), HasSubstr("the first check of pg on db-1 since this server started is not over"));
    one.evidence = Evidence::unconfirmed;
    catalog.set("pg", one);
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min));
}

TEST_F(Barriers, AnEndpointWithoutAPortIsNotAValue) {
    auto one = member("db-1", MemberState::passing);
    one.port = 0;
    catalog.set("pg", one);
    submit("up", R"(
tasks:
  - {name: use, with: {list: "${service.pg.endpoints}"}, run: {local: {}}}
)");
    pass(1min);
    EXPECT_THAT(waits_for(*job("up"), 0), HasSubstr("pg on db-1 has no port"));
}

TEST_F(Barriers, TimeWithoutAServerDoesNotCountAgainstADeadline) {
    catalog.set("pg", member("db-1", MemberState::registered));
    catalog.declare("pg");
    submit("up", R"(
tasks:
  - {name: use, wait: {service: pg, deadline: 10m}, run: {local: {}}}
)");
    pass(6min);
    stop();
    clock.advance(2h);
    start();
    pass(3min);
    EXPECT_EQ(record("up", "use").state, TaskState::waiting) << "nine of its ten minutes have passed";
    pass(2min);
    EXPECT_EQ(state("up"), JobState::failed);
}

TEST_F(Barriers, ARerunWaitsForItsOwnBarrier) {
    for (const auto* node : {"db-1", "db-2", "db-3"}) catalog.pass("pg", node);
    submit("pool", R"(
tasks:
  - {name: pool, wait: {service: pg, count: 2, deadline: 1m}, rerun_on: pg, with: {members: "${service.pg.addresses}"}, run: {local: {}}}
)");
    ASSERT_TRUE(reaches("pool", JobState::converged, 10min));
    const auto runs = record("pool", "pool").attempt;
    for (const auto* node : {"db-1", "db-2", "db-3"}) catalog.set("pg", member(node, MemberState::registered));
    pass(10min); // its deadline is for the first run
    EXPECT_EQ(record("pool", "pool").attempt, runs) << "it never runs with an empty list";
    EXPECT_EQ(state("pool"), JobState::running);
    EXPECT_THAT(waits_for(*job("pool"), 0), HasSubstr("2 of pg passing (0 of 2 seen)"));
    catalog.pass("pg", "db-1");
    pass(1min);
    EXPECT_EQ(record("pool", "pool").attempt, runs);
    catalog.pass("pg", "db-2");
    ASSERT_TRUE(reaches("pool", JobState::converged, 10min));
    EXPECT_EQ(record("pool", "pool").attempt, runs + 1);
    EXPECT_EQ(to_json_text(record("pool", "pool").detail->inputs), R"({"members":["addr-db-1","addr-db-2"]})");
    // All fail and all come back: nothing is different, nothing runs.
    for (const auto* node : {"db-1", "db-2"}) catalog.set("pg", member(node, MemberState::registered));
    pass(1min);
    for (const auto* node : {"db-1", "db-2"}) catalog.pass("pg", node);
    ASSERT_TRUE(reaches("pool", JobState::converged, 10min));
    EXPECT_EQ(record("pool", "pool").attempt, runs + 1);
}

TEST_F(Barriers, WithoutACheckAServicePassesWhenItsProviderHasSucceeded) {
    nodes("db", 1);
    catalog.declare("x", {.port = 80, .checked = false, .wanted = {}});
    auto unchecked = member("db-1", MemberState::passing);
    unchecked.checked = false;
    catalog.set("x", unchecked);
    const std::string text = R"(
tasks:
  - {name: start, on: db, provides: x, run: {fake: {}}}
  - {name: use, wait: x, run: {local: {}}}
)";
    EXPECT_THAT(warnings(text),
                Contains("service x has no check: an instance counts as passing when start has succeeded on its node"));
    submit("up", text);
    pass(1s);
    EXPECT_EQ(record("up", "use").state, TaskState::waiting);
    EXPECT_THAT(to_json_text(why(*job("up"), 1, catalog)), HasSubstr("no check observes it, and start@db-1 has not succeeded"));
    ASSERT_TRUE(reaches("up", JobState::succeeded, 1min));
    EXPECT_GE(record("up", "use").started, record("up", "start@db-1").ended);
}

TEST_F(Barriers, ProvidesRegistersTheInstances) {
    nodes("db", 2);
    ASSERT_TRUE(apply("Service", "pg", "{port: 5432}").ok());
    catalog.declare("pg", {.port = 5432, .checked = false, .wanted = {}});
    catalog.declared_only = true;
    submit("up", R"(
tasks:
  - {name: start, on: db, provides: "pg:real", run: {fake: {}}}
  - {name: fails, after: start, run: {local: {}}}
)");
    pass(1s);
    EXPECT_THAT(
        instances(),
        UnorderedElementsAre(
            HasSubstr(
                R"(db-1.pg-real {"service":"pg","node":"db-1","id":"pg-real","tags":["real"],"planned":true,"provided_by":"up"})"),
            HasSubstr("db-2.pg-real")));
    ASSERT_TRUE(reaches("up", JobState::succeeded, 1min));
    pass(1s);
    EXPECT_THAT(instances(), UnorderedElementsAre(Not(HasSubstr("planned")), Not(HasSubstr("planned"))));
    EXPECT_THAT(deletion("Service", "pg"), HasSubstr("Instance/db-1.pg-real (spec.service)"));
    EXPECT_THAT(deletion("Node", "db-1"), HasSubstr("Instance/db-1.pg-real (spec.node)"));
    // A second job finds them registered; a job that is cancelled before it started removes its registrations.
    nodes("web", 1);
    submit("again", R"(
tasks:
  - {name: gate, approve: true, run: {local: {}}}
  - {name: start, on: {nodes: [db-1, web-1]}, after: gate, provides: "pg:real", run: {fake: {}}}
)");
    pass(1s);
    EXPECT_EQ(instances().size(), 3u);
    ASSERT_TRUE(command("again", {.action = JobCommand::Action::cancel}).ok());
    ASSERT_TRUE(until([&] { return instances().size() == 2u; }, 1min));
}

TEST_F(Barriers, ATaskWithoutNodesThatProvidesAServiceRegistersNothingAndTheSubmissionWarns) {
    catalog.declared_only = true;
    catalog.declare("srv");
    const std::string text = R"(
tasks:
  - {name: start, provides: srv, run: {local: {}}}
  - {name: use, wait: srv, run: {local: {}}}
)";
    const std::string warning = "start provides srv and runs on no node, so it registers no instance: others must register it";
    EXPECT_THAT(warnings(text), Contains(warning));
    const auto made = apply("Job", "up", text);
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_THAT(to_json_text(made->once), HasSubstr(warning));
    pass(1min);
    EXPECT_THAT(to_json_text(why(*job("up"), 1, catalog)), HasSubstr("start (succeeded); no instance of it is registered"));
    catalog.pass("srv", "elsewhere");
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min));
}

TEST_F(Barriers, ABarrierOnAnUndeclaredServiceIsRefused) {
    nodes("db", 1);
    catalog.declared_only = true;
    EXPECT_THAT(
        mistakes(R"(
tasks:
  - {name: start, on: db, provides: pg, run: {fake: {}}}
  - {name: use, wait: pg, run: {local: {}}}
  - {name: far, wait: nobody, run: {local: {}}}
)"),
        ElementsAre(HasSubstr("spec.tasks[1].wait[0]: task use: cannot open: there is no Service pg"),
                    HasSubstr("spec.tasks[2].wait[0]: task far: cannot open: nothing in the plan provides nobody, and there is no "
                              "Service nobody")));
}

TEST_F(Barriers, ACycleOfBarriersOverRegisteredInstancesIsNamed) {
    nodes("db", 2);
    for (const auto* service : {"pg", "rabbit"}) catalog.declare(service);
    catalog.set("pg", member("db-1", MemberState::registered));
    catalog.set("rabbit", member("db-2", MemberState::registered));
    const std::string text = R"(
tasks:
  - {name: a, on: [db-1], wait: rabbit, provides: pg, run: {fake: {}}}
  - {name: b, on: [db-2], wait: pg, provides: rabbit, run: {fake: {}}}
)";
    EXPECT_THAT(mistakes(text), Contains(HasSubstr("a waits for rabbit, which b provides; b waits for pg, which a provides")));
    catalog.pass("pg", "db-1"); // it runs already
    EXPECT_THAT(mistakes(text), ElementsAre("(accepted)"));
}

TEST_F(Barriers, AServiceThatOthersRegisterLaterCanBeWaitedFor) {
    catalog.declared_only = true;
    catalog.declare("pg", {.port = 80, .checked = true, .wanted = 2});
    EXPECT_THAT(warnings(waits_for_two),
                ElementsAre("2 of pg passing waits for others: the plan and the catalog have 0 of pg so far"));
    submit("up", waits_for_two);
    pass(1min);
    EXPECT_THAT(to_json_text(why(*job("up"), 0, catalog)),
                HasSubstr("no task of this job provides it: it is an external service, and no instance of it is registered"));
    catalog.pass("pg", "other-1");
    catalog.pass("pg", "other-2");
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min));
}

TEST_F(Barriers, ADnsNameCanBeWaitedFor) {
    EXPECT_THAT(mistakes(R"(
tasks:
  - {name: a, wait: {dns: "no name", type: MX, count: all, state: passing}, run: {local: {}}}
)"),
                UnorderedElementsAre(HasSubstr("spec.tasks[0].wait.dns: task a: must be a DNS name"),
                                     HasSubstr("spec.tasks[0].wait.type: task a: must be A, AAAA or SRV"),
                                     HasSubstr("spec.tasks[0].wait.count: task a: must be a number"),
                                     HasSubstr("spec.tasks[0].wait.state: task a: is not known")));
    submit("up", R"(
tasks:
  - {name: use, wait: {dns: db.example.org., type: SRV, count: 2}, run: {local: {}}}
)");
    pass(1min);
    EXPECT_THAT(waits_for(*job("up"), 0), HasSubstr("2 SRV records of db.example.org (0 of 2 seen)"));
    catalog.pass("dns:db.example.org", "one", {"SRV"});
    catalog.pass("dns:db.example.org", "two", {"SRV"});
    EXPECT_TRUE(reaches("up", JobState::succeeded, 1min));
}

TEST_F(Barriers, SlotsAreSharedRoundRobinAmongJobs) {
    stop();
    options.slots = 2;
    start();
    nodes("n", 1);
    std::string many = "limits: {per_host: 1000}\ntasks:\n";
    for (int i = 0; i < 20; ++i) many += fmt::format("  - {{name: t{}, on: n, run: {{fake: {{}}}}}}\n", i);
    submit("a-first-by-name", many);
    pass(1s);
    submit("b", "limits: {per_host: 1000}\ntasks: [{name: t, on: n, run: {fake: {}}}]");
    submit("c", "limits: {per_host: 1000}\ntasks: [{name: t, on: n, run: {fake: {}}}]");
    EXPECT_TRUE(reaches("b", JobState::succeeded, 1min)) << "it does not wait for the twenty tasks before it";
    EXPECT_TRUE(reaches("c", JobState::succeeded, 1min));
    EXPECT_EQ(state("a-first-by-name"), JobState::running);
    EXPECT_TRUE(reaches("a-first-by-name", JobState::succeeded));
}

} // namespace
} // namespace orrery::jobs
