#include "api/server_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::api {

namespace {

using ::testing::HasSubstr;
using testing::ServerFixture;

/// Asks until it is so, some real milliseconds long.
asio::awaitable<testing::Answer> ask_until(ServerFixture& server, std::string target, std::string expected) {
    testing::Answer answer;
    for (int round = 0; round < 500; ++round) {
        answer = co_await server.call("GET", target, "", server.admin_token);
        if (answer.text.find(expected) != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(2));
    }
    co_return answer;
}

asio::awaitable<void> furnish_balancing(ServerFixture& server) {
    const std::vector<std::pair<std::string, std::string>> all{
        {"/v1/monitors", R"({"name":"web","spec":{"kind":"tcp","port":80,"interval":"2s","timeout":"1s"}})"},
        {"/v1/pools", R"({"name":"eu","spec":{"site":"ams","monitors":["web"]}})"},
        {"/v1/pools", R"({"name":"us","spec":{"site":"nyc","monitors":["web"]}})"},
        {"/v1/members", R"({"name":"eu-1","spec":{"pool":"eu","addresses":["192.0.2.1"]}})"},
        {"/v1/members", R"({"name":"us-1","spec":{"pool":"us","addresses":["192.0.2.9"]}})"},
        {"/v1/loadbalancers",
         R"({"name":"www","spec":{"fqdn":"www.gslb.test","pools":[{"pool":"eu"},{"pool":"us"}],"failback":{"mode":"manual"}}})"}};
    for (const auto& [route, body] : all) {
        const auto made = co_await server.call("POST", route, body, server.admin_token);
        EXPECT_EQ(made.status, 201) << made.text;
    }
}

} // namespace

CO_TEST(GslbRoutes, ExplainAnAnswerAndSimulateAChange) {
    ServerFixture server;
    CO_ASSERT_OK(co_await server.start(loop.get_executor()));
    co_await furnish_balancing(server);
    auto answer = co_await ask_until(server, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.text, HasSubstr("eu answers"));
    EXPECT_THAT(answer.text, HasSubstr("\"worst\""));
    answer = co_await server.call("GET", "/v1/loadbalancers/www.gslb.test/whatif?drain=eu", "", server.admin_token);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.at("verdict").as_string(), "unknown");
    EXPECT_EQ(answer.body.at("after").at("pool").as_string(), "us");
    answer = co_await server.call("GET", "/v1/loadbalancers/www/whatif?drain=asia", "", server.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await server.call("GET", "/v1/loadbalancers/www/whatif", "", server.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await server.call("GET", "/v1/loadbalancers/nobody/why", "", server.admin_token);
    EXPECT_EQ(answer.status, 404);
    answer = co_await server.call("GET", "/v1/loadbalancers/www/why?client=somebody", "", server.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await server.call("GET", "/v1/loadbalancers/www/why?at=yesterday", "", server.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    co_await server.stop();
}

CO_TEST(GslbRoutes, ListDecisionsAndApproveAFailback) {
    ServerFixture server;
    CO_ASSERT_OK(co_await server.start(loop.get_executor()));
    co_await furnish_balancing(server);
    std::ignore = co_await ask_until(server, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    server.watcher.set_health("eu-1", health::HealthState::down, "web: refused");
    std::ignore = co_await ask_until(server, "/v1/loadbalancers/www/why", "\"pool\":\"us\"");
    auto answer = co_await ask_until(server, "/v1/loadbalancers/www/decisions", "web: refused");
    EXPECT_EQ(answer.body.at("items").at(0).at("spec").at("cause").as_string(), "probe");
    server.watcher.set_health("eu-1", health::HealthState::up);
    answer = co_await ask_until(server, "/v1/loadbalancers/www/why", "clients return after an approval");
    EXPECT_THAT(answer.text, HasSubstr("\"pool\":\"us\""));
    const auto approved = co_await server.call("POST", "/v1/loadbalancers/www/failback", "", server.admin_token);
    EXPECT_EQ(approved.status, 200) << approved.text;
    answer = co_await ask_until(server, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    EXPECT_THAT(answer.text, HasSubstr("eu answers"));
    auto load = co_await server.call("PUT", "/v1/members/eu-1/load", R"({"load":70})", server.admin_token);
    EXPECT_EQ(load.status, 200) << load.text;
    load = co_await server.call("PUT", "/v1/members/eu-1/load", R"({"load":"much"})", server.admin_token);
    EXPECT_EQ(load.code(), "invalid");
    load = co_await server.call("PUT", "/v1/members/nobody/load", R"({"load":70})", server.admin_token);
    EXPECT_EQ(load.status, 404);
    co_await server.stop();
}

CO_SERVER_TEST(GslbApi, AStatusCanBePushed) {
    EXPECT_EQ((co_await server.post("/v1/monitors", R"({"name":"pushed","spec":{"kind":"push","ttl":"30s"}})")).status, 201);
    EXPECT_EQ((co_await server.post("/v1/monitors", R"({"name":"port","spec":{"kind":"tcp","port":80}})")).status, 201);
    EXPECT_EQ((co_await server.post("/v1/pools", R"({"name":"p","spec":{"monitors":["pushed"]}})")).status, 201);
    EXPECT_EQ((co_await server.post("/v1/members", R"({"name":"m","spec":{"pool":"p","addresses":["192.0.2.1"]}})")).status, 201);
    const auto push_status = [&](std::string path, std::string body) { return server.call("PUT", path, body, server.admin_token); };
    for (const auto* state : {"up", "down"}) {
        const auto pushed =
            co_await push_status("/v1/members/m/health/pushed", fmt::format(R"({{"state":"{}","message":"by hand"}})", state));
        EXPECT_EQ(pushed.status, 200) << pushed.text;
        const auto kept = co_await server.get("/v1/reports/m.pushed");
        EXPECT_EQ(kept.status, 200) << kept.text;
        EXPECT_EQ(kept.body.at("spec").at("state").as_string(), state);
    }
    EXPECT_EQ((co_await push_status("/v1/members/m/health/port", R"({"state":"up"})")).status, 409);
    EXPECT_EQ((co_await push_status("/v1/members/m/health/other", R"({"state":"up"})")).status, 404);
    EXPECT_EQ((co_await push_status("/v1/members/other/health/pushed", R"({"state":"up"})")).status, 404);
    const auto wrong = co_await push_status("/v1/members/m/health/pushed", R"({"state":"well"})");
    EXPECT_EQ(wrong.status, 400);
    EXPECT_EQ(wrong.body.at("fields").at(0).at("path").as_string(), "state");
}

CO_SERVER_TEST(GslbApi, PassiveAndCalculatedMonitorsAreValidated) {
    const auto make = [&](std::string body) { return server.post("/v1/monitors", body); };
    const auto source = R"({"name":"prom","spec":{"driver":"prometheus","url":"http://127.0.0.1:9090"}})";
    EXPECT_EQ((co_await server.post("/v1/sources", source)).status, 201);
    EXPECT_EQ(
        (co_await server.post("/v1/sources", R"({"name":"x","spec":{"driver":"octavia","url":"http://127.0.0.1:1"}})")).status,
        400);
    auto answer = co_await make(R"({"name":"load","spec":{"kind":"prometheus","source":"prom","query":"up","min":1}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("object").at("spec").at("fall").as_int64(), 3);
    answer = co_await make(R"({"name":"pushed","spec":{"kind":"push"}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("object").at("spec").at("fall").as_int64(), 1);
    EXPECT_EQ(answer.body.at("object").at("spec").at("interval").as_string(), "1s");
    answer = co_await make(R"({"name":"both","spec":{"kind":"calculated","of":["load","pushed"],"rule":"at-least","need":1}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    for (const auto& [spec, field] : {std::pair{R"({"kind":"prometheus","source":"prom","query":"up"})", "spec.min"},
                                      {R"({"kind":"prometheus","source":"none","query":"up","min":1})", "spec.source"},
                                      {R"({"kind":"octavia","source":"prom","id":"x"})", "spec.source"},
                                      {R"({"kind":"push","quorum":2})", "spec.quorum"},
                                      {R"({"kind":"push","query":"up"})", "spec.query"},
                                      {R"({"kind":"calculated","of":["both"]})", "spec.of[0]"},
                                      {R"({"kind":"calculated","of":["load"],"rule":"at-least"})", "spec.need"},
                                      {R"({"kind":"calculated","of":["load"],"rule":"at-least","need":2})", "spec.need"},
                                      {R"({"kind":"calculated","of":["load"],"interval":"1s"})", "spec.interval"}}) {
        answer = co_await make(fmt::format(R"({{"name":"bad","spec":{}}})", spec));
        EXPECT_EQ(answer.status, 400) << spec << answer.text;
        EXPECT_THAT(answer.text, ::testing::HasSubstr(field)) << spec;
    }
    answer = co_await server.post("/v1/members", R"({"name":"lb","spec":{"pool":"none","balancer":{"source":"prom","id":"x"}}})");
    EXPECT_THAT(answer.text, ::testing::HasSubstr("spec.balancer.source"));
}

} // namespace orrery::api
