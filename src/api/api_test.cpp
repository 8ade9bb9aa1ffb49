#include "api/api.h"
#include "api/stack_for_tests.h"

#include <gmock/gmock.h>

namespace orrery::api::testing {

using ::testing::HasSubstr;

CO_STACK_TEST(Api, AResourceIsCreatedReadChangedAndDeleted) {
    auto created = co_await stack.post("/v1/nodes", R"({"name":"n1","labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(created.status, 201) << created.text;
    EXPECT_EQ(created.body.at("outcome").as_string(), "created");
    const std::string etag(created.headers.get("ETag"));
    auto read = co_await stack.get("/v1/nodes/n1");
    EXPECT_EQ(read.status, 200);
    EXPECT_EQ(read.headers.get("ETag"), etag);
    EXPECT_EQ(read.body.at("spec").at("ssh").at("port").as_int64(), 22) << "defaults are filled in";
    auto again = co_await stack.post("/v1/nodes", R"({"name":"n1","spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(again.status, 409);
    auto same = co_await stack.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(same.status, 200) << same.text;
    EXPECT_EQ(same.body.at("outcome").as_string(), "unchanged");
    EXPECT_EQ(same.headers.get("ETag"), etag);
    auto patched = co_await stack.call("PATCH", "/v1/nodes/n1", R"({"spec":{"ssh":{"port":2222}}})", stack.admin_token);
    EXPECT_EQ(patched.status, 200) << patched.text;
    EXPECT_EQ(patched.body.at("changes").at(0).at("path").as_string(), "spec.ssh.port");
    auto stale =
        co_await stack.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", stack.admin_token, {{"If-Match", etag}});
    EXPECT_EQ(stale.status, 412) << stale.text;
    auto foreign = co_await stack.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", stack.admin_token,
                                       {{"If-Match", "\"1-0123456789abcdef\""}});
    EXPECT_EQ(foreign.status, 412) << "an ETag of another store never matches";
    auto fresh = co_await stack.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", stack.admin_token,
                                     {{"If-Match", std::string(patched.headers.get("ETag"))}});
    EXPECT_EQ(fresh.status, 200) << fresh.text;
    auto gone = co_await stack.call("DELETE", "/v1/nodes/n1", {}, stack.admin_token);
    EXPECT_EQ(gone.status, 200) << gone.text;
    auto missing = co_await stack.get("/v1/nodes/n1");
    EXPECT_EQ(missing.status, 404);
    EXPECT_EQ(missing.code(), "not_found");
}

CO_STACK_TEST(Api, EveryMistakeIsNamedAtOnceAndNothingChanges) {
    auto bad = co_await stack.post("/v1/nodes", R"({"name":"N 1","spec":{"adress":"10.0.0.1","ssh":{"port":70000}}})");
    EXPECT_EQ(bad.status, 400);
    EXPECT_THAT(bad.text, HasSubstr("did you mean \\\"address\\\""));
    EXPECT_THAT(bad.text, HasSubstr("spec.ssh.port"));
    EXPECT_THAT(bad.text, HasSubstr("\"name\""));
    auto nodes = co_await stack.get("/v1/nodes");
    EXPECT_TRUE(nodes.body.at("items").as_array().empty());
    auto query = co_await stack.get("/v1/nodes?lables=a");
    EXPECT_EQ(query.status, 400);
    EXPECT_THAT(query.text, HasSubstr("did you mean \\\"labels\\\""));
    auto broken = co_await stack.post("/v1/nodes", "{\"name\":");
    EXPECT_EQ(broken.status, 400);
    auto method = co_await stack.call("DELETE", "/v1/nodes", {}, stack.admin_token);
    EXPECT_EQ(method.status, 405);
    auto path = co_await stack.get("/v1/nonsense");
    EXPECT_EQ(path.status, 404);
}

CO_STACK_TEST(Api, ADryRunShowsTheOutcomeAndWritesNothing) {
    const auto before = stack.store->revision();
    auto dry = co_await stack.put("/v1/nodes/n1?dry_run=true", R"({"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(dry.status, 201) << dry.text;
    EXPECT_TRUE(dry.body.at("dry_run").as_bool());
    auto token = co_await stack.post("/v1/tokens?dry_run", R"({"name":"t","spec":{"role":"viewer"}})");
    EXPECT_EQ(token.status, 201) << token.text;
    EXPECT_FALSE(token.body.as_object().contains("once"));
    EXPECT_EQ(stack.store->revision(), before);
}

CO_STACK_TEST(Api, WhatIsReferredToCannotBeDeleted) {
    std::ignore = co_await stack.post("/v1/secrets", R"({"name":"key","spec":{"values":{"private_key":"canary"}}})");
    auto dangling = co_await stack.post("/v1/nodes", R"({"name":"n1","spec":{"address":"a.example","ssh":{"key":"kee"}}})");
    EXPECT_EQ(dangling.status, 400) << dangling.text;
    auto node = co_await stack.post("/v1/nodes", R"({"name":"n1","spec":{"address":"a.example","ssh":{"key":"key"}}})");
    EXPECT_EQ(node.status, 201) << node.text;
    auto refused = co_await stack.call("DELETE", "/v1/secrets/key", {}, stack.admin_token);
    EXPECT_EQ(refused.status, 409);
    EXPECT_THAT(refused.text, HasSubstr("Node/n1"));
    std::ignore = co_await stack.call("DELETE", "/v1/nodes/n1", {}, stack.admin_token);
    auto allowed = co_await stack.call("DELETE", "/v1/secrets/key", {}, stack.admin_token);
    EXPECT_EQ(allowed.status, 200) << allowed.text;
}

CO_STACK_TEST(Api, ListsAreSelectedAndPaged) {
    for (int i = 0; i < 25; ++i) {
        auto made = co_await stack.put(
            fmt::format("/v1/nodes/n{:02}", i),
            fmt::format(R"({{"labels":{{"zone":"{}"}},"spec":{{"address":"10.0.0.{}"}}}})", i % 2 == 0 ? "a" : "b", i + 1));
        EXPECT_EQ(made.status, 201) << made.text;
    }
    std::vector<std::string> names;
    std::string after;
    int pages = 0;
    do {
        auto page = co_await stack.get("/v1/nodes?labels=zone%3Da&limit=5" + (after.empty() ? "" : "&continue=" + after));
        for (const auto& item : page.body.at("items").as_array()) names.emplace_back(item.at("name").as_string());
        const auto* next = page.body.as_object().if_contains("continue");
        after = next == nullptr ? "" : std::string(next->as_string());
        ++pages;
    } while (!after.empty() && pages < 10);
    EXPECT_EQ(names.size(), 13U);
    EXPECT_EQ(pages, 3);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    auto bad = co_await stack.get("/v1/nodes?limit=0");
    EXPECT_EQ(bad.status, 400);
}

CO_STACK_TEST(Api, EveryWriteLeavesAnAuditEventWithTheRequestsId) {
    auto made = co_await stack.call("PUT", "/v1/nodes/n1?because=a%20test", R"({"spec":{"address":"10.0.0.1"}})", stack.admin_token,
                                    {{"X-Request-Id", "my-context-1"}});
    EXPECT_EQ(made.headers.get("X-Request-Id"), "my-context-1");
    auto events = co_await stack.get("/v1/events?context=my-context-1");
    CO_ASSERT(events.body.at("items").as_array().size() == 1);
    const auto& spec = events.body.at("items").at(0).at("spec");
    EXPECT_EQ(spec.at("subject").as_string(), "Node/n1");
    EXPECT_EQ(spec.at("actor").as_string(), "admin");
    EXPECT_EQ(spec.at("what").as_string(), "created");
    EXPECT_EQ(spec.at("because").as_string(), "a test");
    auto by_subject = co_await stack.get("/v1/events?subject=Node/n1");
    EXPECT_EQ(by_subject.body.at("items").as_array().size(), 1U);
    auto written = co_await stack.post("/v1/events", R"({"name":"x","spec":{}})");
    EXPECT_EQ(written.status, 405) << "events are appended by the server only";
}

CO_STACK_TEST(Api, YamlIsTakenWhereTheContentTypeSaysSo) {
    auto made = co_await stack.call("PUT", "/v1/nodes/n1", "spec:\n  address: 10.0.0.1\n", stack.admin_token,
                                    {{"Content-Type", "application/yaml"}});
    EXPECT_EQ(made.status, 201) << made.text;
}

CO_STACK_TEST(Api, SecretsNeverComeBack) {
    auto made = co_await stack.post("/v1/secrets", R"({"name":"s","spec":{"description":"d","values":{"k":"canary-value"}}})");
    EXPECT_EQ(made.status, 201) << made.text;
    auto changed = co_await stack.call("PATCH", "/v1/secrets/s", R"({"spec":{"values":{"k":"canary-other"}}})", stack.admin_token);
    EXPECT_EQ(changed.status, 200) << changed.text;
    std::string all = made.text + changed.text;
    for (const auto* target : {"/v1/secrets", "/v1/secrets/s", "/v1/events", "/v1/users", "/v1/tokens"})
        all += (co_await stack.get(target)).text;
    EXPECT_EQ(all.find("canary"), std::string::npos);
    EXPECT_EQ(all.find("argon2"), std::string::npos);
    EXPECT_EQ(all.find("correct horse"), std::string::npos);
    auto record = stack.store->find("secrets/s");
    EXPECT_EQ(record->value.find("canary"), std::string::npos);
}

CO_STACK_TEST(Api, ATokenMayNotDoMoreThanItsMaker) {
    auto viewer = co_await stack.token_for("vera", "viewer");
    auto more = co_await stack.call("POST", "/v1/tokens", R"({"name":"more","spec":{"role":"operator"}})", viewer);
    EXPECT_EQ(more.status, 403) << more.text;
    auto other = co_await stack.call("POST", "/v1/tokens", R"({"name":"other","spec":{"user":"admin","role":"viewer"}})", viewer);
    EXPECT_EQ(other.status, 403) << other.text;
    auto own = co_await stack.call("POST", "/v1/tokens", R"({"name":"own","spec":{"kinds":["nodes"]}})", viewer);
    EXPECT_EQ(own.status, 201) << own.text;
    const std::string limited(own.body.at("once").at("token").as_string());
    auto nodes = co_await stack.call("GET", "/v1/nodes", {}, limited);
    auto events = co_await stack.call("GET", "/v1/events", {}, limited);
    EXPECT_EQ(nodes.status, 200);
    EXPECT_EQ(events.status, 403);
    auto seen = co_await stack.call("GET", "/v1/tokens", {}, viewer);
    for (const auto& item : seen.body.at("items").as_array()) EXPECT_EQ(item.at("spec").at("user").as_string(), "vera");
    auto foreign = co_await stack.call("DELETE", "/v1/tokens/own", {}, co_await stack.token_for("victor", "operator"));
    EXPECT_EQ(foreign.status, 403);
    auto removed = co_await stack.call("DELETE", "/v1/tokens/own", {}, viewer);
    EXPECT_EQ(removed.status, 200) << removed.text;
    auto dead = co_await stack.call("GET", "/v1/nodes", {}, limited);
    EXPECT_EQ(dead.status, 401);
}

CO_STACK_TEST(Api, CountsWhatMatchesNoRouteAsSuch) {
    std::ignore = co_await stack.get("/v1/nodes");
    auto nothing = co_await stack.get("/v1/nothing"); // on the same connection
    EXPECT_EQ(nothing.status, 404);
    auto metrics = co_await stack.get("/metrics");
    EXPECT_THAT(metrics.text, HasSubstr("route=\"(none)\",status=\"404\"} 1"));
}

CO_STACK_TEST(Api, TellsAboutItself) {
    auto health = co_await stack.call("GET", "/healthz", {}, "");
    auto ready = co_await stack.call("GET", "/readyz", {}, "");
    auto metrics = co_await stack.call("GET", "/metrics", {}, "");
    auto docs = co_await stack.call("GET", "/docs", {}, "");
    auto openapi = co_await stack.call("GET", "/openapi.json", {}, "");
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(ready.status, 200);
    EXPECT_THAT(metrics.text, HasSubstr("orrery_http_requests_total{method=\"POST\",route=\"/v1/login\",status=\"200\"} 1"));
    EXPECT_THAT(docs.text, HasSubstr("/v1/nodes/{name}"));
    EXPECT_EQ(openapi.body.at("openapi").as_string(), "3.1.0");
    for (const auto& route : stack.api->router().routes())
        EXPECT_TRUE(openapi.body.at("paths").as_object().contains(route->pattern)) << route->pattern;
    auto kinds = co_await stack.get("/v1/kinds");
    EXPECT_EQ(kinds.body.at("items").as_array().size(), 20U);
}

} // namespace orrery::api::testing
