#include "fleet/import/import_plan.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::fleet {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view two_nodes = R"({"nodes":[
  {"name":"ctl-0","pm_type":"pxe_ipmitool","pm_addr":"10.0.0.8","pm_user":"admin","pm_password":"s3cret","mac":["FA:16:3E:2A:0E:36"],
   "cpu":"2","memory":4096,"disk":"40","arch":"x86_64","capabilities":"profile:control,boot_option:local","ipmi_bridging":"single"},
  {"pm_type":"redfish","pm_addr":"https://10.0.0.9/redfish/v1","pm_user":"admin","pm_password":"other","pm_system_id":"/redfish/v1/Systems/1"}]})";

std::string import_errors(const Error& error) {
    std::string out = error.message + "\n";
    for (const auto& field : error.fields) out += field.path + ": " + field.message + "\n";
    return out;
}
std::string parse_failure(std::string_view text) {
    const auto parsed = parse_import(text);
    return parsed.ok() ? "" : import_errors(parsed.error());
}

std::vector<InventoryEntry> imported(const ImportPlan& plan) {
    std::vector<InventoryEntry> out;
    for (const auto& action : plan.actions) out.push_back({action.machine, action.spec});
    return out;
}

std::vector<ImportAction::Op> ops(const ImportPlan& plan) {
    std::vector<ImportAction::Op> out;
    for (const auto& action : plan.actions) out.push_back(action.op);
    return out;
}

using Op = ImportAction::Op;

} // namespace

TEST(Import, ReadsBothFormsOfInstackenv) {
    const auto parsed = parse_import(two_nodes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    const auto& first = parsed->at(0);
    EXPECT_EQ(first.name, "ctl-0");
    EXPECT_EQ(first.bmc.driver, "ipmi");
    EXPECT_EQ(first.bmc.identity(), "10.0.0.8:623");
    EXPECT_THAT(first.macs, ElementsAre("fa:16:3e:2a:0e:36"));
    EXPECT_EQ(first.properties, (HardwareProperties{.cpus = 2, .memory_mb = 4096, .local_gb = 40, .cpu_arch = "x86_64"}));
    EXPECT_EQ(first.capabilities.at("boot_option"), "local");
    EXPECT_EQ(first.bmc_options.at("bridging"), "single");
    EXPECT_EQ(parsed->at(1).bmc_options.at("system_id"), "/redfish/v1/Systems/1");
    const auto bare = parse_import(R"([{"pm_type":"fake","mac":"52-54-00-00-00-01"}])");
    ASSERT_TRUE(bare.ok()) << bare.error().text();
    EXPECT_THAT(bare->at(0).macs, ElementsAre("52:54:00:00:00:01"));
}

TEST(Import, ReadsCsv) {
    const auto parsed = parse_import(
        "# rack 12\npxe_ipmitool,10.0.0.8,admin,\"se,cr\"\"et\",fa:16:3e:2a:0e:36 fa:16:3e:2a:0e:37\r\n\nidrac,10.0.0.9,root,x\n");
    ASSERT_TRUE(parsed.ok()) << parsed.error().text();
    ASSERT_EQ(parsed->size(), 2U);
    EXPECT_EQ(parsed->at(0).password, "se,cr\"et");
    EXPECT_EQ(parsed->at(0).macs.size(), 2U);
    EXPECT_EQ(parsed->at(1).position, "line 4");
    EXPECT_EQ(parsed->at(1).bmc.driver, "idrac");
}

TEST(Import, ReportsErrorsInTheOrderOfTheFile) {
    std::string nodes;
    for (int i = 0; i < 11; ++i) nodes += R"({"pm_type":"ipmi","pm_addr":"10.0.0.)" + std::to_string(i + 1) + R"("},)";
    const auto parsed = parse_import("{\"nodes\":[" + nodes + R"({"pm_type":"pxe_ssh"}]})");
    ASSERT_FALSE(parsed.ok());
    std::vector<std::string> positions;
    for (const auto& field : parsed.error().fields)
        if (positions.empty() || positions.back() != field.path) positions.push_back(field.path);
    EXPECT_THAT(positions, ElementsAre("nodes[0]", "nodes[1]", "nodes[2]", "nodes[3]", "nodes[4]", "nodes[5]", "nodes[6]",
                                       "nodes[7]", "nodes[8]", "nodes[9]", "nodes[10]", "nodes[11]"));
}

TEST(Import, ReportsAllErrorsAtOnceWithTheirPositionsAndWithoutPasswords) {
    const auto text = parse_failure(R"({"nodes":[
      {"pm_type":"pxe_ipmitool","pm_addr":"10.0.0.8","pm_user":"admin","pm_password":"hunter2hunter2","mac":["nope"],"cpu":"many"},
      {"pm_type":"pxe_ssh","pm_addr":"10.0.0.9","pm_user":"a","pm_password":"b"},
      {"pm_type":"pxe_ipmitool","pm_addr":"10.0.0.8","pm_user":"","pm_password":["hunter2hunter2"],"pm_adr":"x"},
      {"pm_type":"fake"}, 7,
      {"name":"Bad Name","pm_type":"ipmi","pm_addr":"not a host","pm_user":"u","pm_password":"p","capabilities":"profile"}]})");
    EXPECT_THAT(text, HasSubstr("nodes[0]: \"nope\" is not a MAC address"));
    EXPECT_THAT(text, HasSubstr("nodes[0]: cpu must be a whole number"));
    EXPECT_THAT(text, HasSubstr("nodes[1]: pm_type pxe_ssh is served by no driver any more"));
    EXPECT_THAT(text, HasSubstr("nodes[2]: BMC 10.0.0.8:623 is also that of nodes[0]"));
    EXPECT_THAT(text, HasSubstr("nodes[2]: pm_user is missing"));
    EXPECT_THAT(text, HasSubstr("nodes[2]: pm_password must be a text"));
    EXPECT_THAT(text, HasSubstr("field \"pm_adr\" is not known; did you mean pm_addr?"));
    EXPECT_THAT(text, HasSubstr("nodes[3]: mac is missing: driver fake has no BMC"));
    EXPECT_THAT(text, HasSubstr("nodes[4]: must be an object"));
    EXPECT_THAT(text, HasSubstr("nodes[5]: name \"Bad Name\" must have"));
    EXPECT_THAT(text, HasSubstr("nodes[5]: pm_addr \"not a host\" is neither"));
    EXPECT_THAT(text, HasSubstr("nodes[5]: capabilities: \"profile\" is not a capability"));
    EXPECT_THAT(text, Not(HasSubstr("hunter2")));
    EXPECT_THAT(parse_failure("pxe_ipmitool,10.0.0.8\nidrac,10.0.0.9,root,\"x\n"), HasSubstr("line 1: has 2 fields"));
    EXPECT_THAT(parse_failure("pxe_ipmitool,10.0.0.8\nidrac,10.0.0.9,root,\"x\n"), HasSubstr("line 2: a quote is not closed"));
    EXPECT_THAT(parse_failure(" \n"), HasSubstr("is empty"));
    EXPECT_THAT(parse_failure(R"({"machines":[]})"), HasSubstr("has no list of nodes"));
}

TEST(Import, IsIdempotent) {
    const auto entries = parse_import(two_nodes);
    const auto first = plan_import(*entries, {});
    ASSERT_TRUE(first.ok()) << first.error().text();
    EXPECT_THAT(ops(*first), ElementsAre(Op::create, Op::create));
    EXPECT_EQ(first->actions[1].machine, "machine-10.0.0.9");
    EXPECT_EQ(first->actions[0].secret, "bmc-ctl-0");
    const auto second = plan_import(*entries, imported(*first));
    ASSERT_TRUE(second.ok());
    EXPECT_THAT(ops(*second), ElementsAre(Op::unchanged, Op::unchanged));
}

TEST(Import, ChangesWhatTheFileGivesAndKeepsTheRest) {
    auto inventory = imported(*plan_import(*parse_import(two_nodes), {}));
    inventory[0].spec["failure_domain"] = "rack-1";
    inventory[0].spec["capabilities"].as_object()["gpu"] = "yes";
    inventory[0].name = "renamed";
    inventory.push_back({"old", json::parse(R"({"bmc":{"driver":"ipmi","address":"10.0.0.99"}})").as_object()});
    const auto plan = plan_import(
        *parse_import(
            R"([{"name":"ctl-0","pm_type":"ipmi","pm_addr":"10.0.0.8","pm_user":"admin","pm_password":"s3cret","memory":8192,"capabilities":"profile:compute"}])"),
        inventory);
    ASSERT_TRUE(plan.ok()) << plan.error().text();
    const auto& action = plan->actions.at(0);
    EXPECT_EQ(action.op, Op::update);
    EXPECT_EQ(action.machine, "renamed") << "the BMC identifies the machine";
    EXPECT_EQ(action.spec.at("failure_domain"), "rack-1");
    EXPECT_EQ(action.spec.at("capabilities"), json::parse(R"({"profile":"compute","boot_option":"local","gpu":"yes"})"));
    EXPECT_EQ(action.spec.at("properties").at("memory_mb"), 8192);
    EXPECT_EQ(action.spec.at("properties").at("cpus"), 2);
    EXPECT_THAT(plan->absent, ElementsAre("machine-10.0.0.9", "old"));
}

TEST(Import, RefusesANameOfAnotherMachine) {
    const auto inventory = imported(*plan_import(*parse_import(two_nodes), {}));
    const auto plan = plan_import(
        *parse_import(R"([{"name":"ctl-0","pm_type":"ipmi","pm_addr":"10.9.9.9","pm_user":"a","pm_password":"b"}])"), inventory);
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(import_errors(plan.error()), HasSubstr("[0]: Machine ctl-0 exists with another BMC"));
}

TEST(Import, EveryTruncationIsHandled) {
    for (std::size_t size = 0; size < two_nodes.size(); ++size) EXPECT_FALSE(parse_import(two_nodes.substr(0, size)).ok()) << size;
}

} // namespace orrery::fleet
