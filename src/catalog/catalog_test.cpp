#include "catalog/catalog.h"
#include "catalog/fake_membership.h"
#include "core/testing.h"
#include "resource/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::catalog {

namespace {

using resource::testing::an_object;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Context tester = Context::make("tester");

struct Town {
    explicit Town(asio::any_io_executor executor)
        : house(std::move(executor), std::make_shared<store::MemoryStore::Shared>(), kinds()) {}
    static std::vector<resource::Kind> kinds() {
        std::vector<resource::Kind> out;
        out.push_back(service_kind());
        out.push_back(instance_kind());
        out.push_back(catalog_node_kind());
        return out;
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, json::object spec,
                                   std::map<std::string, std::string> labels = {}) {
        const auto& of = house.kind(kind);
        auto object = an_object(of.name(), std::move(name), std::move(spec), std::move(labels));
        std::vector<FieldError> errors;
        resource::check_fields(of.spec(), object.spec, "spec", errors);
        EXPECT_THAT(errors, IsEmpty());
        return house.resources->create(tester, of, std::move(object), {});
    }
    Task<resource::Outcome> result(std::string_view kind, std::string name, std::string check, std::string_view status,
                                   std::string output = {}) {
        auto object = house.resources->get(house.kind(kind), name);
        auto all = object->status.contains("checks") ? object->status["checks"].as_object() : json::object{};
        all[check] = json::object{{"status", status}, {"output", output}, {"since", "2026-11-16T00:00:00.000Z"}};
        object->status["checks"] = std::move(all);
        return house.resources->set_status(tester, house.kind(kind), name, object->status, {});
    }
    Task<resource::Outcome> remove(std::string_view kind, std::string name) {
        return house.resources->remove(tester, house.kind(kind), std::move(name), {});
    }
    resource::testing::House house;
};

std::vector<std::string> words(const Result<Members>& members) {
    std::vector<std::string> out;
    if (!members.ok()) return {members.error().text()};
    for (const auto& m : members->all)
        out.push_back(fmt::format("{}/{} {}:{} {}", m.node, m.id, m.address, m.port, name_of(m.state)));
    return out;
}

} // namespace

CO_TEST(Catalog, JoinsInstancesWithTheirServiceAndNode) {
    Town town(loop.get_executor());
    CO_ASSERT_OK(co_await town.create("nodes", "n2", {{"address", "192.0.2.2"}}));
    CO_ASSERT_OK(co_await town.create("instances", "web-n2", {{"service", "web"}, {"node", "n2"}, {"tags", {"real"}}}));
    Catalog catalog(town.house.store); // some was there before, some comes after
    CO_ASSERT_OK(co_await town.create("services", "web", {{"port", 80}, {"wanted", 2}}));
    CO_ASSERT_OK(co_await town.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await town.create("instances", "web-n1",
                                      {{"service", "web"}, {"node", "n1"}, {"port", 8080}, {"tags", {"real", "lb"}}}));
    EXPECT_THAT(words(catalog.members("web", "")), ElementsAre("n1/web 192.0.2.1:8080 passing", "n2/web 192.0.2.2:80 passing"));
    EXPECT_THAT(words(catalog.members("WEB", "lb")), ElementsAre("n1/web 192.0.2.1:8080 passing"));
    EXPECT_THAT(words(catalog.members("web", "other")), IsEmpty());
    EXPECT_THAT(words(catalog.members("nobody", "")), IsEmpty());
    EXPECT_THAT(catalog.services(), ElementsAre("web"));
    EXPECT_EQ(catalog.wanted("web"), 2);
    CO_ASSERT_OK(co_await town.remove("instances", "web-n1"));
    EXPECT_THAT(words(catalog.members("web", "")), ElementsAre("n2/web 192.0.2.2:80 passing"));
}

CO_TEST(Catalog, TellsRegisteredFromUsableFromPassing) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    CO_ASSERT_OK(co_await town.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await town.create("services", "db", {{"port", 3306}, {"checks", {{{"kind", "tcp"}}}}}));
    CO_ASSERT_OK(co_await town.create(
        "instances", "db-n1",
        {{"service", "db"}, {"node", "n1"}, {"checks", {{{"kind", "ttl"}, {"ttl", "30s"}, {"id", "alive"}}}}}));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    CO_ASSERT_OK(co_await town.result("instances", "db-n1", "service:db:1", "passing"));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    CO_ASSERT_OK(co_await town.result("instances", "db-n1", "alive", "warning", "slow"));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 usable"));
    EXPECT_THAT(catalog.members("db", "")->all[0].why, HasSubstr("\"Service 'db' check\" warns: slow"));
    CO_ASSERT_OK(co_await town.result("instances", "db-n1", "alive", "passing"));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));

    // A critical check of the machine takes all its services along; its Node's maintenance or configuration does not.
    CO_ASSERT_OK(
        co_await town.create("catalognodes", "n1", {{"node", "n1"}, {"checks", {{{"id", "disk"}, {"kind", "external"}}}}}));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    EXPECT_THAT(catalog.members("db", "")->all[0].why, HasSubstr("the node's check \"disk\" is critical"));
    CO_ASSERT_OK(co_await town.result("catalognodes", "n1", "disk", "passing"));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));
    json::value maintenance{{"spec", {{"maintenance", {{"enabled", true}, {"reason", "new disks"}}}}}};
    CO_ASSERT_OK(co_await town.house.resources->patch(tester, town.house.nodes(), "n1", maintenance, {}));
    EXPECT_THAT(words(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));
}

CO_TEST(Catalog, TheDigestChangesWithTheMembersAndWithNothingElse) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    for (const std::string node : {"n2", "n1"})
        CO_ASSERT_OK(co_await town.create("instances", "web-" + node,
                                          {{"service", "web"},
                                           {"node", node},
                                           {"address", "192.0.2.9"},
                                           {"tags", {"b", "a"}},
                                           {"checks", {{{"id", "c"}, {"kind", "external"}, {"initial", "warning"}}}}}));
    const auto first = catalog.members("web", "");
    const auto registered = first->digest(State::registered), usable = first->digest(State::usable);
    EXPECT_EQ(registered, usable);
    EXPECT_NE(registered, first->digest(State::passing));
    EXPECT_EQ(first->count(State::usable), 2U);
    CO_ASSERT_OK(co_await town.result("instances", "web-n1", "c", "passing", "fine"));
    const auto second = catalog.members("web", "");
    EXPECT_EQ(second->digest(State::usable), usable);
    EXPECT_GT(second->revision, first->revision);
    CO_ASSERT_OK(co_await town.result("instances", "web-n1", "c", "critical", "gone"));
    EXPECT_NE(catalog.members("web", "")->digest(State::usable), usable);
    EXPECT_EQ(catalog.members("web", "")->digest(State::registered), registered);
}

CO_TEST(Catalog, TellsWhoseMembersChanged) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    std::vector<std::string> told;
    auto handle = catalog.subscribe([&](const std::string& service) { told.push_back(service); });
    CO_ASSERT_OK(co_await town.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    EXPECT_THAT(std::exchange(told, {}), ElementsAre("web"));
    CO_ASSERT_OK(co_await town.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    EXPECT_THAT(std::exchange(told, {}), ElementsAre("web")); // it has an address now
    CO_ASSERT_OK(co_await town.create("nodes", "n2", {{"address", "192.0.2.2"}}));
    EXPECT_THAT(std::exchange(told, {}), IsEmpty());
    // Words of its status are no news.
    CO_ASSERT_OK(co_await town.house.resources->set_status(tester, town.house.kind("instances"), "a", {{"state", "passing"}}, {}));
    EXPECT_THAT(std::exchange(told, {}), IsEmpty());
    CO_ASSERT_OK(co_await town.house.resources->patch(tester, town.house.kind("instances"), "a",
                                                      json::value{{"spec", {{"service", "www"}}}}, {}));
    EXPECT_THAT(std::exchange(told, {}), ElementsAre("web", "www"));
    EXPECT_THAT(words(catalog.members("web", "")), IsEmpty());
    handle.reset();
    CO_ASSERT_OK(co_await town.remove("instances", "a"));
    EXPECT_THAT(told, IsEmpty());
}

CO_TEST(Catalog, WhatChangesNothingIsNoNews) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    CO_ASSERT_OK(co_await town.create("catalognodes", "n1", {{"node", "n1"}, {"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await town.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    const auto service = catalog.service_revision("web"), node = catalog.node_revision("n1");
    CO_ASSERT_OK(
        co_await town.house.resources->set_status(tester, town.house.kind("catalognodes"), "n1", {{"checks", json::object()}}, {}));
    CO_ASSERT_OK(co_await town.house.resources->set_status(tester, town.house.kind("instances"), "a", {{"state", "passing"}}, {}));
    EXPECT_EQ(catalog.service_revision("web"), service);
    EXPECT_EQ(catalog.node_revision("n1"), node);
}

CO_TEST(Catalog, CountsTheWantedByRole) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    CO_ASSERT_OK(co_await town.create("services", "keystone", {{"wanted", "hosts(oc) + hosts(ocdb) + 1"}}));
    EXPECT_EQ(catalog.wanted("keystone"), 1);
    std::vector<std::string> told;
    auto handle = catalog.subscribe([&](const std::string& service) { told.push_back(service); });
    CO_ASSERT_OK(co_await town.create("nodes", "oc1", {{"address", "192.0.2.1"}}, {{"role", "oc"}}));
    CO_ASSERT_OK(co_await town.create("nodes", "db1", {{"address", "192.0.2.2"}}, {{"role", "ocdb"}}));
    CO_ASSERT_OK(co_await town.create("nodes", "st1", {{"address", "192.0.2.3"}}, {{"role", "st"}}));
    EXPECT_EQ(catalog.wanted("keystone"), 3);
    EXPECT_THAT(told, ElementsAre("keystone", "keystone"));
    CO_ASSERT_OK(co_await town.remove("nodes", "oc1"));
    EXPECT_EQ(catalog.wanted("keystone"), 2);
    EXPECT_EQ(catalog.wanted("other"), std::nullopt);
}

CO_TEST(Catalog, MarksWhatItKnowsFromBeforeUntilItIsConfirmed) {
    Town town(loop.get_executor());
    Catalog catalog(town.house.store);
    CO_ASSERT_OK(co_await town.create(
        "instances", "a", {{"service", "web"}, {"node", "n1"}, {"checks", {{{"id", "c"}, {"kind", "tcp"}, {"port", 80}}}}}));
    CO_ASSERT_OK(co_await town.result("instances", "a", "c", "critical", "connection refused"));
    catalog.suspect_all();
    EXPECT_TRUE(catalog.find_resource("a")->checks.at(0).stale);
    EXPECT_THAT(catalog.members("web", "")->all[0].why, HasSubstr("as of before this server started"));
    catalog.confirm("instances/a", "c");
    EXPECT_FALSE(catalog.find_resource("a")->checks.at(0).stale);
}

CO_TEST(Instance, RefusesAnIdTwiceOnANode) {
    Town town(loop.get_executor());
    CO_ASSERT_OK(co_await town.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    auto second = co_await town.create("instances", "b", {{"service", "web"}, {"node", "n1"}});
    CO_ASSERT(!second.ok());
    EXPECT_THAT(second.error().text(), HasSubstr("invalid"));
    CO_ASSERT(second.error().fields.size() == 1);
    EXPECT_EQ(second.error().fields[0].path, "spec.id");
    CO_ASSERT_OK(co_await town.create("instances", "b", {{"service", "web"}, {"node", "n1"}, {"id", "web2"}}));
}

TEST(ResourceName, IsValidStableAndItsOwn) {
    EXPECT_EQ(resource_name("n1", "web"), "n1.web");
    EXPECT_EQ(resource_name("n1", ""), "n1");
    std::set<std::string> all;
    for (const auto& [node, id] : std::vector<std::pair<std::string, std::string>>{{"n1", "web:1"},
                                                                                   {"n1", "web/1"},
                                                                                   {"N1", "web"},
                                                                                   {"n1", "web"},
                                                                                   {"n1.web", ""},
                                                                                   {"-", "."},
                                                                                   {"_", ""},
                                                                                   {std::string(300, 'a'), "b"},
                                                                                   {"n", "Ü"}}) {
        const auto name = resource_name(node, id);
        EXPECT_TRUE(resource::is_valid_name(name)) << name;
        EXPECT_TRUE(all.insert(name).second) << name;
        EXPECT_EQ(name, resource_name(node, id));
    }
}

TEST(FakeMembership, KeepsNoEvidenceApartFromNobody) {
    FakeMembership fake;
    int told = 0;
    auto handle = fake.subscribe([&](const std::string&) { ++told; });
    fake.set("web", {{.node = "n2", .id = "web"}, {.node = "n1", .id = "web", .tags = {"lb"}, .state = State::passing}});
    EXPECT_THAT(words(fake.members("web", "lb")), ElementsAre("n1/web :0 passing"));
    fake.set_evidence(Error{Code::unavailable, "out of reach"});
    EXPECT_EQ(fake.members("web", "").error().code, Code::unavailable);
    EXPECT_EQ(told, 2);
}

} // namespace orrery::catalog
