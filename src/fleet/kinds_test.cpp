#include "core/test_fixture.h"
#include "core/text.h"
#include "fleet/fleet_fixture.h"
#include "fleet/importer.h"
#include "fleet/kinds.h"
#include "fleet/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::fleet {

namespace {

using ::testing::HasSubstr;

} // namespace

CO_TEST(FleetKinds, ExamplesAreValidInTheirOrder) {
    FleetFixture fleet(loop.get_executor());
    EXPECT_TRUE(fleet.site.registry.check().ok());
    CO_ASSERT_OK(co_await fleet.create("Secret", "bmc-ctl-0", "values: {username: admin, password: x}"));
    for (const auto* kind : {"Machine", "Facts", "Benchmark", "Flavor", "Image", "Role"}) {
        const auto& of = fleet.site.kind(kind);
        const auto document = parse_yaml(of.example());
        CO_ASSERT_OK(document);
        auto object = resource::read_object(of, "", document->at(0).value);
        CO_ASSERT_OK(object);
        auto made = co_await fleet.site.resources->create(fleet.ctx, of, std::move(*object), {});
        CO_ASSERT_OK(made);
    }
    CO_ASSERT_OK(co_await fleet.create("Role", "compute", "flavor: control"));
    CO_ASSERT_OK(co_await fleet.create(
        "Plan", "cloud",
        "roles: [{role: control, count: 3, spread: hard}, {role: compute, count: 40}]\npins: [{machine: ctl-0, role: control}]"));
}

CO_TEST(FleetKinds, MachinesAreCheckedBeyondTheirFields) {
    FleetFixture fleet(loop.get_executor());
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: ipmi}");
        EXPECT_THAT(refused, HasSubstr("spec.bmc.address: is required with driver ipmi"));
    }
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: fake}");
        EXPECT_THAT(refused, HasSubstr("spec.macs: need one address at least"));
    }
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: ipmi, address: 'https://x'}");
        EXPECT_THAT(refused, HasSubstr("must be an IP address or a host name"));
    }
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: ipmi, address: x, options: {system_id: '1'}}");
        EXPECT_THAT(refused, HasSubstr("spec.bmc.options.system_id: is not an option of driver ipmi"));
    }
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: ipmi, address: x, password: y}");
        EXPECT_THAT(refused, HasSubstr("spec.bmc.password"));
    }
    {
        const auto refused = co_await fleet.refusal("Machine", "a", "bmc: {driver: fake}\nmacs: ['52:54:00:00:00:zz']");
        EXPECT_THAT(refused, HasSubstr("spec.macs[0]: must be a MAC address"));
    }
    auto made = co_await fleet.create(
        "Machine", "a", "bmc: {driver: redfish, address: 'https://bmc.example/redfish/v1'}\nmacs: ['52-54-00-AA-BB-CC']");
    CO_ASSERT_OK(made);
    EXPECT_EQ(made->object.spec.at("macs").at(0), "52:54:00:aa:bb:cc");
}

CO_TEST(FleetKinds, RolesCountTheirVersions) {
    FleetFixture fleet(loop.get_executor());
    CO_ASSERT_OK(co_await fleet.create("Flavor", "any", "mode: any"));
    auto made = co_await fleet.create("Role", "web", "flavor: any");
    CO_ASSERT_OK(made);
    EXPECT_EQ(made->object.status.at("version"), 1);
    const auto patch = [](std::string description) { return json::value{{"spec", json::object{{"description", description}}}}; };
    auto changed = co_await fleet.site.resources->patch(fleet.ctx, fleet.site.kind("Role"), "web", patch("front end"), {});
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->object.status.at("version"), 2);
    auto same = co_await fleet.site.resources->patch(fleet.ctx, fleet.site.kind("Role"), "web", patch("front end"), {});
    CO_ASSERT_OK(same);
    EXPECT_EQ(same->object.status.at("version"), 2);
}

CO_TEST(FleetKinds, WrongFlavorsImagesPlansAndBenchmarksAreRefused) {
    FleetFixture fleet(loop.get_executor());
    {
        const auto refused = co_await fleet.refusal("Flavor", "f", "match: \"[('a','b','c','above(4)')]\"");
        EXPECT_THAT(refused, HasSubstr("spec.match: line 1: there is no function \"above\""));
    }
    {
        const auto refused = co_await fleet.refusal("Image", "i", "url: 'https://x/y'");
        EXPECT_THAT(refused, HasSubstr("spec.checksum: is required with url"));
    }
    {
        const auto refused = co_await fleet.refusal("Image", "i", "{url: 'https://x/y', checksum: 'sha256:12'}");
        EXPECT_THAT(refused, HasSubstr("spec.checksum: must be sha256: with 64"));
    }
    {
        const auto refused = co_await fleet.refusal("Image", "i", "format: raw");
        EXPECT_THAT(refused, HasSubstr("needs url or glance"));
    }
    CO_ASSERT_OK(co_await fleet.create("Flavor", "any", "mode: any"));
    CO_ASSERT_OK(co_await fleet.create("Role", "web", "flavor: any"));
    CO_ASSERT_OK(co_await fleet.create("Machine", "m", "bmc: {driver: ipmi, address: x}"));
    {
        const auto refused = co_await fleet.refusal("Plan", "p", "roles: [{role: web}, {role: web}]");
        EXPECT_THAT(refused, HasSubstr("spec.roles[1].role: role web occurs twice"));
    }
    {
        const auto refused = co_await fleet.refusal("Plan", "p", "roles: [{role: web, count: 0}]\npins: [{machine: m, role: web}]");
        EXPECT_THAT(refused, HasSubstr("1 machines are pinned to role web, whose count is 0"));
    }
    {
        const auto refused =
            co_await fleet.refusal("Plan", "p", "roles: [{role: web}]\npins: [{machine: m, role: db}]\nexclude: [m]");
        EXPECT_THAT(refused, HasSubstr("spec.pins[0].role: role db is not among the roles of the plan"));
    }
    {
        const auto refused = co_await fleet.refusal(
            "Benchmark", "b", "{machine: m, measured_at: '2026-11-16T08:00:00Z', results: [[cpu, logical, number, '4']]}");
        EXPECT_THAT(refused, HasSubstr("spec.results: have no measurement"));
    }
    {
        const auto refused = co_await fleet.refusal("Facts", "f", "{machine: m, facts: [[cpu, logical, number]]}");
        EXPECT_THAT(refused, HasSubstr("spec.facts[0]"));
    }
}

CO_TEST(FleetKinds, AProtectedMachineIsNotRemoved) {
    FleetFixture fleet(loop.get_executor());
    CO_ASSERT_OK(
        co_await fleet.create("Machine", "m", "bmc: {driver: ipmi, address: x}\nprotected: {enabled: true, reason: database}"));
    auto removed = co_await fleet.site.resources->remove(fleet.ctx, fleet.site.kind("Machine"), "m", {});
    CO_ASSERT(!removed.ok());
    EXPECT_THAT(removed.error().text(), HasSubstr("Machine m is protected: database"));
}

namespace {
constexpr std::string_view import_text =
    R"([{"name":"ctl-0","pm_type":"ipmi","pm_addr":"10.0.0.8","pm_user":"admin","pm_password":"s3cret-word","cpu":4},
  {"name":"ctl-1","pm_type":"ipmi","pm_addr":"10.0.0.9","pm_user":"admin","pm_password":"s3cret-word"}])";
}

CO_TEST(Importer, StoresMachinesAndSealsTheirPasswords) {
    FleetFixture fleet(loop.get_executor());
    auto& resources = *fleet.site.resources;
    auto dry = co_await import_machines(fleet.ctx, resources, std::string(import_text), {.dry_run = true});
    CO_ASSERT_OK(dry);
    EXPECT_EQ(dry->at("created"), 2);
    EXPECT_FALSE(resources.exists(fleet.site.kind("Machine"), "ctl-0"));
    CO_ASSERT_OK(co_await fleet.create("Machine", "old", "bmc: {driver: ipmi, address: 10.0.0.99}"));
    auto first = co_await import_machines(fleet.ctx, resources, std::string(import_text), {});
    CO_ASSERT_OK(first);
    EXPECT_EQ(first->at("created"), 2);
    EXPECT_EQ(first->at("absent"), (json::array{"old"}));
    const auto machine = resources.get(fleet.site.kind("Machine"), "ctl-0");
    CO_ASSERT_OK(machine);
    EXPECT_EQ(machine->spec.at("bmc").at("credentials"), "bmc-ctl-0");
    EXPECT_EQ(machine->spec.at("properties").at("cpus"), 4);
    EXPECT_EQ(*resources.reveal_named("bmc-ctl-0.password"), "s3cret-word");
    for (const auto& record : fleet.site.store.range("", 10'000, "").records)
        EXPECT_EQ(record->value.find("s3cret-word"), std::string::npos) << record->key;
    auto second = co_await import_machines(fleet.ctx, resources, std::string(import_text), {});
    CO_ASSERT_OK(second);
    EXPECT_EQ(second->at("unchanged"), 2) << "an import can be repeated";
}

CO_TEST(Importer, ANewPasswordReplacesOnlyTheSecretOfItsMachine) {
    FleetFixture fleet(loop.get_executor());
    auto& resources = *fleet.site.resources;
    CO_ASSERT_OK(co_await fleet.create("Secret", "shared", "values: {username: admin, password: s3cret-word}"));
    for (const auto* name : {"ctl-0", "ctl-1"})
        CO_ASSERT_OK(co_await fleet.create(
            "Machine", name,
            fmt::format("bmc: {{driver: ipmi, address: 10.0.0.{}, credentials: shared}}", name[4] == '0' ? 8 : 9)));
    std::string text(import_text);
    auto same = co_await import_machines(fleet.ctx, resources, text, {});
    CO_ASSERT_OK(same);
    EXPECT_EQ(resources.get(fleet.site.kind("Machine"), "ctl-1")->spec.at("bmc").at("credentials"), "shared");
    text.replace(text.rfind("s3cret-word"), 11, "new-one");
    auto changed = co_await import_machines(fleet.ctx, resources, text, {});
    CO_ASSERT_OK(changed);
    EXPECT_EQ(changed->at("updated"), 1);
    EXPECT_EQ(*resources.reveal_named("shared.password"), "s3cret-word") << "another machine uses it";
    EXPECT_EQ(*resources.reveal_named("bmc-ctl-1.password"), "new-one");
}

CO_TEST(Importer, ManyMachinesAreWrittenInBatches) {
    FleetFixture fleet(loop.get_executor());
    std::string text;
    for (int i = 0; i < 150; ++i)
        text += fmt::format("ipmi,10.1.{}.{},admin,p{},52:54:00:00:{:02x}:{:02x}\n", i / 100, i % 100 + 1, i, i / 100, i % 100);
    auto done = co_await import_machines(fleet.ctx, *fleet.site.resources, text, {});
    CO_ASSERT_OK(done);
    EXPECT_EQ(done->at("created"), 150);
    EXPECT_EQ(fleet.site.store.count("machines/"), 150U);
}

} // namespace orrery::fleet
