#include "api/server_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

/// Kosmos v0.1: the same resources under other names.
namespace orrery::api::testing {

using ::testing::HasSubstr;

CO_SERVER_TEST(KosmosRoutes, CreateShowChangeAndDeleteResources) {
    auto answer = co_await server.post(
        "/v0.1/monitors",
        R"({"monitor":{"name":"web","type":"HTTP","delay":10,"timeout":5,"max_retries":3,"port":80,"url_path":"/up","expected_codes":[200,301]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("monitor").at("delay").as_int64(), 10);
    EXPECT_EQ(answer.body.at("monitor").at("expected_codes"), json::parse("[200,301]"));
    answer = co_await server.post("/v0.1/pools", R"({"pool":{"name":"eu","description":"Europe","monitors":["web"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    answer = co_await server.post("/v0.1/pools/eu/pool_members",
                                  R"({"pool_member":{"name":"eu-1","type":"IP","region":"ams","endpoints":["192.0.2.1"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("endpoints").at(0).as_string(), "192.0.2.1");
    answer = co_await server.post("/v0.1/gslbs",
                                  R"({"gslb":{"name":"www","fqdn":"www.gslb.test.","zone_name":"gslb.test.","pools":["eu"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("gslb").at("fqdn").as_string(), "www.gslb.test.");
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/www")).body.at("spec").at("zone").as_string(), "gslb.test");
    answer = co_await server.get("/v0.1/gslbs/www/pools");
    EXPECT_EQ(answer.body.at("pools").at(0).at("id").as_string(), "eu");
    answer = co_await server.call("PATCH", "/v0.1/gslbs/www", R"({"gslb":{"description":"the site"}})", server.admin_token);
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.at("gslb").at("description").as_string(), "the site");
    for (int round = 0; round < 500; ++round) {
        answer = co_await server.get("/v0.1/gslbs/www/status");
        if (answer.text.find("ACTIVE") != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(answer.body.at("status").at("status").as_string(), "ACTIVE") << answer.text;
    answer = co_await server.get("/v0.1/gslbs/www/history");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.at("history").at(0).at("status").as_string(), "ACTIVE") << answer.text;
    EXPECT_EQ((co_await server.get("/v0.1/pools/eu/pool_members")).body.at("pool_members").as_array().size(), 1U);
    EXPECT_EQ((co_await server.get("/v0.1/pools/eu/pool_members/eu-1/status")).status, 200);
    EXPECT_EQ((co_await server.get("/v0.1/pools/us/pool_members/eu-1")).status, 404);
    EXPECT_EQ((co_await server.get("/v0.1/pools/eu/monitors")).body.at("monitors").at(0).at("id").as_string(), "web");
    EXPECT_EQ((co_await server.get("/v0.1/pools/eu/pool_members/eu-1/monitors")).body.at("monitors").as_array().size(), 1U);
    EXPECT_EQ((co_await server.call("DELETE", "/v0.1/pools/eu", "", server.admin_token)).status, 409) << "it is in use";
    EXPECT_EQ((co_await server.call("DELETE", "/v0.1/gslbs/www", "", server.admin_token)).status, 204);
    EXPECT_EQ((co_await server.get("/v0.1/gslbs/www")).status, 404);
}

CO_SERVER_TEST(KosmosRoutes, ReplacingAResourceWithItselfChangesNothing) {
    EXPECT_EQ(
        (co_await server.call(
             "PUT", "/v1/monitors/quick",
             R"({"kind":"Monitor","name":"quick","spec":{"kind":"http","port":80,"interval":"1500ms","timeout":"500ms","expect":"200-204"}})",
             server.admin_token))
            .status,
        201);
    const auto before = (co_await server.get("/v1/monitors/quick")).body.at("spec");
    auto shown = (co_await server.get("/v0.1/monitors/quick")).body;
    EXPECT_EQ(shown.at("monitor").at("timeout").as_int64(), 1);
    const auto answer = co_await server.call("PUT", "/v0.1/monitors/quick", json::serialize(shown), server.admin_token);
    EXPECT_EQ(answer.status, 200) << answer.text;
    auto after = (co_await server.get("/v1/monitors/quick")).body.at("spec");
    EXPECT_EQ(after.at("expect").as_string(), "200,201,202,203,204") << "the same codes";
    after.as_object()["expect"] = before.at("expect");
    EXPECT_EQ(after, before);
}

CO_SERVER_TEST(KosmosRoutes, MembersOfNeutronKeepTheirNeutronNames) {
    EXPECT_EQ((co_await server.post("/v0.1/pools", R"({"pool":{"name":"eu"}})")).status, 201);
    auto answer = co_await server.post(
        "/v0.1/pools/eu/pool_members",
        R"({"pool_member":{"name":"vip","type":"neutron_lbaas_v2","region":"ams","neutron_id":"5f3a9c1e-0000-4000-8000-1234567890ab","endpoints":["192.0.2.1"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("type").as_string(), "neutron_lbaas_v2");
    answer = co_await server.call("PATCH", "/v0.1/pools/eu/pool_members/vip", R"({"pool_member":{"endpoints":["192.0.2.2"]}})",
                                  server.admin_token);
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("neutron_id").as_string(), "5f3a9c1e-0000-4000-8000-1234567890ab");
    EXPECT_EQ((co_await server.get("/v1/members/vip")).body.at("spec").at("addresses").at(0).as_string(), "192.0.2.2");
    answer =
        co_await server.call("PATCH", "/v0.1/pools/eu/pool_members/vip", R"({"pool_member":{"type":"IP"}})", server.admin_token);
    EXPECT_FALSE(answer.body.at("pool_member").as_object().contains("neutron_id")) << answer.text;
}

/// The machine of Kosmos for pools and members, with the two transitions that it lacked, and that something may be found DOWN or
/// DEGRADED at the first probe.
CO_SERVER_TEST(KosmosRoutes, StatesFollowTheAllowedTransitions) {
    const std::map<std::string, std::set<std::string>> may{{"PENDING", {"ACTIVE", "ERROR", "DELETED", "DEGRADED", "DOWN"}},
                                                           {"ACTIVE", {"PENDING", "ERROR", "DELETED", "DEGRADED", "DOWN"}},
                                                           {"DEGRADED", {"ACTIVE", "ERROR", "DELETED", "DOWN"}},
                                                           {"DOWN", {"ACTIVE", "ERROR", "DELETED", "DEGRADED"}}};
    EXPECT_EQ((co_await server.post("/v0.1/monitors", R"({"monitor":{"name":"web","type":"TCP","port":80}})")).status, 201);
    EXPECT_EQ((co_await server.post("/v0.1/pools", R"({"pool":{"name":"eu","monitors":["web"]}})")).status, 201);
    for (const auto* name : {"1", "2"})
        EXPECT_EQ((co_await server.post("/v0.1/pools/eu/pool_members",
                                        fmt::format(R"({{"pool_member":{{"name":"eu-{0}","endpoints":["192.0.2.{0}"]}}}})", name)))
                      .status,
                  201);
    EXPECT_EQ((co_await server.post("/v0.1/gslbs", R"({"gslb":{"name":"www","fqdn":"www.gslb.test.","pools":["eu"]}})")).status,
              201);
    std::string was = "PENDING";
    using health::HealthState;
    for (const auto& [first, second, expected] :
         {std::tuple(HealthState::up, HealthState::up, "ACTIVE"), std::tuple(HealthState::up, HealthState::down, "DEGRADED"),
          std::tuple(HealthState::down, HealthState::down, "DOWN"), std::tuple(HealthState::down, HealthState::up, "DEGRADED"),
          std::tuple(HealthState::up, HealthState::up, "ACTIVE"), std::tuple(HealthState::down, HealthState::down, "DOWN"),
          std::tuple(HealthState::up, HealthState::up, "ACTIVE")}) {
        server.watcher.set_health("eu-1", first);
        server.watcher.set_health("eu-2", second);
        std::string now;
        for (int round = 0; round < 1000 && now != expected; ++round) {
            now = (co_await server.get("/v0.1/pools/eu/status")).body.at("status").at("status").as_string();
            EXPECT_TRUE(now == was || may.at(was).contains(now)) << was << " to " << now;
            was = now;
            std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(2));
        }
        EXPECT_EQ(now, expected);
    }
}

CO_SERVER_TEST(KosmosRoutes, ErrorsNameTheField) {
    for (const auto& [target, body, expected] : std::vector<std::tuple<std::string, std::string, std::string>>{
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test."}})", "gslb.pools"},
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test.","flavour":"x"}})", "gslb.flavour"},
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test.","pools":[5]}})", "gslb.pools[0]"},
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test.","pools":[{"pool":"eu","type":"BOTH"}]}})",
              "gslb.pools[0].type"},
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":7,"pools":["eu"]}})", "gslb.fqdn"},
             {"/v0.1/pools", R"({"pool":{"name":"a","monitors":"web"}})", "pool.monitors"},
             {"/v0.1/pools", R"({"pool":{"name":"a","members":["b"]}})", "pool.members"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"CARRIER_PIGEON"}})", "monitor.type"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"HTTP","expected_codes":["200"]}})", "monitor.expected_codes[0]"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"HTTPS","insecure":"yes"}})", "monitor.insecure"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"HTTP","payload":"x"}})", "monitor.payload"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"TCP","delay":"soon"}})", "monitor.delay"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","type":"heat_stack"}})", "pool_member.type"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","type":"neutron_port"}})", "pool_member.neutron_id"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","neutron_id":"5f3a"}})", "pool_member.neutron_id"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","type":"neutron_lbaas_v2","neutron_id":"5f3a"}})",
              "pool_member.region"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","type":"neutron_port","neutron_id":"5f3a"}})",
              "pool_member.endpoints"},
             {"/v0.1/pools", R"({"pool":[]})", "pool"}}) {
        const auto answer = co_await server.post(target, body);
        EXPECT_EQ(answer.status, 400) << answer.text;
        EXPECT_THAT(answer.text, HasSubstr(expected));
    }
}

CO_SERVER_TEST(KosmosRoutes, ARegionalLoadBalancerIsAMember) {
    EXPECT_EQ((co_await server.post("/v1/secrets", R"({"name":"os","spec":{"values":{"password":"x"}}})")).status, 201);
    const auto source =
        R"({"name":"eu","spec":{"driver":"octavia","credentials":"os","keystone":{"url":"http://127.0.0.1:5000/v3","user":"u"}}})";
    EXPECT_EQ((co_await server.post("/v1/sources", source)).status, 201);
    EXPECT_EQ((co_await server.post("/v1/pools", R"({"name":"p","spec":{}})")).status, 201);
    const auto body = R"({"pool_member":{"name":"lb","type":"neutron_lbaas_v2","region":"eu","neutron_id":"6d9e"}})";
    auto answer = co_await server.post("/v0.1/pools/p/pool_members", body);
    EXPECT_EQ(answer.status, 201) << answer.text;
    answer = co_await server.get("/v0.1/pools/p/pool_members/lb");
    EXPECT_EQ(answer.body.at("pool_member").at("type").as_string(), "neutron_lbaas_v2") << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("neutron_id").as_string(), "6d9e");
    answer = co_await server.get("/v1/members/lb");
    EXPECT_EQ(answer.body.at("spec").at("balancer").at("source").as_string(), "eu") << answer.text;
    answer = co_await server.post("/v0.1/pools/p/pool_members",
                                  R"({"pool_member":{"name":"x","type":"neutron_lbaas_v2","region":"eu"}})");
    EXPECT_EQ(answer.status, 400) << answer.text;
}

} // namespace orrery::api::testing
