#include "catalog/catalog.h"
#include "catalog/fake_membership.h"
#include "core/test_fixture.h"
#include "resource/resource_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::catalog {

namespace {

using resource::testing::an_object;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Context tester = Context::make("tester");

struct CatalogFixture {
    explicit CatalogFixture(asio::any_io_executor executor)
        : fixture(std::move(executor), std::make_shared<store::MemoryStore::Shared>(), kinds()) {}
    static std::vector<resource::Kind> kinds() {
        std::vector<resource::Kind> out;
        out.push_back(service_kind());
        out.push_back(instance_kind());
        out.push_back(catalog_node_kind());
        return out;
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, json::object spec,
                                   std::map<std::string, std::string> labels = {}) {
        const auto& of = fixture.kind(kind);
        auto object = an_object(of.name(), std::move(name), std::move(spec), std::move(labels));
        std::vector<FieldError> errors;
        resource::check_fields(of.spec(), object.spec, "spec", errors);
        EXPECT_THAT(errors, IsEmpty());
        if (of.name() == "Instance" && declares) {
            const auto service = std::string(object.spec.at("service").as_string());
            if (!fixture.resources->exists(fixture.kind("services"), service)) {
                CO_TRY(std::ignore, co_await create("services", service, {}));
            }
        }
        co_return co_await fixture.resources->create(tester, of, std::move(object), {});
    }
    bool declares = true; ///< the Service of an Instance without one
    Task<resource::Outcome> result(std::string_view kind, std::string name, std::string check, std::string_view status,
                                   std::string output = {}) {
        auto object = fixture.resources->get(fixture.kind(kind), name);
        auto all = object->status.contains("checks") ? object->status["checks"].as_object() : json::object{};
        all[check] = json::object{{"status", status}, {"output", output}, {"since", "2026-11-16T00:00:00.000Z"}};
        object->status["checks"] = std::move(all);
        return fixture.resources->set_status(tester, fixture.kind(kind), name, object->status, {});
    }
    Task<resource::Outcome> remove(std::string_view kind, std::string name) {
        return fixture.resources->remove(tester, fixture.kind(kind), std::move(name), {});
    }
    resource::testing::ResourceFixture fixture;
};

std::vector<std::string> member_texts(const Result<Members>& members) {
    std::vector<std::string> out;
    if (!members.ok()) return {members.error().text()};
    for (const auto& m : members->all)
        out.push_back(fmt::format("{}/{} {}:{} {}", m.node, m.id, m.address, m.port, name_of(m.state)));
    return out;
}

} // namespace

CO_TEST(Catalog, JoinsInstancesWithTheirServiceAndNode) {
    CatalogFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create("nodes", "n2", {{"address", "192.0.2.2"}}));
    CO_ASSERT_OK(co_await fixture.create("services", "web", {{"port", 80}, {"wanted", 2}}));
    CO_ASSERT_OK(co_await fixture.create("instances", "web-n2", {{"service", "web"}, {"node", "n2"}, {"tags", {"real"}}}));
    Catalog catalog(fixture.fixture.store); // some was there before, some comes after
    CO_ASSERT_OK(co_await fixture.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await fixture.create("instances", "web-n1",
                                         {{"service", "web"}, {"node", "n1"}, {"port", 8080}, {"tags", {"real", "lb"}}}));
    EXPECT_THAT(member_texts(catalog.members("web", "")),
                ElementsAre("n1/web 192.0.2.1:8080 passing", "n2/web 192.0.2.2:80 passing"));
    EXPECT_THAT(member_texts(catalog.members("WEB", "lb")), ElementsAre("n1/web 192.0.2.1:8080 passing"));
    EXPECT_THAT(member_texts(catalog.members("web", "other")), IsEmpty());
    EXPECT_THAT(member_texts(catalog.members("nobody", "")), IsEmpty());
    EXPECT_THAT(catalog.services(), ElementsAre("web"));
    EXPECT_EQ(catalog.wanted("web"), 2);
    CO_ASSERT_OK(co_await fixture.remove("instances", "web-n1"));
    EXPECT_THAT(member_texts(catalog.members("web", "")), ElementsAre("n2/web 192.0.2.2:80 passing"));
}

CO_TEST(Catalog, DistinguishesRegisteredUsableAndPassingInstances) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await fixture.create("services", "db", {{"port", 3306}, {"checks", {{{"kind", "tcp"}}}}}));
    CO_ASSERT_OK(co_await fixture.create(
        "instances", "db-n1",
        {{"service", "db"}, {"node", "n1"}, {"checks", {{{"kind", "ttl"}, {"ttl", "30s"}, {"id", "alive"}}}}}));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    CO_ASSERT_OK(co_await fixture.result("instances", "db-n1", "service:db:1", "passing"));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    CO_ASSERT_OK(co_await fixture.result("instances", "db-n1", "alive", "warning", "slow"));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 usable"));
    EXPECT_THAT(catalog.members("db", "")->all[0].why, HasSubstr("\"Service 'db' check\" warns: slow"));
    CO_ASSERT_OK(co_await fixture.result("instances", "db-n1", "alive", "passing"));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));

    // A critical check of the node applies to all its services; its Node's maintenance or configuration does not.
    CO_ASSERT_OK(
        co_await fixture.create("catalognodes", "n1", {{"node", "n1"}, {"checks", {{{"id", "disk"}, {"kind", "external"}}}}}));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 registered"));
    EXPECT_THAT(catalog.members("db", "")->all[0].why, HasSubstr("the node's check \"disk\" is critical"));
    CO_ASSERT_OK(co_await fixture.result("catalognodes", "n1", "disk", "passing"));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));
    json::value maintenance{{"spec", {{"maintenance", {{"enabled", true}, {"reason", "new disks"}}}}}};
    CO_ASSERT_OK(co_await fixture.fixture.resources->patch(tester, fixture.fixture.nodes(), "n1", maintenance, {}));
    EXPECT_THAT(member_texts(catalog.members("db", "")), ElementsAre("n1/db 192.0.2.1:3306 passing"));
}

CO_TEST(Catalog, TheDigestChangesOnlyWithTheMembers) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    for (const std::string node : {"n2", "n1"})
        CO_ASSERT_OK(co_await fixture.create("instances", "web-" + node,
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
    CO_ASSERT_OK(co_await fixture.result("instances", "web-n1", "c", "passing", "fine"));
    const auto second = catalog.members("web", "");
    EXPECT_EQ(second->digest(State::usable), usable);
    EXPECT_GT(second->revision, first->revision);
    CO_ASSERT_OK(co_await fixture.result("instances", "web-n1", "c", "critical", "gone"));
    EXPECT_NE(catalog.members("web", "")->digest(State::usable), usable);
    EXPECT_EQ(catalog.members("web", "")->digest(State::registered), registered);
}

CO_TEST(Catalog, ReportsTheServiceWhoseMembersChanged) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create("services", "web", {}));
    CO_ASSERT_OK(co_await fixture.create("services", "www", {}));
    std::vector<std::string> reported;
    auto handle = catalog.subscribe([&](const std::string& service) { reported.push_back(service); });
    CO_ASSERT_OK(co_await fixture.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    EXPECT_THAT(std::exchange(reported, {}), ElementsAre("web"));
    CO_ASSERT_OK(co_await fixture.create("nodes", "n1", {{"address", "192.0.2.1"}}));
    EXPECT_THAT(std::exchange(reported, {}), ElementsAre("web")); // it has an address now
    CO_ASSERT_OK(co_await fixture.create("nodes", "n2", {{"address", "192.0.2.2"}}));
    EXPECT_THAT(std::exchange(reported, {}), IsEmpty());
    // Words of its status are no news.
    CO_ASSERT_OK(
        co_await fixture.fixture.resources->set_status(tester, fixture.fixture.kind("instances"), "a", {{"state", "passing"}}, {}));
    EXPECT_THAT(std::exchange(reported, {}), IsEmpty());
    CO_ASSERT_OK(co_await fixture.fixture.resources->patch(tester, fixture.fixture.kind("instances"), "a",
                                                           json::value{{"spec", {{"service", "www"}}}}, {}));
    EXPECT_THAT(std::exchange(reported, {}), ElementsAre("web", "www"));
    EXPECT_THAT(member_texts(catalog.members("web", "")), IsEmpty());
    handle.reset();
    CO_ASSERT_OK(co_await fixture.remove("instances", "a"));
    EXPECT_THAT(reported, IsEmpty());
}

CO_TEST(Catalog, AWriteWithoutAnEffectIsNotReported) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create("catalognodes", "n1", {{"node", "n1"}, {"address", "192.0.2.1"}}));
    CO_ASSERT_OK(co_await fixture.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    const auto service = catalog.service_revision("web"), node = catalog.node_revision("n1");
    CO_ASSERT_OK(co_await fixture.fixture.resources->set_status(tester, fixture.fixture.kind("catalognodes"), "n1",
                                                                {{"checks", json::object()}}, {}));
    CO_ASSERT_OK(
        co_await fixture.fixture.resources->set_status(tester, fixture.fixture.kind("instances"), "a", {{"state", "passing"}}, {}));
    EXPECT_EQ(catalog.service_revision("web"), service);
    EXPECT_EQ(catalog.node_revision("n1"), node);
}

CO_TEST(Catalog, CountsWantedInstancesByRole) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create("services", "keystone", {{"wanted", "hosts(oc) + hosts(ocdb) + 1"}}));
    EXPECT_EQ(catalog.wanted("keystone"), 1);
    std::vector<std::string> reported;
    auto handle = catalog.subscribe([&](const std::string& service) { reported.push_back(service); });
    CO_ASSERT_OK(co_await fixture.create("nodes", "oc1", {{"address", "192.0.2.1"}}, {{"role", "oc"}}));
    CO_ASSERT_OK(co_await fixture.create("nodes", "db1", {{"address", "192.0.2.2"}}, {{"role", "ocdb"}}));
    CO_ASSERT_OK(co_await fixture.create("nodes", "st1", {{"address", "192.0.2.3"}}, {{"role", "st"}}));
    EXPECT_EQ(catalog.wanted("keystone"), 3);
    EXPECT_THAT(reported, ElementsAre("keystone", "keystone"));
    CO_ASSERT_OK(co_await fixture.remove("nodes", "oc1"));
    EXPECT_EQ(catalog.wanted("keystone"), 2);
    EXPECT_EQ(catalog.wanted("other"), std::nullopt);
}

CO_TEST(Catalog, MarksStoredResultsAsUnconfirmedUntilTheFirstProbe) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create(
        "instances", "a", {{"service", "web"}, {"node", "n1"}, {"checks", {{{"id", "c"}, {"kind", "tcp"}, {"port", 80}}}}}));
    CO_ASSERT_OK(co_await fixture.result("instances", "a", "c", "critical", "connection refused"));
    catalog.suspect_all();
    EXPECT_TRUE(catalog.find_resource("a")->checks.at(0).stale);
    EXPECT_THAT(catalog.members("web", "")->all[0].why, HasSubstr("as of before this server started"));
    catalog.confirm("instances/a", "c");
    EXPECT_FALSE(catalog.find_resource("a")->checks.at(0).stale);
}

CO_TEST(Instance, AnInstanceWithoutItsServiceIsRefusedAndIsNotAMember) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    fixture.declares = false;
    auto made = co_await fixture.create("instances", "a", {{"service", "web"}, {"node", "n1"}});
    CO_ASSERT(!made.ok());
    EXPECT_EQ(made.error().fields.at(0).path, "spec.service");
    EXPECT_EQ(made.error().fields.at(0).message, "refers to Service \"web\", which does not exist");
    // A client of Consul defines the service by registering itself. It is shown as Consul would, and no job counts it.
    CO_ASSERT_OK(co_await fixture.fixture.resources->create(tester, fixture.fixture.kind("instances"),
                                                            an_object("Instance", "a", {{"service", "web"}, {"node", "n1"}}),
                                                            {.self_registration = true}));
    EXPECT_THAT(member_texts(catalog.members("web", "")), IsEmpty());
    EXPECT_EQ(catalog.find_resource("a")->state, State::passing);
    EXPECT_EQ(catalog.find_resource("a")->why_not_a_member(), "Service web does not exist");
    CO_ASSERT_OK(co_await fixture.create("services", "web", {{"port", 80}}));
    EXPECT_EQ(catalog.find_resource("a")->why_not_a_member(), "");
    EXPECT_THAT(member_texts(catalog.members("web", "")), ElementsAre("n1/web :80 passing"));
    EXPECT_EQ(catalog.declared("web")->port, 80);
    EXPECT_FALSE(catalog.declared("web")->checked);
}

CO_TEST(Catalog, AnInstanceWithoutAValidNodeNameOrAddressIsNotAMember) {
    CatalogFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create("services", "web", {{"port", 80}}));
    // As Consul's view stores it, and as an older server stored it.
    const auto& kind = fixture.fixture.kind("instances");
    const auto registers = [&](std::string name, std::string node, std::string address) {
        return fixture.fixture.resources->create(
            tester, kind, an_object("Instance", name, {{"service", "web"}, {"node", node}, {"id", name}, {"address", address}}),
            {.self_registration = true});
    };
    CO_ASSERT_OK(co_await registers("good", "n1.example.org", "192.0.2.1"));
    CO_ASSERT_OK(co_await registers("v6", "N_2", "2001:db8::1"));
    CO_ASSERT_OK(co_await registers("bad-node", "x;touch /tmp/owned", "192.0.2.2"));
    CO_ASSERT_OK(co_await registers("bad-secret", "x-${secret.a.b}", "192.0.2.3"));
    store::Transaction older; // such an address is refused today
    older.put("instances/bad-address", resource::to_stored(an_object(
                                           "Instance", "bad-address",
                                           {{"service", "web"}, {"node", "n3"}, {"id", "bad-address"}, {"address", "$(reboot)"}})));
    CO_ASSERT_OK(co_await fixture.fixture.store.apply(tester, std::move(older)));
    CO_ASSERT_OK(co_await registers("bad-dash", "-oProxyCommand=x", "192.0.2.4"));
    Catalog catalog(fixture.fixture.store);
    EXPECT_THAT(member_texts(catalog.members("web", "")),
                ElementsAre("N_2/v6 2001:db8::1:80 passing", "n1.example.org/good 192.0.2.1:80 passing"));
    const auto members = catalog.members("web", "");
    CO_ASSERT_OK(members);
    EXPECT_EQ(members->invalid_count, 4u);
    EXPECT_THAT(members->invalid_text(), HasSubstr("4 instances are not members: its "));
    const auto view = catalog.find_resource("bad-address");
    CO_ASSERT(view != nullptr);
    EXPECT_EQ(view->invalid, "its address \"$(reboot)\" is neither an IP address nor a valid host name");
    EXPECT_EQ(catalog.instances("web").size(), 6u) << "Consul's clients see all of them";
}

TEST(Members, KeepALimitedNumberOfInvalidEntriesAndTruncateThem) {
    Members members;
    Member hostile;
    hostile.node = std::string(100'000, 'x') + "\x1b[2J";
    for (int i = 0; i < 1000; ++i) members.add_invalid(hostile, member_problem(hostile.node, ""));
    EXPECT_EQ(members.invalid_count, 1000u);
    EXPECT_EQ(members.invalid.size(), Members::max_invalid);
    EXPECT_LT(members.invalid.front().node.size() + members.invalid.front().why.size(), 400u);
    EXPECT_THAT(member_problem("a\x1b[2J\nb", ""), HasSubstr("a?[2J?b")) << "nothing that a terminal obeys";
}

TEST(MemberProblem, DistinguishesHostNamesFromOtherText) {
    for (const auto* node : {"n1", "N1.example.org", "n_1", "10.0.0.1", "::1", "node-1.", "10-0-0-1"})
        EXPECT_EQ(member_problem(node, ""), "") << node;
    for (const auto* node : {"", "-n", "n-", "a b", "a\nb", "${secret.a.b}", "$(id)", "`id`", "a;b", "a'b", "a\"b", "a/b", "{{x}}",
                             "a%b", "\xc3\xa9", "\xff"})
        EXPECT_NE(member_problem(node, ""), "") << node;
    EXPECT_NE(member_problem(std::string(254, 'a'), ""), "");
    for (const auto* address : {"192.0.2.1", "2001:db8::1", "db.example.org", "db_1", ""})
        EXPECT_EQ(member_problem("n", address), "") << address;
    for (const auto* address :
         {"192.0.2.300", "[::1]", "a:80", "-a", "a b", "$(id)", ".", "fe80::1%$(id)", "fe80::1%{{x}}", "::1%"})
        EXPECT_NE(member_problem("n", address), "") << address;
}

CO_TEST(Instance, RefusesANodeNameThatIsNotAHostName) {
    CatalogFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create("services", "web", {{"port", 80}}));
    const auto refused = co_await fixture.create("instances", "i", {{"service", "web"}, {"node", "x;reboot"}});
    CO_ASSERT(!refused.ok());
    EXPECT_EQ(refused.error().fields.at(0).path, "spec.node");
    EXPECT_EQ(refused.error().fields.at(0).message, "must be a host name or an IP address, got \"x;reboot\"");
    const auto also_refused = co_await fixture.create("catalognodes", "c", {{"node", "x reboot"}});
    EXPECT_FALSE(also_refused.ok());
    // One that is stored can still be changed and removed.
    const auto& kind = fixture.fixture.kind("instances");
    json::object spec{{"service", "web"}, {"node", "x;reboot"}};
    CO_ASSERT_OK(
        co_await fixture.fixture.resources->create(tester, kind, an_object("Instance", "old", spec), {.self_registration = true}));
    spec["maintenance"] = true;
    CO_ASSERT_OK(co_await fixture.fixture.resources->replace(tester, kind, an_object("Instance", "old", spec), {}));
    CO_ASSERT_OK(co_await fixture.remove("instances", "old"));
}

CO_TEST(Instance, APlannedInstanceIsRegisteredUntilItsFirstCheckResult) {
    CatalogFixture fixture(loop.get_executor());
    Catalog catalog(fixture.fixture.store);
    CO_ASSERT_OK(co_await fixture.create("instances", "a", {{"service", "web"}, {"node", "n1"}, {"port", 80}, {"planned", true}}));
    EXPECT_THAT(member_texts(catalog.members("web", "")), ElementsAre("n1/web :80 registered"));
    const json::value started{{"spec", {{"planned", nullptr}}}};
    CO_ASSERT_OK(co_await fixture.fixture.resources->patch(tester, fixture.fixture.kind("instances"), "a", started, {}));
    EXPECT_THAT(member_texts(catalog.members("web", "")), ElementsAre("n1/web :80 passing"));
}

CO_TEST(Instance, RefusesADuplicateIdOnANode) {
    CatalogFixture fixture(loop.get_executor());
    CO_ASSERT_OK(co_await fixture.create("instances", "a", {{"service", "web"}, {"node", "n1"}}));
    auto second = co_await fixture.create("instances", "b", {{"service", "web"}, {"node", "n1"}});
    CO_ASSERT(!second.ok());
    EXPECT_THAT(second.error().text(), HasSubstr("invalid"));
    CO_ASSERT(second.error().fields.size() == 1);
    EXPECT_EQ(second.error().fields[0].path, "spec.id");
    CO_ASSERT_OK(co_await fixture.create("instances", "b", {{"service", "web"}, {"node", "n1"}, {"id", "web2"}}));
}

TEST(ResourceName, IsValidStableAndUnique) {
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

TEST(FakeMembership, DistinguishesNoEvidenceFromAnEmptyService) {
    FakeMembership fake;
    int reported = 0;
    auto handle = fake.subscribe([&](const std::string&) { ++reported; });
    fake.set_all("web", {{.node = "n2", .id = "web"}, {.node = "n1", .id = "web", .tags = {"lb"}, .state = State::passing}});
    EXPECT_THAT(member_texts(fake.members("web", "lb")), ElementsAre("n1/web :0 passing"));
    fake.set_evidence(Error{Code::unavailable, "unreachable"});
    EXPECT_EQ(fake.members("web", "").error().code, Code::unavailable);
    EXPECT_EQ(reported, 2);
}

} // namespace orrery::catalog
