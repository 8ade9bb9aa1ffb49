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

} // namespace orrery::api
