#include "api/server_fixture.h"

#include <gmock/gmock.h>

/// Checkers elsewhere, as they meet the server: over HTTP.
namespace orrery::api::testing {

using ::testing::HasSubstr;

CO_SERVER_TEST(Vantages, CheckersGetAssignmentsAndTheirReportsCount) {
    const auto set =
        server.aggregator->set("web|eu-1", {.probe = json::object{{"kind", "tcp"}}, .address = "192.0.2.1", .port = 80});
    CO_ASSERT_OK(set);
    const auto first = co_await server.get("/v1/health/assignments");
    EXPECT_EQ(first.status, 200) << first.text;
    CO_ASSERT(first.status == 200);
    EXPECT_TRUE(first.body.at("reset").as_bool());
    EXPECT_EQ(first.body.at("set").at(0).at("key").as_string(), "web|eu-1");
    EXPECT_EQ(first.body.at("set").at(0).at("address").as_string(), "192.0.2.1");
    const auto next = fmt::format("/v1/health/assignments?epoch={}&after={}", std::string(first.body.at("epoch").as_string()),
                                  first.body.at("revision").to_number<int>());
    const auto none = co_await server.get(next + "&wait=10ms");
    EXPECT_EQ(none.status, 200) << none.text;
    EXPECT_TRUE(none.body.at("set").as_array().empty());
    const auto wrong = co_await server.get("/v1/health/assignments?after=soon");
    EXPECT_EQ(wrong.status, 400) << wrong.text;

    const auto* report = R"({"vantage":"far","trusted":true,"reports":[
        {"key":"web|eu-1","state":"down","class":"refused","ms":1,"n_fail":3,"age_ms":5}]})";
    const auto taken = co_await server.post("/v1/health/reports", report);
    EXPECT_EQ(taken.status, 200) << taken.text;
    EXPECT_EQ(server.aggregator->health("web|eu-1")->state, health::HealthState::down);
    const auto bad = co_await server.post("/v1/health/reports", R"({"vantage":"far","trusted":true,"reports":[{}]})");
    EXPECT_EQ(bad.status, 400) << bad.text;
    EXPECT_THAT(bad.text, HasSubstr("reports[0].key"));
    const auto all = co_await server.get("/v1/health/vantages");
    EXPECT_THAT(all.text, HasSubstr(R"("name":"far","kind":"checker","trusted":true)"));
    EXPECT_THAT(all.text, HasSubstr(R"("name":"server","kind":"server")"));
}

} // namespace orrery::api::testing
