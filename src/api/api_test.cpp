#include "api/api.h"
#include "api/server_fixture.h"

#include <boost/asio/post.hpp>
#include <gmock/gmock.h>

#include <future>

namespace orrery::api::testing {

using ::testing::HasSubstr;
using ::testing::Not;

CO_SERVER_TEST(Api, AResourceIsCreatedReadChangedAndDeleted) {
    auto created = co_await server.post("/v1/nodes", R"({"name":"n1","labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(created.status, 201) << created.text;
    EXPECT_EQ(created.body.at("outcome").as_string(), "created");
    const std::string etag(created.headers.get("ETag"));
    auto read = co_await server.get("/v1/nodes/n1");
    EXPECT_EQ(read.status, 200);
    EXPECT_EQ(read.headers.get("ETag"), etag);
    EXPECT_EQ(read.body.at("spec").at("ssh").at("port").as_int64(), 22) << "defaults are filled in";
    auto again = co_await server.post("/v1/nodes", R"({"name":"n1","spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(again.status, 409);
    auto same = co_await server.put("/v1/nodes/n1", R"({"labels":{"role":"web"},"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(same.status, 200) << same.text;
    EXPECT_EQ(same.body.at("outcome").as_string(), "unchanged");
    EXPECT_EQ(same.headers.get("ETag"), etag);
    auto patched = co_await server.call("PATCH", "/v1/nodes/n1", R"({"spec":{"ssh":{"port":2222}}})", server.admin_token);
    EXPECT_EQ(patched.status, 200) << patched.text;
    EXPECT_EQ(patched.body.at("changes").at(0).at("path").as_string(), "spec.ssh.port");
    auto stale =
        co_await server.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", server.admin_token, {{"If-Match", etag}});
    EXPECT_EQ(stale.status, 412) << stale.text;
    auto foreign = co_await server.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", server.admin_token,
                                        {{"If-Match", "\"1-0123456789abcdef\""}});
    EXPECT_EQ(foreign.status, 412) << "an ETag of another store never matches";
    auto fresh = co_await server.call("PUT", "/v1/nodes/n1", R"({"spec":{"address":"10.0.0.2"}})", server.admin_token,
                                      {{"If-Match", std::string(patched.headers.get("ETag"))}});
    EXPECT_EQ(fresh.status, 200) << fresh.text;
    auto gone = co_await server.call("DELETE", "/v1/nodes/n1", {}, server.admin_token);
    EXPECT_EQ(gone.status, 200) << gone.text;
    auto missing = co_await server.get("/v1/nodes/n1");
    EXPECT_EQ(missing.status, 404);
    EXPECT_EQ(missing.code(), "not_found");
}

CO_SERVER_TEST(Api, AllErrorsAreReportedAtOnceAndNothingChanges) {
    auto bad = co_await server.post("/v1/nodes", R"({"name":"N 1","spec":{"adress":"10.0.0.1","ssh":{"port":70000}}})");
    EXPECT_EQ(bad.status, 400);
    EXPECT_THAT(bad.text, HasSubstr("did you mean \\\"address\\\""));
    EXPECT_THAT(bad.text, HasSubstr("spec.ssh.port"));
    EXPECT_THAT(bad.text, HasSubstr("\"name\""));
    auto nodes = co_await server.get("/v1/nodes");
    EXPECT_TRUE(nodes.body.at("items").as_array().empty());
    auto query = co_await server.get("/v1/nodes?lables=a");
    EXPECT_EQ(query.status, 400);
    EXPECT_THAT(query.text, HasSubstr("did you mean \\\"labels\\\""));
    auto broken = co_await server.post("/v1/nodes", "{\"name\":");
    EXPECT_EQ(broken.status, 400);
    auto method = co_await server.call("DELETE", "/v1/nodes", {}, server.admin_token);
    EXPECT_EQ(method.status, 405);
    auto path = co_await server.get("/v1/nonsense");
    EXPECT_EQ(path.status, 404);
}

CO_SERVER_TEST(Api, ADryRunShowsTheOutcomeAndWritesNothing) {
    const auto before = server.store->revision();
    auto dry = co_await server.put("/v1/nodes/n1?dry_run=true", R"({"spec":{"address":"10.0.0.1"}})");
    EXPECT_EQ(dry.status, 201) << dry.text;
    EXPECT_TRUE(dry.body.at("dry_run").as_bool());
    auto token = co_await server.post("/v1/tokens?dry_run", R"({"name":"t","spec":{"role":"viewer"}})");
    EXPECT_EQ(token.status, 201) << token.text;
    EXPECT_FALSE(token.body.as_object().contains("once"));
    EXPECT_EQ(server.store->revision(), before);
}

CO_SERVER_TEST(Api, AReferencedResourceCannotBeDeleted) {
    std::ignore = co_await server.post("/v1/secrets", R"({"name":"key","spec":{"values":{"private_key":"canary"}}})");
    auto dangling = co_await server.post("/v1/nodes", R"({"name":"n1","spec":{"address":"a.example","ssh":{"key":"kee"}}})");
    EXPECT_EQ(dangling.status, 400) << dangling.text;
    auto node = co_await server.post("/v1/nodes", R"({"name":"n1","spec":{"address":"a.example","ssh":{"key":"key"}}})");
    EXPECT_EQ(node.status, 201) << node.text;
    auto refused = co_await server.call("DELETE", "/v1/secrets/key", {}, server.admin_token);
    EXPECT_EQ(refused.status, 409);
    EXPECT_THAT(refused.text, HasSubstr("Node/n1"));
    std::ignore = co_await server.call("DELETE", "/v1/nodes/n1", {}, server.admin_token);
    auto allowed = co_await server.call("DELETE", "/v1/secrets/key", {}, server.admin_token);
    EXPECT_EQ(allowed.status, 200) << allowed.text;
}

CO_SERVER_TEST(Api, ListsAreSelectedAndPaged) {
    for (int i = 0; i < 25; ++i) {
        auto made = co_await server.put(
            fmt::format("/v1/nodes/n{:02}", i),
            fmt::format(R"({{"labels":{{"zone":"{}"}},"spec":{{"address":"10.0.0.{}"}}}})", i % 2 == 0 ? "a" : "b", i + 1));
        EXPECT_EQ(made.status, 201) << made.text;
    }
    std::vector<std::string> names;
    std::string after;
    int pages = 0;
    do {
        auto page = co_await server.get("/v1/nodes?labels=zone%3Da&limit=5" + (after.empty() ? "" : "&continue=" + after));
        for (const auto& item : page.body.at("items").as_array()) names.emplace_back(item.at("name").as_string());
        const auto* next = page.body.as_object().if_contains("continue");
        after = next == nullptr ? "" : std::string(next->as_string());
        ++pages;
    } while (!after.empty() && pages < 10);
    EXPECT_EQ(names.size(), 13U);
    EXPECT_EQ(pages, 3);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    auto bad = co_await server.get("/v1/nodes?limit=0");
    EXPECT_EQ(bad.status, 400);
}

CO_SERVER_TEST(Api, EveryWriteLeavesAnAuditEventWithTheRequestsId) {
    auto made = co_await server.call("PUT", "/v1/nodes/n1?reason=a%20test", R"({"spec":{"address":"10.0.0.1"}})",
                                     server.admin_token, {{"X-Request-Id", "my-context-1"}});
    EXPECT_EQ(made.headers.get("X-Request-Id"), "my-context-1");
    auto events = co_await server.get("/v1/events?context=my-context-1");
    CO_ASSERT(events.body.at("items").as_array().size() == 1);
    const auto& spec = events.body.at("items").at(0).at("spec");
    EXPECT_EQ(spec.at("subject").as_string(), "Node/n1");
    EXPECT_EQ(spec.at("actor").as_string(), "admin");
    EXPECT_EQ(spec.at("action").as_string(), "created");
    EXPECT_EQ(spec.at("reason").as_string(), "a test");
    auto by_subject = co_await server.get("/v1/events?subject=Node/n1");
    EXPECT_EQ(by_subject.body.at("items").as_array().size(), 1U);
    auto written = co_await server.post("/v1/events", R"({"name":"x","spec":{}})");
    EXPECT_EQ(written.status, 405) << "events are appended by the server only";
}

CO_SERVER_TEST(Api, YamlIsAcceptedByContentType) {
    auto made = co_await server.call("PUT", "/v1/nodes/n1", "spec:\n  address: 10.0.0.1\n", server.admin_token,
                                     {{"Content-Type", "application/yaml"}});
    EXPECT_EQ(made.status, 201) << made.text;
}

CO_SERVER_TEST(Api, SecretsAreNeverReturned) {
    auto made = co_await server.post("/v1/secrets", R"({"name":"s","spec":{"description":"d","values":{"k":"canary-value"}}})");
    EXPECT_EQ(made.status, 201) << made.text;
    auto changed =
        co_await server.call("PATCH", "/v1/secrets/s", R"({"spec":{"values":{"k":"canary-other"}}})", server.admin_token);
    EXPECT_EQ(changed.status, 200) << changed.text;
    std::string all = made.text + changed.text;
    for (const auto* target : {"/v1/secrets", "/v1/secrets/s", "/v1/events", "/v1/users", "/v1/tokens"})
        all += (co_await server.get(target)).text;
    EXPECT_EQ(all.find("canary"), std::string::npos);
    EXPECT_EQ(all.find("argon2"), std::string::npos);
    EXPECT_EQ(all.find("correct horse"), std::string::npos);
    auto record = server.store->find("secrets/s");
    EXPECT_EQ(record->value.find("canary"), std::string::npos);
}

CO_SERVER_TEST(Api, ATokenHasAtMostTheRightsOfItsCreator) {
    auto viewer = co_await server.token_for("vera", "viewer");
    auto more = co_await server.call("POST", "/v1/tokens", R"({"name":"more","spec":{"role":"operator"}})", viewer);
    EXPECT_EQ(more.status, 403) << more.text;
    auto other = co_await server.call("POST", "/v1/tokens", R"({"name":"other","spec":{"user":"admin","role":"viewer"}})", viewer);
    EXPECT_EQ(other.status, 403) << other.text;
    auto own = co_await server.call("POST", "/v1/tokens", R"({"name":"own","spec":{"kinds":["nodes"]}})", viewer);
    EXPECT_EQ(own.status, 201) << own.text;
    const std::string limited(own.body.at("once").at("token").as_string());
    auto nodes = co_await server.call("GET", "/v1/nodes", {}, limited);
    auto events = co_await server.call("GET", "/v1/events", {}, limited);
    EXPECT_EQ(nodes.status, 200);
    EXPECT_EQ(events.status, 403);
    auto seen = co_await server.call("GET", "/v1/tokens", {}, viewer);
    for (const auto& item : seen.body.at("items").as_array()) EXPECT_EQ(item.at("spec").at("user").as_string(), "vera");
    auto foreign = co_await server.call("DELETE", "/v1/tokens/own", {}, co_await server.token_for("victor", "operator"));
    EXPECT_EQ(foreign.status, 403);
    auto removed = co_await server.call("DELETE", "/v1/tokens/own", {}, viewer);
    EXPECT_EQ(removed.status, 200) << removed.text;
    auto dead = co_await server.call("GET", "/v1/nodes", {}, limited);
    EXPECT_EQ(dead.status, 401);
}

CO_SERVER_TEST(Api, RequestsWithoutARouteAreCountedAsSuch) {
    std::ignore = co_await server.get("/v1/nodes");
    auto nothing = co_await server.get("/v1/nothing"); // on the same connection
    EXPECT_EQ(nothing.status, 404);
    auto metrics = co_await server.get("/metrics");
    EXPECT_THAT(metrics.text, HasSubstr("route=\"(none)\",status=\"404\"} 1"));
}

CO_TEST(Api, MetricsAndDocsAreOpenAsConfigured) {
    for (const auto allowed : {Anonymous::never, Anonymous::loopback, Anonymous::always}) {
        ServerFixture server;
        server.api_options.anonymous_metrics = server.api_options.anonymous_docs = allowed;
        CO_ASSERT_OK(co_await server.start(loop.get_executor()));
        for (const auto* page : {"/metrics", "/docs", "/openapi.json"}) {
            const auto anonymous = co_await server.call("GET", page, {}, "");
            EXPECT_EQ(anonymous.status, allowed == Anonymous::never ? 401 : 200) << page;
            EXPECT_EQ((co_await server.get(page)).status, 200) << page;
        }
        for (const auto* page : {"/healthz", "/readyz"}) EXPECT_EQ((co_await server.call("GET", page, {}, "")).status, 200) << page;
        co_await server.stop();
    }
    net::Request request;
    for (const auto& [peer, is_local] : std::map<std::string, bool>{{"127.0.0.1", true},
                                                                    {"127.8.8.8", true},
                                                                    {"::1", true},
                                                                    {"::ffff:127.0.0.1", true},
                                                                    {"192.0.2.1", false},
                                                                    {"::ffff:192.0.2.1", false},
                                                                    {"2001:db8::1", false},
                                                                    {"", false}}) {
        request.peer = peer;
        EXPECT_EQ(is_from_loopback(request), is_local) << peer;
    }
}

CO_SERVER_TEST(Api, ATokenWithoutAccessToSecretsCannotReferToThem) {
    EXPECT_EQ((co_await server.post("/v1/secrets", R"({"name":"site","spec":{"values":{"token":"canary-4711"}}})")).status, 201);
    const auto made = co_await server.post("/v1/tokens", R"({"name":"registrar","spec":{"role":"operator","kinds":["Monitor"]}})");
    const std::string token(made.body.at("once").at("token").as_string());
    const auto* monitor = R"({"name":"m","spec":{"kind":"http","headers":{"Authorization":{"secret":"site.token"}}}})";
    const auto refused = co_await server.call("POST", "/v1/monitors", monitor, token);
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.text, HasSubstr("limited to kinds without Secret"));
    const auto taken = co_await server.post("/v1/monitors", monitor);
    EXPECT_EQ(taken.status, 201) << taken.text;
    const auto changed = co_await server.call("PATCH", "/v1/monitors/m", R"({"spec":{"interval":"5s"}})", token);
    EXPECT_EQ(changed.status, 200) << "the reference was there already: " << changed.text;
    for (const auto* page : {"/v1/monitors/m", "/v1/monitors", "/v1/events"})
        EXPECT_THAT((co_await server.get(page)).text, ::testing::Not(HasSubstr("canary-4711"))) << page;
}

CO_SERVER_TEST(Api, ALoginDoesNotWaitForTheThreadsOfJobs) {
    std::promise<void> release;
    const auto released = release.get_future().share();
    for (int i = 0; i < 2; ++i) asio::post(server.pool, [released] { released.wait(); });
    auto login = co_await server.call("POST", "/v1/login", R"({"user":"admin","password":"correct horse battery"})", "");
    release.set_value();
    EXPECT_EQ(login.status, 200) << login.text;
}

CO_SERVER_TEST(Api, AMigrationThatIsRefusedLeavesNoEvent) {
    auto refused = co_await server.post("/v1/store/migrate", R"({"to":"etcd://root:hunter2@h:2379"})");
    EXPECT_EQ(refused.status, 400) << refused.text;
    EXPECT_THAT(refused.text, Not(HasSubstr("hunter2")));
    auto events = co_await server.get("/v1/events");
    EXPECT_THAT(events.text, Not(HasSubstr("migration-started")));
    EXPECT_THAT(events.text, Not(HasSubstr("hunter2")));
}

CO_SERVER_TEST(Api, AUrlWithCredentialsIsRefusedAndNotRepeated) {
    const std::vector<std::pair<std::string, std::string>> bodies{
        {"/v1/publishers", R"({"name":"p","spec":{"driver":"externaldns","url":"https://root:hunter2@h/"}})"},
        {"/v1/sources", R"({"name":"s","spec":{"driver":"prometheus","url":"https://root:hunter2@h/"}})"},
        {"/v1/instances",
         R"({"name":"i","spec":{"service":"web","node":"n","checks":[{"id":"c","kind":"http","url":"http://root:hunter2@h/"}]}})"}};
    for (const auto& [path, body] : bodies) {
        auto refused = co_await server.post(path, body);
        EXPECT_EQ(refused.status, 400) << path << refused.text;
        EXPECT_THAT(refused.text, HasSubstr("must not hold a user or a password")) << path;
        EXPECT_THAT(refused.text, Not(HasSubstr("hunter2"))) << path;
    }
    auto events = co_await server.get("/v1/events");
    EXPECT_THAT(events.text, Not(HasSubstr("hunter2")));
}

CO_SERVER_TEST(Api, DescribesItself) {
    auto health = co_await server.call("GET", "/healthz", {}, "");
    auto ready = co_await server.call("GET", "/readyz", {}, "");
    auto metrics = co_await server.call("GET", "/metrics", {}, "");
    auto docs = co_await server.call("GET", "/docs", {}, "");
    auto openapi = co_await server.call("GET", "/openapi.json", {}, "");
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(ready.status, 200);
    EXPECT_THAT(metrics.text, HasSubstr("orrery_http_requests_total{method=\"POST\",route=\"/v1/login\",status=\"200\"} 1"));
    EXPECT_THAT(docs.text, HasSubstr("/v1/nodes/{name}"));
    EXPECT_EQ(openapi.body.at("openapi").as_string(), "3.1.0");
    for (const auto& route : server.api->router().routes())
        EXPECT_TRUE(openapi.body.at("paths").as_object().contains(route->pattern)) << route->pattern;
    auto kinds = co_await server.get("/v1/kinds");
    EXPECT_EQ(kinds.body.at("items").as_array().size(), server.registry.all().size());
}

} // namespace orrery::api::testing
