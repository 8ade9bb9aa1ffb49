#include "core/text.h"
#include "jobs/fake_executor.h"
#include "jobs/fake_membership.h"
#include "jobs/plan.h"
#include "jobs/values.h"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::jobs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct PlanTest : ::testing::Test {
    asio::io_context loop;
    VirtualClock clock;
    FakeExecutor fake{loop.get_executor(), clock};
    FakeExecutor at_server{loop.get_executor(), clock, "local", Executor::Place::server};
    Executors executors;
    FakeMembership catalog;
    std::vector<Machine> machines;

    PlanTest() {
        executors.add(fake);
        executors.add(at_server);
        for (const auto* name : {"db-1", "db-2", "oc-1", "oc-2", "oc-3"})
            machines.push_back({name, {{"role", std::string(name).substr(0, 2)}}});
    }
    Result<Plan> plan(std::string_view yaml) {
        TRY(auto documents, parse_yaml(yaml));
        TRY(auto spec, read_job(documents.at(0).value.as_object()));
        return expand("j", std::move(spec), machines, executors, &catalog, [](const std::string& name) { return name == "known"; });
    }
    /// "path: message" of all that is wrong.
    std::vector<std::string> refusals(std::string_view yaml) {
        const auto made = plan(yaml);
        std::vector<std::string> out;
        if (made.ok()) return {"(accepted)"};
        for (const auto& field : made.error().fields) out.push_back(field.path + ": " + field.message);
        return out;
    }
};

TEST_F(PlanTest, SpreadsTasksOverMachines) {
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

TEST_F(PlanTest, NamesEverythingThatIsWrongAtOnce) {
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
                           HasSubstr("spec.tasks[4].on: fake works on machines"), HasSubstr("spec.tasks[4].with: ${node.name}"),
                           HasSubstr("spec.tasks[4].with: ${service.mysql}"), HasSubstr("there is no Secret other"),
                           HasSubstr("spec.tasks[5].on: no node has role=nobody"), HasSubstr("\"with\" has no q")));
}

TEST_F(PlanTest, FileMistakesComeWithTheirPaths) {
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
                    HasSubstr("spec.tasks[2].name: there is another")));
}

TEST_F(PlanTest, RefusesBarriersThatNothingCanOpen) {
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
    // Somebody has it already; or nobody can say, which is not the same as nobody.
    catalog.pass("mysql", "elsewhere", {"lb"});
    EXPECT_THAT(refusals("tasks: [{name: a, on: oc, wait: 'mysql:lb', run: {fake: {}}}]"), ElementsAre("(accepted)"));
    catalog.lose(true);
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

TEST_F(PlanTest, SameHostNeedsTheSameMachines) {
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
    catalog.set("mysql", {"c", "addr-c", 3306, MemberState::registered, "starting"}, {"real"});
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
    EXPECT_EQ(bound("echo $${HOME} $x ${job.name} $$"), R"("echo ${HOME} $x j $$")");
    EXPECT_EQ(bound("${secret.db.password}"), R"("${secret.db.password}")");
    EXPECT_THAT(bound("${service.nobody.first}"), HasSubstr("unavailable"));
    catalog.lose(true);
    EXPECT_THAT(bound("${service.mysql.addresses}"), HasSubstr("unavailable"));
    EXPECT_EQ(digest_of(json::value{{"a", 1}, {"b", 2}}), digest_of(json::value{{"b", 2}, {"a", 1}}));
    EXPECT_NE(digest_of(json::value{{"a", 1}}), digest_of(json::value{{"a", 2}}));
}

} // namespace
} // namespace orrery::jobs
