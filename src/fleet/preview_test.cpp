#include "core/test_fixture.h"
#include "fleet/fleet_fixture.h"
#include "fleet/planner.h"
#include "fleet/preview.h"

#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::fleet {

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct PreviewSite : FleetFixture {
    using FleetFixture::FleetFixture;
    InventoryReader reader;

    /// Roles small (8 cpus) and large (32 cpus).
    Task<Unit> roles() {
        CO_TRY(std::ignore, co_await create("Flavor", "small", "cpus: 8"));
        CO_TRY(std::ignore, co_await create("Flavor", "large", "cpus: 32"));
        CO_TRY(std::ignore, co_await create("Image", "debian", "glance: debian-12"));
        CO_TRY(std::ignore, co_await create("Role", "small", "{flavor: small, image: debian}"));
        CO_TRY(std::ignore, co_await create("Role", "large", "{flavor: large, image: debian, allowed_counts: [0, 1, 3]}"));
        co_return Unit{};
    }
    Result<Preview> preview(std::string_view plan = "p") {
        return make_preview(FleetRecords::collect(*site.resources), plan, reader);
    }
    /// "a=small b=large", the machines that have a role.
    static std::string roles_of(const Preview& preview) {
        std::string out;
        for (const auto& machine : preview.machines)
            if (machine.assigned != no_role)
                out += fmt::format("{}{}={}", out.empty() ? "" : " ", machine.machine->spec().name,
                                   preview.roles[static_cast<std::size_t>(machine.assigned)].name);
        return out;
    }
};

} // namespace

CO_TEST(Preview, GivesEachRoleTheTightestMachinesAndNamesWhyOthersAreRejected) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await site.machine("a", 32));
    CO_ASSERT_OK(co_await site.machine("b", 8));
    CO_ASSERT_OK(co_await site.machine("c", 4));
    CO_ASSERT_OK(co_await site.machine("d", 64, "", "maintenance: {enabled: true, reason: new fan}"));
    CO_ASSERT_OK(co_await site.machine("e", 64));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 1}, {role: large, count: 1}]"));
    const auto preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(PreviewSite::roles_of(*preview), "a=large b=small");
    EXPECT_TRUE(preview->feasible());
    EXPECT_EQ(preview->message(), "plan p is feasible: 0 machines keep their role, 2 are added, 0 are moved, 0 are released");
    const auto body = preview->to_json();
    EXPECT_EQ(body.at("spare"), (json::array{"e"}));
    EXPECT_EQ(
        json::serialize(body.at("rejected")),
        R"([{"machines":["c"],"reasons":[{"role":"small","message":"cpus is 4; at least 8 is needed"},{"role":"large","message":"cpus is 4; at least 32 is needed"}]},)"
        R"({"machines":["d"],"reasons":[{"message":"it is in maintenance: new fan"}]}])");
    EXPECT_EQ(json::serialize(body.at("roles").at(0).at("machines")),
              R"([{"machine":"b","change":"add","cost":{"surplus":0,"scarcity":0,"benchmark":0,"total":0}}])");
    EXPECT_FALSE(site.preview("none").ok());
}

CO_TEST(Preview, ExplainsAnInfeasiblePlan) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await site.machine("a", 32));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 1, version: 7}, {role: large, count: 2}]"));
    const auto preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_THAT(preview->problems,
                ElementsAre("roles small and large need 3 machines, but only 1 machine fits any of them: a; 2 are missing",
                            "the plan was reviewed with version 7 of role small, whose version is 1 now",
                            "role large has count 2; allowed are 0, 1, 3"));
}

CO_TEST(Preview, ComparesWithWhatIsDeployed) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    for (const auto* name : {"a", "b", "c"}) CO_ASSERT_OK(co_await site.machine(name, 32));
    CO_ASSERT_OK(co_await site.machine("tight", 8));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 2}]"));
    CO_ASSERT_OK(co_await site.deploy("b", "p", "small"));
    CO_ASSERT_OK(co_await site.deploy("c", "p", "small"));
    CO_ASSERT_OK(co_await site.deploy("a", "other", "web"));
    auto preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(PreviewSite::roles_of(*preview), "b=small c=small") << "deployed machines stay although another fits better";
    EXPECT_EQ(preview->message(), "plan p: no change; 2 machines keep their role");
    EXPECT_EQ(preview->find("a")->unusable, "it is deployed with role web of plan other");
    const auto smaller = json::value{{"spec", {{"roles", {{{"role", "small"}, {"count", 1}}}}}}};
    CO_ASSERT_OK(co_await site.site.resources->patch(site.ctx, site.site.kind("Plan"), "p", smaller, {}));
    CO_ASSERT_OK(co_await site.site.resources->patch(site.ctx, site.site.kind("Machine"), "b",
                                                     json::value{{"spec", {{"retired", {{"enabled", true}}}}}}, {}));
    preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(PreviewSite::roles_of(*preview), "c=small") << "the retired one is released first";
    EXPECT_EQ(json::serialize(preview->to_json().at("released")), R"([{"machine":"b","role":"small"}])");
}

CO_TEST(Preview, AProtectedMachineStaysAndAPinOverridesTheFlavor) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await site.machine("a", 8, "", "protected: {enabled: true}"));
    CO_ASSERT_OK(co_await site.machine("b", 8));
    CO_ASSERT_OK(co_await site.machine("c", 4));
    CO_ASSERT_OK(co_await site.deploy("a", "p", "small"));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 2}]\npins: [{machine: c, role: small}]"));
    const auto preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(PreviewSite::roles_of(*preview), "a=small c=small");
    EXPECT_THAT(preview->warnings, Contains("machine c is pinned to role small although cpus is 4; at least 8 is needed"));
}

CO_TEST(Preview, TheDigestFollowsEveryInputAndNothingElse) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await site.machine("a", 32));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small}]"));
    const auto digest = [&] { return site.preview()->digest; };
    auto before = digest();
    EXPECT_EQ(before, digest());
    const auto changed = [&] { return std::exchange(before, digest()) != before; };
    CO_ASSERT_OK(co_await site.create("Facts", "a", "{machine: a, facts: [[cpu, logical, number, '16']]}"));
    EXPECT_TRUE(changed());
    CO_ASSERT_OK(co_await site.create("Flavor", "unused", "cpus: 2"));
    EXPECT_FALSE(changed());
    CO_ASSERT_OK(co_await site.deploy("a", "p", "small"));
    EXPECT_TRUE(changed());
}

CO_TEST(Preview, FactsCountMoreThanDeclarationsAndMatchSpecsReadThem) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.create("Flavor", "disks",
                                      "cpus: 8\nmatch: \"[('disk','$a','size','gt(100)'),('disk','$b','size','gt(100)')]\""));
    CO_ASSERT_OK(co_await site.create("Role", "storage", "flavor: disks"));
    for (const auto* name : {"a", "b", "c"}) CO_ASSERT_OK(co_await site.machine(name, 8));
    CO_ASSERT_OK(co_await site.create("Facts", "fa", "{machine: a, facts: [[disk, sda, size, '480']]}"));
    CO_ASSERT_OK(co_await site.create(
        "Facts", "fb", "{machine: b, facts: [[disk, sda, size, '480'], [disk, sdb, size, '480'], [cpu, logical, number, '16']]}"));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: storage}]"));
    const auto preview = site.preview();
    CO_ASSERT_OK(preview);
    EXPECT_EQ(PreviewSite::roles_of(*preview), "b=storage");
    EXPECT_EQ(preview->find("b")->fits[0].cost.surplus, 1000) << "16 cpus were found";
    EXPECT_THAT(preview->find("a")->fits[0].unmet,
                ElementsAre(HasSubstr("no further fact satisfies ('disk', '$b', 'size', 'gt(100)')")));
    EXPECT_THAT(preview->find("c")->fits[0].unmet, ElementsAre("it has no facts, which the match spec of the flavor reads"));
}

namespace {
Task<Unit> add_benchmarks(PreviewSite& site) {
    for (const auto* name : {"a", "b", "c", "d"}) {
        CO_TRY(std::ignore, co_await site.machine(name, 8));
        CO_TRY(std::ignore,
               co_await site.create("Facts", name, fmt::format("{{machine: {}, facts: [[system, product, name, blade]]}}", name)));
        const auto value = *name == 'b' ? 600 : 1000;
        CO_TRY(
            std::ignore,
            co_await site.create(
                "Benchmark", name,
                fmt::format("{{machine: {}, measured_at: '2026-11-16T08:00:00Z', results: [[cpu, logical, loops_per_sec, '{}']]}}",
                            name, value)));
    }
    co_return Unit{};
}
} // namespace

CO_TEST(Preview, ABenchmarkExcludesWarnsOrBlocksByPolicy) {
    PreviewSite site(loop.get_executor());
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await add_benchmarks(site));
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 4}]"));
    CO_ASSERT_OK(co_await site.create("Plan", "w", "roles: [{role: small, count: 3}]\nbenchmarks: {policy: warn}"));
    CO_ASSERT_OK(co_await site.create("Plan", "x", "roles: [{role: small, count: 1}]\nbenchmarks: {policy: block}"));
    const auto excluded = site.preview("p");
    EXPECT_THAT(excluded->problems, ElementsAre("role small needs 4 machines, but only 3 machines fit: a, c, d; 1 is missing"));
    EXPECT_THAT(excluded->find("b")->unassignable, HasSubstr("its benchmark excludes it: cpu is slow: "));
    EXPECT_EQ(PreviewSite::roles_of(*site.preview("w")), "a=small c=small d=small") << "the slow one is used last";
    EXPECT_THAT(site.preview("x")->problems, ElementsAre("the benchmarks of machine b block the plan"));
}

CO_TEST(Planner, ExplainsMachinesAndPlans) {
    PreviewSite site(loop.get_executor());
    Pool pool(1);
    Planner planner(*site.site.resources, pool);
    resource::Explainers explainers;
    add_explainers(explainers, planner);
    const auto why = [&](std::string_view kind, std::string name) {
        return explainers.explain(kind, {.name = std::move(name), .at = {}}, [](std::string_view) { return true; });
    };
    CO_ASSERT_OK(co_await site.roles());
    CO_ASSERT_OK(co_await add_benchmarks(site));
    EXPECT_EQ(why("Machine", "a")->at("message"), "machine a has no role: there is no plan");
    CO_ASSERT_OK(co_await site.create("Plan", "p", "roles: [{role: small, count: 1}]"));
    EXPECT_EQ(why("Machine", "a")->at("message"),
              "plan p gives machine a role small at cost 0 (surplus 0, scarcity 0, benchmark 0)");
    const auto slow = why("Machine", "b");
    CO_ASSERT_OK(slow);
    EXPECT_EQ(slow->at("message"), "machine b has no role in any plan");
    EXPECT_THAT(json::serialize(slow->at("benchmark")), HasSubstr(R"("verdict":"slow")"));
    EXPECT_THAT(json::serialize(slow->at("plans")), HasSubstr("plan p does not use machine b: its benchmark excludes it"));
    EXPECT_THAT(std::string(why("Plan", "p")->at("message").as_string()), HasSubstr("plan p is feasible"));
    EXPECT_EQ(why("Machine", "none").error().code, Code::not_found);
    auto preview = co_await planner.preview(site.ctx, "p");
    CO_ASSERT_OK(preview);
    EXPECT_TRUE(preview->at("feasible").as_bool());
    auto outliers = co_await planner.outliers(site.ctx);
    CO_ASSERT_OK(outliers);
    EXPECT_EQ(outliers->at("machines").as_array().size(), 1U);
    EXPECT_EQ(outliers->at("machines").at(0).at("machine"), "b");
    auto suggested = co_await planner.suggest_flavors(site.ctx);
    CO_ASSERT_OK(suggested);
    EXPECT_EQ(suggested->at("flavors").at(0).at("name"), "flavor-8cpu-x86-64-65536mb-400gb");
    pool.join();
}

} // namespace orrery::fleet
