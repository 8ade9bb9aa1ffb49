#include "api/server_fixture.h"

#include <gmock/gmock.h>

namespace orrery::api::testing {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view fleet_file =
    R"({"nodes":[{"name":"n1","pm_type":"ipmi","pm_addr":"10.0.0.8","pm_user":"admin","pm_password":"pass-of-bmc","cpu":8,"memory":65536,"disk":400,"arch":"x86_64"}]})";

} // namespace

CO_SERVER_TEST(FleetApi, ImportsPreviewsAndExplains) {
    auto imported = co_await server.post("/v1/fleet/import", std::string(fleet_file));
    EXPECT_EQ(imported.status, 200) << imported.text;
    EXPECT_EQ(imported.body.at("created"), 1);
    auto again = co_await server.post("/v1/fleet/import?dry_run=true",
                                      json::serialize(json::object{{"file", "ipmi,10.0.0.8,admin,pass-of-bmc\n"}}));
    EXPECT_EQ(again.body.at("unchanged"), 1) << again.text;
    for (const auto* path : {"/v1/machines/n1", "/v1/secrets/bmc-n1", "/v1/events?limit=500"}) {
        auto shown = co_await server.get(path);
        EXPECT_EQ(shown.status, 200) << shown.text;
        EXPECT_THAT(shown.text, Not(HasSubstr("pass-of-bmc"))) << path;
    }
    auto suggested = co_await server.get("/v1/fleet/flavor-suggestions");
    EXPECT_EQ(suggested.body.at("flavors").as_array().size(), 1U) << suggested.text;
    std::ignore = co_await server.post("/v1/flavors", R"({"name":"f","spec":{"cpus":8}})");
    std::ignore = co_await server.post("/v1/roles", R"({"name":"web","spec":{"flavor":"f"}})");
    auto plan = co_await server.post("/v1/plans", R"({"name":"p","spec":{"roles":[{"role":"web","count":2}]}})");
    EXPECT_EQ(plan.status, 201) << plan.text;
    auto preview = co_await server.post("/v1/plans/p/preview", "");
    EXPECT_EQ(preview.status, 200) << preview.text;
    EXPECT_EQ(preview.body.at("problems").at(0), "role web needs 2 machines, but only 1 machine fits: n1; 1 is missing");
    auto why = co_await server.get("/v1/why/machines/n1");
    EXPECT_THAT(why.text, HasSubstr("plan p gives machine n1 role web"));
    auto outliers = co_await server.get("/v1/fleet/outliers");
    EXPECT_EQ(outliers.body.at("measured"), 0) << outliers.text;
    auto missing = co_await server.post("/v1/plans/none/preview", "");
    EXPECT_EQ(missing.status, 404);
    auto used = co_await server.call("DELETE", "/v1/roles/web", "", server.admin_token);
    EXPECT_EQ(used.status, 409) << used.text;
}

CO_SERVER_TEST(FleetApi, AnImportWithErrorsReportsAllAndChangesNothing) {
    auto refused = co_await server.post(
        "/v1/fleet/import",
        R"([{"pm_type":"ipmi","pm_addr":"10.0.0.8","pm_user":"a","pm_password":"b"},{"pm_type":"x"},{"pm_type":"ipmi"}])");
    EXPECT_EQ(refused.status, 400) << refused.text;
    EXPECT_EQ(refused.body.at("fields").as_array().size(), 4U) << refused.text;
    for (const auto* body : {R"({"file":{}})", R"({"nodes":[],"file":"ipmi,10.0.0.8,a,b"})"}) {
        auto mixed = co_await server.post("/v1/fleet/import", body);
        EXPECT_EQ(mixed.status, 400) << mixed.text;
        EXPECT_EQ(mixed.body.at("fields").at(0).at("path"), "file");
    }
    auto machines = co_await server.get("/v1/machines");
    EXPECT_TRUE(machines.body.at("items").as_array().empty());
}

} // namespace orrery::api::testing
