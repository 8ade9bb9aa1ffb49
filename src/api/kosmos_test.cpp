#include "api/stack_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Kosmos v0.1: the same resources under other names.
namespace orrery::api::testing {

using ::testing::HasSubstr;

CO_STACK_TEST(KosmosRoutes, MakeShowChangeAndRemoveWhatTheyName) {
    auto answer = co_await stack.post(
        "/v0.1/monitors",
        R"({"monitor":{"name":"web","type":"HTTP","delay":10,"timeout":5,"max_retries":3,"port":80,"url_path":"/up","expected_codes":[200,301]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("monitor").at("delay").as_int64(), 10);
    answer = co_await stack.post("/v0.1/pools", R"({"pool":{"name":"eu","description":"Europe","monitors":["web"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    answer = co_await stack.post("/v0.1/pools/eu/pool_members",
                                 R"({"pool_member":{"name":"eu-1","type":"IP","region":"ams","endpoints":["192.0.2.1"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("endpoints").at(0).as_string(), "192.0.2.1");
    answer = co_await stack.post("/v0.1/gslbs",
                                 R"({"gslb":{"name":"www","fqdn":"www.gslb.test.","zone_name":"gslb.test.","pools":["eu"]}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("gslb").at("fqdn").as_string(), "www.gslb.test.");
    EXPECT_EQ((co_await stack.get("/v1/loadbalancers/www")).body.at("spec").at("zone").as_string(), "gslb.test");
    answer = co_await stack.get("/v0.1/gslbs/www/pools");
    EXPECT_EQ(answer.body.at("pools").at(0).at("id").as_string(), "eu");
    answer = co_await stack.call("PATCH", "/v0.1/gslbs/www", R"({"gslb":{"description":"the site"}})", stack.admin_token);
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.at("gslb").at("description").as_string(), "the site");
    for (int round = 0; round < 500; ++round) {
        answer = co_await stack.get("/v0.1/gslbs/www/status");
        if (answer.text.find("ACTIVE") != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(2));
    }
    EXPECT_EQ(answer.body.at("status").at("status").as_string(), "ACTIVE") << answer.text;
    answer = co_await stack.get("/v0.1/gslbs/www/history");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.at("history").at(0).at("status").as_string(), "ACTIVE") << answer.text;
    EXPECT_EQ((co_await stack.get("/v0.1/pools/eu/pool_members")).body.at("pool_members").as_array().size(), 1U);
    EXPECT_EQ((co_await stack.get("/v0.1/pools/eu/pool_members/eu-1/status")).status, 200);
    EXPECT_EQ((co_await stack.get("/v0.1/pools/us/pool_members/eu-1")).status, 404);
    EXPECT_EQ((co_await stack.call("DELETE", "/v0.1/pools/eu", "", stack.admin_token)).status, 409) << "it is in use";
    EXPECT_EQ((co_await stack.call("DELETE", "/v0.1/gslbs/www", "", stack.admin_token)).status, 200);
    EXPECT_EQ((co_await stack.get("/v0.1/gslbs/www")).status, 404);
}

CO_STACK_TEST(KosmosRoutes, SayWhatIsWrongByName) {
    for (const auto& [target, body, expected] : std::vector<std::tuple<std::string, std::string, std::string>>{
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test."}})", "gslb.pools"},
             {"/v0.1/gslbs", R"({"gslb":{"name":"a","fqdn":"a.test.","flavour":"x"}})", "gslb.flavour"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"UDP"}})", "monitor.type"},
             {"/v0.1/monitors", R"({"monitor":{"name":"a","type":"TCP","delay":"soon"}})", "monitor.delay"},
             {"/v0.1/pools/eu/pool_members", R"({"pool_member":{"name":"a","type":"neutron_port"}})", "pool_member.type"},
             {"/v0.1/pools", R"({"pool":[]})", "pool"}}) {
        const auto answer = co_await stack.post(target, body);
        EXPECT_EQ(answer.status, 400) << answer.text;
        EXPECT_THAT(answer.text, HasSubstr(expected));
    }
}

CO_STACK_TEST(KosmosRoutes, ARegionalLoadBalancerIsAMember) {
    EXPECT_EQ((co_await stack.post("/v1/secrets", R"({"name":"os","spec":{"values":{"password":"x"}}})")).status, 201);
    const auto source =
        R"({"name":"eu","spec":{"driver":"octavia","credentials":"os","keystone":{"url":"http://127.0.0.1:5000/v3","user":"u"}}})";
    EXPECT_EQ((co_await stack.post("/v1/sources", source)).status, 201);
    EXPECT_EQ((co_await stack.post("/v1/pools", R"({"name":"p","spec":{}})")).status, 201);
    const auto body = R"({"pool_member":{"name":"lb","type":"neutron_lbaas_v2","region":"eu","neutron_id":"6d9e"}})";
    auto answer = co_await stack.post("/v0.1/pools/p/pool_members", body);
    EXPECT_EQ(answer.status, 201) << answer.text;
    answer = co_await stack.get("/v0.1/pools/p/pool_members/lb");
    EXPECT_EQ(answer.body.at("pool_member").at("type").as_string(), "neutron_lbaas_v2") << answer.text;
    EXPECT_EQ(answer.body.at("pool_member").at("neutron_id").as_string(), "6d9e");
    answer = co_await stack.get("/v1/members/lb");
    EXPECT_EQ(answer.body.at("spec").at("balancer").at("source").as_string(), "eu") << answer.text;
    answer = co_await stack.post("/v0.1/pools/p/pool_members",
                                 R"({"pool_member":{"name":"x","type":"neutron_lbaas_v2","region":"eu"}})");
    EXPECT_EQ(answer.status, 400) << answer.text;
}

} // namespace orrery::api::testing
