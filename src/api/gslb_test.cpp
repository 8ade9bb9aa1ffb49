#include "api/stack_for_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::api {

namespace {

using ::testing::HasSubstr;
using testing::Stack;

/// Asks until it is so, some real milliseconds long.
asio::awaitable<testing::Answer> ask_until(Stack& stack, std::string target, std::string expected) {
    testing::Answer answer;
    for (int round = 0; round < 500; ++round) {
        answer = co_await stack.call("GET", target, "", stack.admin_token);
        if (answer.text.find(expected) != std::string::npos) break;
        std::ignore = co_await real_clock().sleep(std::chrono::milliseconds(2));
    }
    co_return answer;
}

asio::awaitable<void> furnish_balancing(Stack& stack) {
    const std::vector<std::pair<std::string, std::string>> all{
        {"/v1/monitors", R"({"name":"web","spec":{"kind":"tcp","port":80,"interval":"2s","timeout":"1s"}})"},
        {"/v1/pools", R"({"name":"eu","spec":{"site":"ams","monitors":["web"]}})"},
        {"/v1/pools", R"({"name":"us","spec":{"site":"nyc","monitors":["web"]}})"},
        {"/v1/members", R"({"name":"eu-1","spec":{"pool":"eu","addresses":["192.0.2.1"]}})"},
        {"/v1/members", R"({"name":"us-1","spec":{"pool":"us","addresses":["192.0.2.9"]}})"},
        {"/v1/loadbalancers",
         R"({"name":"www","spec":{"fqdn":"www.gslb.test","pools":[{"pool":"eu"},{"pool":"us"}],"failback":{"mode":"manual"}}})"}};
    for (const auto& [route, body] : all) {
        const auto made = co_await stack.call("POST", route, body, stack.admin_token);
        EXPECT_EQ(made.status, 201) << made.text;
    }
}

} // namespace

CO_TEST(GslbRoutes, TellWhyANameAnswersSoAndWhatWouldBe) {
    Stack stack;
    CO_ASSERT_OK(co_await stack.start(loop.get_executor()));
    co_await furnish_balancing(stack);
    auto answer = co_await ask_until(stack, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.text, HasSubstr("eu answers"));
    EXPECT_THAT(answer.text, HasSubstr("\"worst\""));
    answer = co_await stack.call("GET", "/v1/loadbalancers/www.gslb.test/whatif?drain=eu", "", stack.admin_token);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body.at("verdict").as_string(), "unknown");
    EXPECT_EQ(answer.body.at("after").at("pool").as_string(), "us");
    answer = co_await stack.call("GET", "/v1/loadbalancers/www/whatif?drain=asia", "", stack.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await stack.call("GET", "/v1/loadbalancers/www/whatif", "", stack.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await stack.call("GET", "/v1/loadbalancers/nobody/why", "", stack.admin_token);
    EXPECT_EQ(answer.status, 404);
    answer = co_await stack.call("GET", "/v1/loadbalancers/www/why?client=somebody", "", stack.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    answer = co_await stack.call("GET", "/v1/loadbalancers/www/why?at=yesterday", "", stack.admin_token);
    EXPECT_EQ(answer.code(), "invalid");
    co_await stack.stop();
}

CO_TEST(GslbRoutes, ShowWhatWasDecidedAndLetClientsReturn) {
    Stack stack;
    CO_ASSERT_OK(co_await stack.start(loop.get_executor()));
    co_await furnish_balancing(stack);
    std::ignore = co_await ask_until(stack, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    stack.watcher.say("eu-1", gslb::Health::down, "web: refused");
    std::ignore = co_await ask_until(stack, "/v1/loadbalancers/www/why", "\"pool\":\"us\"");
    auto answer = co_await ask_until(stack, "/v1/loadbalancers/www/decisions", "web: refused");
    EXPECT_EQ(answer.body.at("items").at(0).at("spec").at("cause").as_string(), "probe");
    stack.watcher.say("eu-1", gslb::Health::up);
    answer = co_await ask_until(stack, "/v1/loadbalancers/www/why", "when somebody approves it");
    EXPECT_THAT(answer.text, HasSubstr("\"pool\":\"us\""));
    const auto approved = co_await stack.call("POST", "/v1/loadbalancers/www/failback", "", stack.admin_token);
    EXPECT_EQ(approved.status, 200) << approved.text;
    answer = co_await ask_until(stack, "/v1/loadbalancers/www/why", "\"pool\":\"eu\"");
    EXPECT_THAT(answer.text, HasSubstr("eu answers"));
    auto load = co_await stack.call("PUT", "/v1/members/eu-1/load", R"({"load":70})", stack.admin_token);
    EXPECT_EQ(load.status, 200) << load.text;
    load = co_await stack.call("PUT", "/v1/members/eu-1/load", R"({"load":"much"})", stack.admin_token);
    EXPECT_EQ(load.code(), "invalid");
    load = co_await stack.call("PUT", "/v1/members/nobody/load", R"({"load":70})", stack.admin_token);
    EXPECT_EQ(load.status, 404);
    co_await stack.stop();
}

CO_STACK_TEST(GslbApi, OthersSayHowAMemberIs) {
    EXPECT_EQ((co_await stack.post("/v1/monitors", R"({"name":"said","spec":{"kind":"push","ttl":"30s"}})")).status, 201);
    EXPECT_EQ((co_await stack.post("/v1/monitors", R"({"name":"port","spec":{"kind":"tcp","port":80}})")).status, 201);
    EXPECT_EQ((co_await stack.post("/v1/pools", R"({"name":"p","spec":{"monitors":["said"]}})")).status, 201);
    EXPECT_EQ((co_await stack.post("/v1/members", R"({"name":"m","spec":{"pool":"p","addresses":["192.0.2.1"]}})")).status, 201);
    const auto say = [&](std::string path, std::string body) { return stack.call("PUT", path, body, stack.admin_token); };
    for (const auto* state : {"up", "down"}) {
        const auto said = co_await say("/v1/members/m/health/said", fmt::format(R"({{"state":"{}","text":"by hand"}})", state));
        EXPECT_EQ(said.status, 200) << said.text;
        const auto kept = co_await stack.get("/v1/reports/m.said");
        EXPECT_EQ(kept.status, 200) << kept.text;
        EXPECT_EQ(kept.body.at("spec").at("state").as_string(), state);
    }
    EXPECT_EQ((co_await say("/v1/members/m/health/port", R"({"state":"up"})")).status, 409);
    EXPECT_EQ((co_await say("/v1/members/m/health/other", R"({"state":"up"})")).status, 404);
    EXPECT_EQ((co_await say("/v1/members/other/health/said", R"({"state":"up"})")).status, 404);
    const auto wrong = co_await say("/v1/members/m/health/said", R"({"state":"well"})");
    EXPECT_EQ(wrong.status, 400);
    EXPECT_EQ(wrong.body.at("fields").at(0).at("path").as_string(), "state");
}

CO_STACK_TEST(GslbApi, MonitorsThatAskOrFollowAreChecked) {
    const auto make = [&](std::string body) { return stack.post("/v1/monitors", body); };
    const auto source = R"({"name":"prom","spec":{"driver":"prometheus","url":"http://127.0.0.1:9090"}})";
    EXPECT_EQ((co_await stack.post("/v1/sources", source)).status, 201);
    EXPECT_EQ((co_await stack.post("/v1/sources", R"({"name":"x","spec":{"driver":"octavia","url":"http://127.0.0.1:1"}})")).status,
              400);
    auto answer = co_await make(R"({"name":"load","spec":{"kind":"prometheus","source":"prom","query":"up","least":1}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("object").at("spec").at("fall").as_int64(), 3);
    answer = co_await make(R"({"name":"said","spec":{"kind":"push"}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    EXPECT_EQ(answer.body.at("object").at("spec").at("fall").as_int64(), 1);
    EXPECT_EQ(answer.body.at("object").at("spec").at("interval").as_string(), "1s");
    answer = co_await make(R"({"name":"both","spec":{"kind":"calculated","of":["load","said"],"rule":"at-least","need":1}})");
    EXPECT_EQ(answer.status, 201) << answer.text;
    for (const auto& [spec, field] : {std::pair{R"({"kind":"prometheus","source":"prom","query":"up"})", "spec.least"},
                                      {R"({"kind":"prometheus","source":"none","query":"up","least":1})", "spec.source"},
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
    answer = co_await stack.post("/v1/members", R"({"name":"lb","spec":{"pool":"none","balancer":{"source":"prom","id":"x"}}})");
    EXPECT_THAT(answer.text, ::testing::HasSubstr("spec.balancer.source"));
}

} // namespace orrery::api
