#include "catalog/kinds.h"
#include "core/testing.h"
#include "core/text.h"
#include "gslb/kinds.h"
#include "gslb/model.h"
#include "gslb/source.h"
#include "resource/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using namespace std::chrono_literals;
using resource::testing::an_object;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Context anna = Context::make("anna");

struct Site {
    explicit Site(asio::any_io_executor executor)
        : house(std::move(executor), std::make_shared<store::MemoryStore::Shared>(), kinds()) {}
    static std::vector<resource::Kind> kinds() {
        auto out = gslb::all_kinds();
        out.push_back(catalog::service_kind());
        out.push_back(catalog::instance_kind());
        return out;
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, std::string yaml, const Context& who = anna) {
        const auto& of = house.kind(kind);
        auto documents = parse_yaml(yaml);
        auto object =
            resource::read_object(of, name, json::object{{"kind", of.name()}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        co_return co_await house.resources->create(who, of, std::move(*object), {});
    }
    resource::testing::House house;
};

std::string complaints(const Result<resource::Outcome>& result) {
    if (result.ok()) return "";
    std::string out;
    for (const auto& field : result.error().fields) out += field.path + ": " + field.message + "\n";
    return out.empty() ? result.error().text() : out;
}

} // namespace

CO_TEST(GslbKinds, ExamplesAreValidInTheirOrder) {
    Site site(loop.get_executor());
    EXPECT_TRUE(site.house.registry.check().ok());
    for (const auto* kind : {"Monitor", "Pool", "Member", "LoadBalancer"}) {
        const auto& of = site.house.kind(kind);
        if (of.name() == "LoadBalancer") {
            CO_ASSERT_OK(co_await site.create("Pool", "us", "site: nyc"));
        }
        auto document = parse_yaml(of.example());
        CO_ASSERT(document.ok());
        auto object = resource::read_object(of, "", document->at(0).value);
        CO_ASSERT_OK(object);
        CO_ASSERT_OK(co_await site.house.resources->create(anna, of, *object, {}));
    }
    const auto made = site.house.resources->get(site.house.kind("LoadBalancer"), "www");
    const auto rule = Rule::from("www", made->spec);
    EXPECT_EQ(rule.zone, "gslb.example");
    EXPECT_EQ(rule.answers, Answers::round_robin);
    EXPECT_TRUE(rule.pools.at(1).passive);
    EXPECT_EQ(rule.ttl_min, 5U);
    EXPECT_EQ(rule.failback_after, 2min);
    EXPECT_EQ(rule.failover_within, Duration(60s));
}

CO_TEST(GslbKinds, ALoadBalancerSaysWhatIsWrongWithIt) {
    Site site(loop.get_executor());
    CO_ASSERT_OK(co_await site.create("Pool", "eu", "{}"));
    CO_ASSERT_OK(co_await site.create("LoadBalancer", "www", "{fqdn: WWW.Gslb.Test., pools: [{pool: eu}]}"));
    struct Row {
        const char *spec, *complaint;
    };
    const std::vector<Row> rows{
        {"{fqdn: www.gslb.test, pools: [{pool: eu}]}", "spec.fqdn: LoadBalancer www answers for it already"},
        {"{fqdn: a..b, pools: [{pool: eu}]}", "spec.fqdn: must be a domain name"},
        {"{fqdn: a.b.test, zone: c.test, pools: [{pool: eu}]}", "spec.zone: a.b.test is not in it"},
        {"{fqdn: a.test, pools: [{pool: eu}, {pool: eu}]}", "spec.pools[1].pool: is listed twice"},
        {"{fqdn: a.test, pools: [{pool: eu, tier: passive}]}", "spec.pools: one at least must be active"},
        {"{fqdn: a.test, pools: [{pool: eu, weight: 3}]}", "spec.pools[0].weight: means nothing unless spec.steering is spread"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology}", "spec.topology: steering by topology needs it"},
        {"{fqdn: a.test, pools: [{pool: eu}], topology: [{prefixes: [10.0.0.0/8], pools: [eu]}]}",
         "spec.topology: means nothing unless"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology, topology: [{prefixes: [10.0.0.1/8], pools: [us]}]}",
         "spec.topology[0].prefixes[0]: \"10.0.0.1/8\" has bits set beyond its length of 8"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology, topology: [{prefixes: [10.0.0.0/8], pools: [us]}]}",
         "spec.topology[0].pools[0]: us is not among spec.pools"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo}", "spec.geo: steering by geo needs it"},
        {"{fqdn: a.test, pools: [{pool: eu}], geo: {nearest: true}}", "spec.geo: means nothing unless spec.steering is geo"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {}}", "spec.geo: needs rules, or nearest, or both"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{pools: [eu]}]}}",
         "spec.geo.rules[0]: needs continent, country or asn"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{country: nl, pools: [eu]}]}}",
         "spec.geo.rules[0].country: must be two capital letters"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{continent: EU, subdivision: NH, pools: [eu]}]}}",
         "spec.geo.rules[0].subdivision: means nothing without a country"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{continent: XX, pools: [eu]}]}}",
         "spec.geo.rules[0].continent"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{asn: 5, pools: [us]}]}}",
         "spec.geo.rules[0].pools[0]: us is not among spec.pools"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{asn: 5, pools: [eu]}, {asn: 5, pools: [eu]}]}}",
         "spec.geo.rules[1].name: is used twice"},
        {"{fqdn: a.test, pools: [{pool: eu}], answers: subset}", "spec.max_answers: a subset needs it"},
        {"{fqdn: a.test, pools: [{pool: eu}], ttl: {max: 5s, min: 10s}}", "spec.ttl.min: must be at most spec.ttl.max, 5s"},
        {"{fqdn: a.test, pools: [{pool: eu}], failback: {mode: delayed}}", "spec.failback.after: a delayed failback needs it"},
        {"{fqdn: a.test, pools: [{pool: eu}], all_down: {answer: fallback}}", "spec.all_down: a fallback is either"},
        {"{fqdn: gslb.test, zone: gslb.test, pools: [{pool: eu}], all_down: {answer: fallback, alias: b.test}}",
         "spec.all_down.alias: the name is the zone's own"},
        {"{fqdn: a.test, pools: [{pool: nowhere}]}", "nowhere"},
    };
    for (const auto& row : rows) {
        const auto result = co_await site.create("LoadBalancer", "other", row.spec);
        EXPECT_THAT(complaints(result), HasSubstr(row.complaint)) << row.spec;
    }
}

CO_TEST(GslbKinds, MembersPoolsAndMonitorsSayWhatIsWrongWithThem) {
    Site site(loop.get_executor());
    CO_ASSERT_OK(co_await site.create("Pool", "eu", "{}"));
    struct Row {
        const char *kind, *spec, *complaint;
    };
    const std::vector<Row> rows{
        {"Member", "{pool: eu}", "spec: needs exactly one of"},
        {"Member", "{pool: eu, addresses: [192.0.2.1, 192.0.2.2]}",
         "spec.addresses[1]: 192.0.2.2 is the second address of its family"},
        {"Member", "{pool: eu, addresses: [192.0.2.1], weight: 2000000}", "spec.weight"},
        {"Member", "{pool: eu, addresses: [192.0.2.1], override: {state: sideways}}", "spec.override.state"},
        {"Pool", "{min_healthy: half}", "spec.min_healthy: must be a share such as 50%"},
        {"Pool", "{min_healthy: 101%}", "spec.min_healthy"},
        {"Pool", "{load: {low: 90, high: 80}}", "spec.load.high: must be above spec.load.low"},
        {"Pool", "{guard: {most: many}}", "spec.guard.most"},
        {"Pool", "{monitors: [nothing]}", "nothing"},
        {"Monitor", "{kind: tcp, path: /}", "spec.path: means nothing to a look of kind tcp"},
        {"Monitor", "{kind: http, path: x}", "spec.path: must begin with /"},
        {"Monitor", "{kind: http, interval: 2s, timeout: 3s}", "spec.timeout: must be at most the interval, 2s"},
        {"Monitor", "{kind: http, expect: most}", "spec.expect"},
        {"Monitor", "{kind: http, interval: 2s, fast: 3s}", "spec.fast: must be at most the interval, 2s"},
        {"Monitor", "{kind: http, interval: 5s, slow: 3s}", "spec.slow: must be at least the interval, 5s"},
        {"Monitor", "{kind: http, interval: 9s, fast: 2s, timeout: 3s}", "spec.timeout: must be at most spec.fast, 2s"},
        {"Pool", "{location: {latitude: 91, longitude: 0}}", "spec.location.latitude"},
        {"Pool", "{location: {latitude: 9}}", "spec.location.longitude"},
    };
    for (const auto& row : rows) {
        const auto result = co_await site.create(row.kind, "one", row.spec);
        EXPECT_THAT(complaints(result), HasSubstr(row.complaint)) << row.spec;
    }
}

CO_TEST(GslbKinds, AnOverrideIsSignedByWhoeverChangedIt) {
    Site site(loop.get_executor());
    CO_ASSERT_OK(co_await site.create("Pool", "eu", "{}"));
    CO_ASSERT_OK(co_await site.create("Member", "m", "{pool: eu, addresses: [192.0.2.1], override: {state: drain, by: somebody}}"));
    const auto& members = site.house.kind("Member");
    const auto by = [&] { return MemberSpec::from("m", site.house.resources->get(members, "m")->spec).override_.by; };
    EXPECT_EQ(by(), "anna");
    const auto bert = Context::make("bert");
    json::value weight = json::object{{"spec", json::object{{"weight", 3}}}};
    CO_ASSERT_OK(co_await site.house.resources->patch(bert, members, "m", weight, {}));
    EXPECT_EQ(by(), "anna") << "he changed something else";
    json::value reason = json::object{{"spec", json::object{{"override", json::object{{"state", "down"}}}}}};
    CO_ASSERT_OK(co_await site.house.resources->patch(bert, members, "m", reason, {}));
    EXPECT_EQ(by(), "bert");
    // What is in use stays.
    const auto removed = co_await site.house.resources->remove(anna, site.house.kind("Pool"), "eu", {});
    EXPECT_FALSE(removed.ok());
}

} // namespace orrery::gslb
