#include "catalog/fake_membership.h"
#include "core/text.h"
#include "jobs/fake_executor.h"
#include "jobs/plan.h"
#include "jobs/task_fields.h"
#include "jobs/values.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace orrery::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PlanTest : ::testing::Test {
    asio::io_context loop;
    VirtualClock clock;
    FakeExecutor fake{loop.get_executor(), clock};
    FakeExecutor at_server{loop.get_executor(), clock, "local", Executor::TargetType::server};
    Executors executors;
    catalog::FakeMembership catalog;
    std::vector<PlanNode> machines;

    PlanTest() {
        executors.add(fake);
        executors.add(at_server);
        for (const auto* name : {"db-1", "db-2", "oc-1", "oc-2", "oc-3"})
            machines.push_back({name, {{"role", std::string(name).substr(0, 2)}}});
    }
    Result<Plan> plan(std::string_view yaml) {
        TRY(auto documents, parse_yaml(yaml));
        return plan_submission("j", documents.at(0).value.as_object(),
                               {machines, executors, &catalog, [](const std::string& name) {
                                    return name == "known" ? std::optional(std::vector<std::string>{"key", "password"})
                                                           : std::nullopt;
                                }});
    }
    /// All that is wrong, with the name of the task.
    std::vector<std::string> mistakes(std::string_view yaml) {
        const auto made = plan(yaml);
        std::vector<std::string> out;
        if (made.ok()) return {"(accepted)"};
        for (const auto& field : made.error().fields) out.push_back(field.path + ": " + field.message);
        return out;
    }
    /// "path: message" of all that is wrong.
    std::vector<std::string> refusals(std::string_view yaml) {
        const auto made = plan(yaml);
        std::vector<std::string> out;
        if (made.ok()) return {"(accepted)"};
        for (const auto& field : made.error().fields) {
            const auto named = field.message.starts_with("task ") ? field.message.find(": ") + 2 : 0;
            out.push_back(field.path + ": " + field.message.substr(named));
        }
        return out;
    }
};

TEST_F(PlanTest, ErrorsOfTaskBodiesAreReportedAtSubmission) {
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, env: {P: '${secret.known.pasword}'}, run: {fake: {}}}]"),
                ElementsAre("spec.tasks[0].env.P: task a: ${secret.known.pasword}: Secret known has no key pasword; did you mean "
                            "password?"));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, run: {fake: 'pg ${service.pg and more'}}]"),
                ElementsAre(HasSubstr("task a: ${service.pg and more is not closed: add \"}\", or write $${")));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, run: {fake: '${task.b.values.x}'}}, {name: b, on: db, run: {fake: {}}}]"),
                ElementsAre(HasSubstr("task a: ${task.b.values.x}: task b need not be over by then: add it to \"after\"")));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, run: {fake: '${task.a.values.x}'}}]"),
                ElementsAre(HasSubstr("a task cannot use its own values before it has run")));
    EXPECT_TRUE(plan("tasks: [{name: a, on: db, run: {fake: {}}, undo: {fake: '${task.a.values.x}'}}]").ok());
    EXPECT_TRUE(plan("tasks: [{name: a, on: db, run: {fake: {}}}, {name: b, after: a}, {name: c, after: b, run: {local: "
                     "'${task.a.values.x}'}}]")
                    .ok())
        << "before it over another, and what it publishes is known only when it has run";
    EXPECT_THAT(mistakes("tasks: [{name: a}, {name: b, after: a, run: {local: '${task.a.values.x}'}}]"),
                ElementsAre(HasSubstr("task a runs nothing, so it publishes no values")));
    fake.publishes = std::vector<std::string>{"version"};
    EXPECT_THAT(
        mistakes("tasks: [{name: a, on: db, run: {fake: {}}}, {name: b, after: a, run: {local: '${task.a.values.vresion}'}}]"),
        ElementsAre(HasSubstr("task a publishes no value vresion; did you mean version?")));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: [], run: {fake: {}}}]"),
                ElementsAre(HasSubstr("spec.tasks[0].on: task a: names no node")));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, rerun_on: pgsql, run: {fake: {}}}]"),
                ElementsAre(HasSubstr("spec.tasks[0].rerun_on[0]: task a: there is no service pgsql")));
    EXPECT_THAT(mistakes("tasks: [{name: a, on: db, batch: {canary: 3}, run: {fake: {}}}]"),
                ElementsAre("spec.tasks[0].batch.canary: task a: is 3, and the task has 2 nodes: at most 2 can be canaries"));
    EXPECT_THAT(mistakes("{limits: {per_role: {dbs: 1}}, tasks: [{name: a, on: db, run: {fake: {}}}]}"),
                ElementsAre("spec.limits.per_role.dbs: the plan has no node of role dbs; did you mean db?"));
}

TEST_F(PlanTest, ErrorsOfTheFileAndOfTheGraphAreReportedTogether) {
    EXPECT_THAT(mistakes(R"(
tasks:
  - {name: a, on: db, rnu: {fake: {}}, after: nobody}
  - {name: b, on: oc, timeout: never, run: {fake: {bad: 1}}}
  - {name: c, on: 7, after: [a, missing], run: {fake: {}}, provides: x}
  - {name: d, wait: x}
)"),
                ElementsAre(HasSubstr("spec.tasks[0].rnu: task a: is not known; did you mean run?"),
                            HasSubstr("spec.tasks[1].timeout: task b: must be a time"),
                            HasSubstr("spec.tasks[2].on: task c: must be a role"),
                            HasSubstr("spec.tasks[0].after[0]: task a: there is no task nobody"),
                            HasSubstr("spec.tasks[1].run.fake.bad: task b: must not be there")))
        << "and nothing that only follows from what could not be read";
}

TEST_F(PlanTest, WarnsOfNodesInMaintenance) {
    machines[1].maintenance = true;
    const auto made = plan("tasks: [{name: a, on: db, run: {fake: {}}}]");
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(made->warnings, ElementsAre("db-2 is in maintenance: its tasks wait until that ends"));
}

TEST_F(PlanTest, SpreadsTasksOverNodes) {
    auto made = plan(R"(
tasks:
  - {name: base, on: {labels: "role in-any"}, run: {fake: {}}}
)");
    EXPECT_FALSE(made.ok());
    made = plan(R"(
tasks:
  - {name: base, on: {labels: role}, run: {fake: {}}}
  - {name: mysql, on: db, after: base, same_host: true, run: {fake: {}}, provides: mysql}
  - {name: keystone, on: oc, wait: {service: mysql, count: hosts(db)}, run: {fake: {}}}
  - {name: report, after: [keystone], run: {local: {}}}
)");
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(made->tasks, 5u + 2 + 3 + 1);
    EXPECT_EQ(made->task_name(0), "base@db-1");
    EXPECT_EQ(made->task_name(made->tasks - 1), "report");
    EXPECT_EQ(made->find("mysql@db-2"), made->groups[1].first + 1);
    EXPECT_EQ(made->find("mysql@oc-1"), std::nullopt);
    EXPECT_EQ(made->groups[2].wanted.at(0), 2);
    const auto again = plan_from("j", made->spec, placement_text(*made));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(placement_text(*again), placement_text(*made));
    EXPECT_EQ(again->task_name(7), made->task_name(7));
}

TEST_F(PlanTest, ReportsAllErrorsAtOnce) {
    const auto found = refusals(R"(
tasks:
  - {name: a, on: db, after: c, run: {fake: {}}}
  - {name: b, on: db, after: a, run: {fake: {}}}
  - {name: c, on: db, after: [b, nobody], run: {fake: {bad: 1}}}
  - {name: d, on: [nowhere], run: {fkae: {}}}
  - {name: e, run: {fake: {}}, with: {x: "${node.name}", y: "${service.mysql}", z: "${secret.other.k}"}}
  - {name: f, on: nobody, run: {fake: "${with.q}"}}
)");
    EXPECT_THAT(found, ::testing::UnorderedElementsAre(
                           HasSubstr("spec.tasks[2].after[1]: there is no task nobody"),
                           HasSubstr("spec.tasks[0].after: waits for itself: a → b → c → a"),
                           HasSubstr("spec.tasks[2].run.fake.bad: must not be there"),
                           HasSubstr("spec.tasks[3].on: there is no node nowhere"),
                           HasSubstr("spec.tasks[3].run: there is no executor fkae; did you mean fake"),
                           HasSubstr("spec.tasks[4].on: fake needs nodes"), HasSubstr("spec.tasks[4].with: ${node.name}"),
                           HasSubstr("spec.tasks[4].with: ${service.mysql}"), HasSubstr("there is no Secret other"),
                           HasSubstr("spec.tasks[5].on: no node has role=nobody"), HasSubstr("\"with\" has no q")));
}

TEST_F(PlanTest, ErrorsOfTheFileHaveTheirPaths) {
    const auto found = refusals(R"(
limits: {slots: 0}
done: {services: [{service: x, count: 0}]}
tasks:
  - {name: "a b", run: {fake: {}, local: {}}, retires: 3}
  - {name: a, wait: [{service: m, state: up, deadline: 5, on_timeout: never}], batch: {serial: 0}}
  - {name: a, timeout: 0s, check: {fake: {}}}
)");
    EXPECT_THAT(found,
                ::testing::UnorderedElementsAre(
                    HasSubstr("spec.limits.slots"), HasSubstr("spec.done.services[0].count"), HasSubstr("spec.tasks[0].name"),
                    HasSubstr("spec.tasks[0].run"), HasSubstr("spec.tasks[0].retires: is not known; did you mean retries?"),
                    HasSubstr("spec.tasks[1].wait[0].state"), HasSubstr("spec.tasks[1].wait[0].deadline"),
                    HasSubstr("spec.tasks[1].wait[0].on_timeout"), HasSubstr("spec.tasks[1].batch.serial"),
                    HasSubstr("spec.tasks[1].batch"), HasSubstr("spec.tasks[2].timeout"), HasSubstr("spec.tasks[2].check: needs"),
                    HasSubstr("spec.tasks[2].name: the name a is used twice")));
}

TEST_F(PlanTest, RefusesBarriersThatCannotOpen) {
    EXPECT_THAT(refusals(R"(
tasks:
  - {name: a, on: oc, wait: mysql, run: {fake: {}}}
)"),
                ElementsAre(HasSubstr("spec.tasks[0].wait[0]: cannot open: nothing in the plan provides mysql")));
    EXPECT_THAT(refusals(R"(
tasks:
  - {name: m, on: db, run: {fake: {}}, provides: mysql}
  - {name: a, on: oc, wait: {service: mysql, count: 3}, run: {fake: {}}}
)"),
                ElementsAre(HasSubstr("it wants 3 of mysql, and 2 could be (db-1, db-2)")));
    EXPECT_THAT(refusals(R"(
tasks:
  - {name: m, on: db, run: {fake: {}}, provides: mysql, wait: keystone}
  - {name: k, on: oc, run: {fake: {}}, provides: keystone, wait: mysql}
)"),
                ElementsAre(HasSubstr("wait, in the end, for this task"), HasSubstr("wait, in the end, for this task")));
    EXPECT_THAT(refusals(R"(
tasks:
  - {name: m, on: db, run: {fake: {}}, provides: "mysql:real"}
  - {name: a, on: oc, wait: "mysql:lb", run: {fake: {}}}
)"),
                ElementsAre(HasSubstr("nothing in the plan provides mysql:lb")));
    // An instance exists already; or there is no evidence, which differs from an empty service.
    catalog.pass("mysql", "elsewhere", {"lb"});
    EXPECT_THAT(refusals("tasks: [{name: a, on: oc, wait: 'mysql:lb', run: {fake: {}}}]"), ElementsAre("(accepted)"));
    catalog.set_evidence(Error{Code::unavailable, "the catalog cannot be asked"});
    const auto made = plan("tasks: [{name: a, on: oc, wait: unheard-of, run: {fake: {}}}]");
    ASSERT_TRUE(made.ok());
    EXPECT_THAT(made->warnings, ElementsAre(HasSubstr("the catalog cannot be asked")));
}

TEST_F(PlanTest, TasksMayBeNamedByTheirKeys) {
    const auto made = plan("tasks: {base: {on: db, run: {fake: {}}}, app: {on: db, after: base, run: {fake: {}}}}");
    ASSERT_TRUE(made.ok()) << made.error().text();
    EXPECT_EQ(made->task_name(2), "app@db-1");
    EXPECT_THAT(refusals("tasks: {base: {on: db, after: nobody, run: {fake: {}}}}"),
                ElementsAre(HasSubstr("spec.tasks.base.after[0]: there is no task nobody")));
}

TEST_F(PlanTest, SameHostNeedsTheSameNodes) {
    EXPECT_THAT(refusals(R"(
tasks:
  - {name: a, on: db, run: {fake: {}}}
  - {name: b, on: oc, after: a, same_host: true, run: {fake: {}}}
)"),
                ElementsAre(HasSubstr("a does not run on oc-1 and 2 more")));
}

TEST_F(PlanTest, ValuesAreBoundSortedAndDigested) {
    auto made = plan("tasks: [{name: a, on: oc, run: {fake: {}}}]");
    ASSERT_TRUE(made.ok());
    catalog.pass("mysql", "b", {"real"});
    catalog.pass("mysql", "a", {"real"});
    catalog.set("mysql", catalog::fake_member("c", "addr-c", 3306, MemberState::registered, "starting"), {"real"});
    const json::object with{{"x", json::array{"1"}}};
    Scope scope;
    scope.job = "j";
    scope.plan = &*made;
    scope.membership = &catalog;
    scope.node = std::make_shared<Target>(Target{{.name = "oc-1", .address = "192.0.2.1"}, {{"rack", "r1"}}});
    scope.with = &with;
    const auto bound = [&](std::string_view text) {
        auto value = bind(json::value(text), scope);
        return value.ok() ? to_json_text(*value) : value.error().text();
    };
    EXPECT_EQ(bound("${service.mysql.addresses}"), R"(["addr-a","addr-b"])");
    EXPECT_EQ(bound("${service.mysql:real.registered.nodes}"), R"(["a","b","c"])");
    EXPECT_EQ(bound("${service.mysql:lb.addresses}"), "[]");
    EXPECT_EQ(bound("db=${service.mysql.endpoints};n=${service.mysql.count}"), R"("db=addr-a:80,addr-b:80;n=2")");
    EXPECT_EQ(bound("${hosts.oc.names} on ${node.labels.rack} ${node.address} of ${job.name}"),
              R"("oc-1,oc-2,oc-3 on r1 192.0.2.1 of j")");
    EXPECT_EQ(bound("${with.x}"), R"(["1"])");
    EXPECT_EQ(bound("echo $${HOME} $x ${job.name} $$"), R"("echo $${HOME} $$x j $$$$")") << "every literal dollar is doubled";
    EXPECT_EQ(with_secrets(*bind_text("echo $${HOME} $x ${job.name} $$", scope), {}), "echo ${HOME} $x j $$");
    EXPECT_EQ(*bind_text("${service.mysql.addresses}", scope), "addr-a,addr-b");
    EXPECT_EQ(bound("${secret.db.password}"), R"("${secret.db.password}")");
    EXPECT_THAT(bound("${service.nobody.first}"), HasSubstr("unavailable"));
    catalog.set_evidence(Error{Code::unavailable, "the catalog cannot be asked"});
    EXPECT_THAT(bound("${service.mysql.addresses}"), HasSubstr("unavailable"));
    EXPECT_EQ(digest_of(json::value{{"a", 1}, {"b", 2}}), digest_of(json::value{{"b", 2}, {"a", 1}}));
    EXPECT_NE(digest_of(json::value{{"a", 1}}), digest_of(json::value{{"a", 2}}));
}

TEST(TaskFields, TheTableHasExactlyTheFieldsThatAreParsed) {
    std::set<std::string> described, read;
    const auto fields = task_fields(); // outlives the loop over its children
    for (const auto& field : fields.children()) described.insert(field.name());
    for (const auto name : known_task_fields()) read.emplace(name);
    EXPECT_EQ(described, read) << "task_fields.cpp describes to OpenAPI and explain what job_file.cpp reads";
}

TEST(Values, FromOutsideAreNeverScannedForReferences) {
    catalog::FakeMembership catalog;
    catalog.set("web", catalog::fake_member("x-${secret.site-key.private_key}", "192.0.2.9", 80, MemberState::passing, ""));
    catalog.set("dollar", catalog::fake_member("$", "192.0.2.9", 80, MemberState::passing, ""));
    catalog.set("rest", catalog::fake_member("{secret.site-key.private_key}", "192.0.2.9", 80, MemberState::passing, ""));
    const json::object published{{"id", "${secret.site-key.private_key}"}, {"deep", {{"list", {"${secret.a.b}"}}}}};
    Scope scope;
    scope.membership = &catalog;
    scope.published = [&](const std::string&) { return &published; };
    const Secrets secrets{{"site-key.private_key", "CANARY"}, {"a.b", "CANARY"}};
    const auto sent = [&](std::string_view text) {
        auto bound = bind(json::value(text), scope);
        return bound.ok() ? to_json_text(json_with_secrets(*bound, secrets)) : bound.error().text();
    };
    EXPECT_EQ(sent("${service.web.nodes}"), R"(["x-${secret.site-key.private_key}"])");
    EXPECT_EQ(sent("a ${task.t.values.id} b"), R"("a ${secret.site-key.private_key} b")");
    EXPECT_EQ(sent("${task.t.values.deep}"), R"({"list":["${secret.a.b}"]})");
    EXPECT_EQ(sent("${service.dollar.nodes}${service.rest.nodes}"), R"("${secret.site-key.private_key}")")
        << "joined from two values";
    EXPECT_EQ(sent("${service.dollar.nodes}{secret.a.b}"), R"("${secret.a.b}")");
    auto with = bind(json::value(json::object{{"m", "${task.t.values.id}"}, {"p", "${secret.a.b}"}}), scope);
    ASSERT_TRUE(with.ok());
    scope.with = &with->get_object();
    EXPECT_EQ(sent("${with.m}/${with.p}"), R"("${secret.site-key.private_key}/CANARY")")
        << "what the job itself names is its secret";
}

TEST(Values, AKeyFromOutsideNamesNoSecret) {
    Scope scope;
    const json::object published{{"answer", json::object{{"${secret.a.b}", json::array{json::object{{"$${secret.a.b}", 1}}}}}}};
    scope.published = [&](const std::string&) { return &published; };
    const Secrets secrets{{"a.b", "canary"}};
    auto text = bind_text("got ${task.t.values.answer} with ${secret.a.b}", scope);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(with_secrets(*text, secrets), R"(got {"${secret.a.b}":[{"$${secret.a.b}":1}]} with canary)");
    auto with = bind(json::value(json::object{{"m", "${task.t.values.answer}"}}), scope);
    ASSERT_TRUE(with.ok());
    scope.with = &with->get_object();
    EXPECT_EQ(with_secrets(*bind_text("<${with.m}>", scope), secrets), R"(<{"${secret.a.b}":[{"$${secret.a.b}":1}]}>)");
    EXPECT_EQ(json_with_secrets(*bind(json::value("${with.m}"), scope), secrets), published.at("answer"));
}

} // namespace
} // namespace orrery::jobs
