#include "catalog/kinds.h"
#include "core/test_fixture.h"
#include "core/text.h"
#include "gslb/model/kinds.h"
#include "gslb/model/specs.h"
#include "gslb/observe/health_source.h"
#include "resource/resource_fixture.h"

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
        : base(std::move(executor), std::make_shared<store::MemoryStore::Shared>(), kinds()) {}
    static std::vector<resource::Kind> kinds() {
        auto out = gslb::all_kinds();
        out.push_back(catalog::service_kind());
        out.push_back(catalog::instance_kind());
        return out;
    }
    Task<resource::Outcome> create(std::string_view kind, std::string name, std::string yaml, const Context& who = anna) {
        const auto& of = base.kind(kind);
        auto documents = parse_yaml(yaml);
        auto object =
            resource::read_object(of, name, json::object{{"kind", of.name()}, {"name", name}, {"spec", documents->at(0).value}});
        if (!object.ok()) co_return std::move(object).error();
        co_return co_await base.resources->create(who, of, std::move(*object), {});
    }
    resource::testing::ResourceFixture base;
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
    EXPECT_TRUE(site.base.registry.check().ok());
    for (const auto* kind : {"Monitor", "Pool", "Member", "LoadBalancer"}) {
        const auto& of = site.base.kind(kind);
        if (of.name() == "LoadBalancer") {
            CO_ASSERT_OK(co_await site.create("Pool", "us", "site: nyc"));
        }
        auto document = parse_yaml(of.example());
        CO_ASSERT(document.ok());
        auto object = resource::read_object(of, "", document->at(0).value);
        CO_ASSERT_OK(object);
        CO_ASSERT_OK(co_await site.base.resources->create(anna, of, *object, {}));
    }
    const auto made = site.base.resources->get(site.base.kind("LoadBalancer"), "www");
    const auto rule = LoadBalancerSpec::from("www", made->spec);
    EXPECT_EQ(rule.zone, "gslb.example");
    EXPECT_EQ(rule.answers, Answers::round_robin);
    EXPECT_TRUE(rule.pools.at(1).passive);
    EXPECT_EQ(rule.ttl_min, 5U);
    EXPECT_EQ(rule.failback_after, 2min);
    EXPECT_EQ(rule.failover_within, Duration(60s));
    const auto pool = PoolSpec::from("eu", site.base.resources->get(site.base.kind("Pool"), "eu")->spec);
    EXPECT_FALSE(pool.guard.given) << "the pool names none";
    EXPECT_FALSE(pool.hold_down) << "members return unless the pool says otherwise";
    EXPECT_FALSE(pool.load);
}

CO_TEST(GslbKinds, ErrorsOfALoadBalancerNameTheField) {
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
        {"{fqdn: a.test, pools: [{pool: eu, tier: passive}]}", "spec.pools: at least one pool must be active"},
        {"{fqdn: a.test, pools: [{pool: eu, weight: 3}]}", "spec.pools[0].weight: applies only if spec.steering is spread"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology}", "spec.topology: is required by steering topology"},
        {"{fqdn: a.test, pools: [{pool: eu}], topology: [{prefixes: [10.0.0.0/8], pools: [eu]}]}",
         "spec.topology: applies only if"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology, topology: [{prefixes: [10.0.0.1/8], pools: [us]}]}",
         "spec.topology[0].prefixes[0]: \"10.0.0.1/8\" has bits set beyond its length of 8"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: topology, topology: [{prefixes: [10.0.0.0/8], pools: [us]}]}",
         "spec.topology[0].pools[0]: us is not among spec.pools"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo}", "spec.geo: is required by steering geo"},
        {"{fqdn: a.test, pools: [{pool: eu}], geo: {nearest: true}}", "spec.geo: applies only if spec.steering is geo"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {}}", "spec.geo: needs rules, or nearest, or both"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{pools: [eu]}]}}",
         "spec.geo.rules[0]: needs continent, country or asn"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{country: nl, pools: [eu]}]}}",
         "spec.geo.rules[0].country: must be two capital letters"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{continent: EU, subdivision: NH, pools: [eu]}]}}",
         "spec.geo.rules[0].subdivision: applies only with a country"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{continent: XX, pools: [eu]}]}}",
         "spec.geo.rules[0].continent"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{asn: 5, pools: [us]}]}}",
         "spec.geo.rules[0].pools[0]: us is not among spec.pools"},
        {"{fqdn: a.test, pools: [{pool: eu}], steering: geo, geo: {rules: [{asn: 5, pools: [eu]}, {asn: 5, pools: [eu]}]}}",
         "spec.geo.rules[1].name: is used twice"},
        {"{fqdn: a.test, pools: [{pool: eu}], answers: subset}", "spec.max_answers: is required by subset"},
        {"{fqdn: a.test, pools: [{pool: eu}], ttl: {max: 5s, min: 10s}}", "spec.ttl.min: must be at most spec.ttl.max, 5s"},
        {"{fqdn: a.test, pools: [{pool: eu}], failback: {mode: delayed}}",
         "spec.failback.after: is required by a delayed failback"},
        {"{fqdn: a.test, pools: [{pool: eu}], all_down: {answer: fallback}}", "spec.all_down: a fallback needs either"},
        {"{fqdn: gslb.test, zone: gslb.test, pools: [{pool: eu}], all_down: {answer: fallback, alias: b.test}}",
         "spec.all_down.alias: the name is the zone apex"},
        {"{fqdn: a.test, pools: [{pool: nowhere}]}", "nowhere"},
    };
    for (const auto& row : rows) {
        const auto result = co_await site.create("LoadBalancer", "other", row.spec);
        EXPECT_THAT(complaints(result), HasSubstr(row.complaint)) << row.spec;
    }
}

CO_TEST(GslbKinds, ErrorsOfMembersPoolsAndMonitorsNameTheField) {
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
        {"Member", "{pool: eu, addresses: [0.0.0.0]}", "spec.addresses[0]: 0.0.0.0 is the unspecified address"},
        {"Member", "{pool: eu, addresses: [255.255.255.255]}", "spec.addresses[0]: 255.255.255.255 is the broadcast address"},
        {"Member", "{pool: eu, addresses: [224.0.0.1]}", "is a multicast address"},
        {"Member", "{pool: eu, addresses: ['::']}", "is the unspecified address"},
        {"Member", "{pool: eu, addresses: ['ff02::1']}", "is a multicast address"},
        {"Member", "{pool: eu, addresses: ['::ffff:10.0.0.1']}", "is an IPv4 address mapped into IPv6"},
        {"Member", "{pool: eu, addresses: ['fe80::1']}", "is a link-local address"},
        {"Member", "{pool: eu, addresses: ['fe80::1%eth0']}", "spec.addresses[0]"},
        {"Member", "{pool: eu, addresses: [192.0.2.1], override: {state: drain, until: 2001-01-01T00:00:00Z}}",
         "spec.override.until: has passed"},
        {"Pool", "{override: {state: drain, until: 2001-01-01T00:00:00Z}}", "spec.override.until: has passed"},
        {"Pool", "{guard: {max_ejections: 0%}}", "spec.guard.max_ejections: must be at least 1"},
        {"Pool", "{guard: {max_ejections: 0}}", "spec.guard.max_ejections: must be at least 1"},
        {"Pool", "{hold_down: {changes: 3, hold: 1m, max_hold: 30s}}", "spec.hold_down.max_hold: must be at least"},
        {"Monitor", "{kind: https, ca: nothing}", "spec.ca: ca must hold certificates in PEM"},
        {"Monitor", "{kind: http, ca: nothing}", "spec.ca: is not a field of a probe of kind http"},
        {"Monitor", "{kind: plugin, command: [/bin/true]}", "spec.command: must begin with the name of a program"},
        {"Zone", "{origin: a.test, nameservers: [192.0.2.1]}", "spec.nameservers[0]: must be a host name"},
        {"Zone", "{origin: a.test, nameservers: [ns.b.test], contact: hostmaster.a.test}", "spec.contact: must be a mail address"},
        {"Publisher", "{driver: rfc2136, server: 192.0.2.1, zones: [a.test], check_servers: [bad host]}", "spec.check_servers[0]"},
        {"Publisher", "{driver: rfc2136, server: 192.0.2.1, zones: [a.test], check_servers: [ns1]}",
         "spec.check_servers[0]: must be an address"},
        {"Pool", "{guard: {max_ejections: many}}", "spec.guard.max_ejections"},
        {"Pool", "{monitors: [nothing]}", "nothing"},
        {"Monitor", "{kind: tcp, path: /}", "spec.path: is not a field of a probe of kind tcp"},
        {"Monitor", "{kind: http, path: x}", "spec.path: must begin with /"},
        {"Monitor", "{kind: http, interval: 2s, timeout: 3s}", "spec.timeout: must be at most the interval, 2s"},
        {"Monitor", "{kind: http, expect: most}", "spec.expect"},
        {"Monitor", "{kind: http, interval: 2s, fast_interval: 3s}", "spec.fast_interval: must be at most the interval, 2s"},
        {"Monitor", "{kind: http, interval: 5s, down_interval: 3s}", "spec.down_interval: must be at least the interval, 5s"},
        {"Monitor", "{kind: http, interval: 9s, fast_interval: 2s, timeout: 3s}",
         "spec.timeout: must be at most spec.fast_interval, 2s"},
        {"Pool", "{location: {latitude: 91, longitude: 0}}", "spec.location.latitude"},
        {"Pool", "{location: {latitude: 9}}", "spec.location.longitude"},
    };
    for (const auto& row : rows) {
        const auto result = co_await site.create(row.kind, "one", row.spec);
        EXPECT_THAT(complaints(result), HasSubstr(row.complaint)) << row.spec;
    }
}

CO_TEST(GslbKinds, AnOverrideRecordsTheUserWhoSetIt) {
    Site site(loop.get_executor());
    CO_ASSERT_OK(co_await site.create("Pool", "eu", "{}"));
    CO_ASSERT_OK(co_await site.create("Member", "m", "{pool: eu, addresses: [192.0.2.1], override: {state: drain, by: somebody}}"));
    const auto& members = site.base.kind("Member");
    const auto by = [&] { return MemberSpec::from("m", site.base.resources->get(members, "m")->spec).override_.by; };
    EXPECT_EQ(by(), "anna");
    const auto bert = Context::make("bert");
    json::value weight = json::object{{"spec", json::object{{"weight", 3}}}};
    CO_ASSERT_OK(co_await site.base.resources->patch(bert, members, "m", weight, {}));
    EXPECT_EQ(by(), "anna") << "he changed something else";
    json::value reason = json::object{{"spec", json::object{{"override", json::object{{"state", "down"}}}}}};
    CO_ASSERT_OK(co_await site.base.resources->patch(bert, members, "m", reason, {}));
    EXPECT_EQ(by(), "bert");
    // What is in use stays.
    const auto removed = co_await site.base.resources->remove(anna, site.base.kind("Pool"), "eu", {});
    EXPECT_FALSE(removed.ok());
}

} // namespace orrery::gslb
