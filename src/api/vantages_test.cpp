#include "api/stack_for_tests.h"

#include <gmock/gmock.h>

/// Checkers elsewhere, as they meet the server: over HTTP.
namespace orrery::api::testing {

using ::testing::HasSubstr;

CO_STACK_TEST(Vantages, AreToldWhatToLookAtAndBelieved) {
    const auto set = stack.lookout->set("web|eu-1", {.look = json::object{{"kind", "tcp"}}, .address = "192.0.2.1", .port = 80});
    CO_ASSERT_OK(set);
    const auto first = co_await stack.get("/v1/health/assignments");
    EXPECT_EQ(first.status, 200) << first.text;
    CO_ASSERT(first.status == 200);
    EXPECT_TRUE(first.body.at("reset").as_bool());
    EXPECT_EQ(first.body.at("set").at(0).at("key").as_string(), "web|eu-1");
    EXPECT_EQ(first.body.at("set").at(0).at("address").as_string(), "192.0.2.1");
    const auto next = fmt::format("/v1/health/assignments?epoch={}&after={}", std::string(first.body.at("epoch").as_string()),
                                  first.body.at("revision").to_number<int>());
    const auto none = co_await stack.get(next + "&wait=10ms");
    EXPECT_EQ(none.status, 200) << none.text;
    EXPECT_TRUE(none.body.at("set").as_array().empty());
    const auto wrong = co_await stack.get("/v1/health/assignments?after=soon");
    EXPECT_EQ(wrong.status, 400) << wrong.text;

    const auto* report = R"({"vantage":"far","fit":true,"reports":[
        {"key":"web|eu-1","standing":"down","class":"refused","ms":1,"n_fail":3,"age_ms":5}]})";
    const auto taken = co_await stack.post("/v1/health/reports", report);
    EXPECT_EQ(taken.status, 200) << taken.text;
    EXPECT_EQ(stack.lookout->finding("web|eu-1")->standing, health::Standing::down);
    const auto bad = co_await stack.post("/v1/health/reports", R"({"vantage":"far","fit":true,"reports":[{}]})");
    EXPECT_EQ(bad.status, 400) << bad.text;
    EXPECT_THAT(bad.text, HasSubstr("reports[0].key"));
    const auto all = co_await stack.get("/v1/health/vantages");
    EXPECT_THAT(all.text, HasSubstr(R"("name":"far","kind":"checker","fit":true)"));
    EXPECT_THAT(all.text, HasSubstr(R"("name":"server","kind":"server")"));
}

} // namespace orrery::api::testing
