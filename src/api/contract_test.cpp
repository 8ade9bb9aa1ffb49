#include "api/server_fixture.h"
#include "core/text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

/// What clients that were generated from OpenAPI, and HTTP itself, rely on.
namespace orrery::api::testing {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

namespace {

std::vector<std::string> wrong_fields(const Answer& answer) {
    std::vector<std::string> out;
    if (const auto* fields = answer.body.as_object().if_contains("fields"))
        for (const auto& field : fields->as_array()) out.emplace_back(field.at("path").as_string());
    return out;
}

} // namespace

CO_SERVER_TEST(Contract, AMethodThatIsNotAllowedIsAnsweredWithTheAllowedOnes) {
    auto answer = co_await server.call("DELETE", "/v1/nodes", "", server.admin_token);
    EXPECT_EQ(answer.status, 405);
    EXPECT_EQ(answer.headers.get("Allow"), "GET, HEAD, POST");
    answer = co_await server.call("PATCH", "/metrics", "", "");
    EXPECT_EQ(answer.status, 405);
    EXPECT_EQ(answer.headers.get("Allow"), "GET, HEAD");
}

CO_SERVER_TEST(Contract, InvalidContinueTokensAreRefused) {
    for (int i = 0; i < 3; ++i)
        std::ignore = co_await server.put(fmt::format("/v1/nodes/n{}", i), R"({"spec":{"address":"10.0.0.1"}})");
    const auto page = co_await server.get("/v1/nodes?limit=1");
    const std::string token(page.body.at("continue").as_string());
    EXPECT_EQ((co_await server.get("/v1/nodes?limit=1&continue=" + token)).body.at("items").at(0).at("name").as_string(), "n1");
    for (const std::string bad : {"garbage", "n0", "0123456789abcdef.n0"}) {
        const auto answer = co_await server.get("/v1/nodes?continue=" + bad);
        EXPECT_EQ(answer.status, 400) << bad;
        EXPECT_THAT(wrong_fields(answer), ElementsAre("?continue"));
    }
    EXPECT_EQ((co_await server.get("/v1/secrets?continue=" + token)).status, 400) << "a token of another list";
}

CO_SERVER_TEST(Contract, AllBadQueryParametersAreReportedAtOnce) {
    const auto answer = co_await server.get("/v1/events?limit=abc&foo=1&watch=x&order=random&since=yesterday&labels=%3D%3D");
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(wrong_fields(answer), ElementsAre("?limit", "?foo", "?watch", "?order", "?since", "?labels"));
}

CO_SERVER_TEST(Contract, AnEmptyBodyOfAVerbIsAnEmptyObject) {
    EXPECT_EQ((co_await server.post("/v1/jobs/nope/cancel", "")).status, 404);
    EXPECT_EQ((co_await server.post("/v1/nodes", "")).status, 400) << "a resource needs its body";
}

CO_SERVER_TEST(Contract, ErrorTextsAreTruncatedBetweenCharacters) {
    for (int offset = 0; offset < 5; ++offset) {
        std::string name(static_cast<std::size_t>(offset), 'x');
        for (int i = 0; i < 60; ++i) name += "\xf0\x9f\x98\x80";
        for (const auto& body : {fmt::format(R"({{"name":"a","{}":1,"spec":{{"address":"10.0.0.1"}}}})", name),
                                 fmt::format(R"({{"name":"a","spec":{{"address":"{}"}}}})", name)}) {
            const auto answer = co_await server.post("/v1/nodes", body);
            EXPECT_EQ(answer.status, 400);
            EXPECT_TRUE(parse_json(answer.text).ok()) << "not JSON: " << answer.text;
        }
        const auto listed = co_await server.get("/v1/nodes?limit=" + net::percent_encode(name));
        EXPECT_TRUE(parse_json(listed.text).ok()) << "not JSON: " << listed.text;
    }
}

CO_SERVER_TEST(Contract, OpenApiDeclaresWhatAnswersAndRequestsHave) {
    const auto document = (co_await server.get("/openapi.json")).body;
    const auto& paths = document.at("paths").as_object();
    const auto& put = paths.at("/v1/nodes/{name}").at("put").as_object();
    EXPECT_TRUE(put.at("responses").as_object().contains("200"));
    EXPECT_TRUE(put.at("responses").as_object().contains("201"));
    EXPECT_TRUE(put.at("responses").at("200").at("headers").as_object().contains("ETag"));
    std::set<std::string> headers;
    for (const auto& parameter : put.at("parameters").as_array())
        if (parameter.at("in") == "header") headers.emplace(parameter.at("name").as_string());
    EXPECT_THAT(headers, ElementsAre("If-Match", "If-None-Match"));
    EXPECT_TRUE(put.at("requestBody").at("content").as_object().contains("application/yaml"));
    EXPECT_EQ(put.at("operationId").as_string(), "replaceNode");
    for (const auto& parameter : paths.at("/v1/nodes").at("get").at("parameters").as_array())
        if (parameter.at("name") == "limit") {
            EXPECT_EQ(parameter.at("schema").at("minimum").as_int64(), 1);
            EXPECT_EQ(parameter.at("schema").at("maximum").as_int64(), 5000);
        }
    const auto& schemas = document.at("components").at("schemas").as_object();
    EXPECT_EQ(to_json_text(schemas.at("NodeRequest").at("required")), R"(["name","spec"])");
    EXPECT_EQ(to_json_text(schemas.at("NodeReplacement").at("required")), R"(["spec"])");
    EXPECT_EQ(to_json_text(schemas.at("PoolReplacement").at("properties").at("spec").at("type")), R"(["object","null"])");
    EXPECT_EQ(schemas.at("User").at("properties").at("spec").at("properties").at("password").at("const").as_string(), "(sealed)");
    std::set<std::string> ids; // generated clients make function names from them
    for (const auto& [path, methods] : paths)
        for (const auto& [method, operation] : methods.as_object()) {
            EXPECT_TRUE(ids.emplace(operation.at("operationId").as_string()).second) << path << " " << method;
            EXPECT_THAT(std::string(operation.at("operationId").as_string()), MatchesRegex("[a-z][A-Za-z]+")) << path;
        }
    EXPECT_TRUE(ids.contains("postJobsCancel"));
    EXPECT_TRUE(ids.contains("getKosmosGslbsByName"));
}

CO_SERVER_TEST(Contract, MetricsHaveOneHeadEachAndAHelpText) {
    const auto text = (co_await server.get("/metrics")).text;
    std::map<std::string, int> types, helps;
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
        const auto line = text.substr(at, text.find('\n', at) - at);
        const auto name = line.substr(0, line.find(' ', 7)).substr(line.starts_with("# ") ? 7 : 0);
        if (line.starts_with("# TYPE ")) EXPECT_EQ(++types[name], 1) << name;
        if (line.starts_with("# HELP ")) EXPECT_EQ(++helps[name], 1) << name;
    }
    EXPECT_EQ(types.size(), helps.size());
    EXPECT_TRUE(types.contains("orrery_store_revision"));
}

CO_SERVER_TEST(Contract, KosmosBodiesAreDescribedAndListsArePaged) {
    for (const auto* name : {"a", "b", "c"})
        EXPECT_EQ((co_await server.post("/v0.1/pools", fmt::format(R"({{"pool":{{"name":"{}"}}}})", name))).status, 201);
    auto page = co_await server.get("/v0.1/pools?limit=2");
    EXPECT_EQ(page.body.at("pools").as_array().size(), 2U);
    EXPECT_EQ(to_json_text(page.body.at("pools_links")), R"([{"rel":"next","href":"/v0.1/pools?limit=2&marker=b"}])");
    page = co_await server.get("/v0.1/pools?limit=2&marker=b");
    EXPECT_EQ(page.body.at("pools").at(0).at("id").as_string(), "c");
    EXPECT_FALSE(page.body.as_object().contains("pools_links"));
    EXPECT_EQ((co_await server.get("/v0.1/pools?marker=nope")).status, 400);
    EXPECT_EQ((co_await server.get("/v0.1/pools?limit=0")).status, 400);
    EXPECT_EQ((co_await server.get("/v0.1/pools/nope/pool_members")).status, 404);
    EXPECT_EQ((co_await server.post("/v0.1/pools", R"({"pool":{"name":"d"},"name":"e"})")).status, 400);
    const auto document = (co_await server.get("/openapi.json")).body;
    const auto& member = document.at("components").at("schemas").at("KosmosPoolMember").at("properties").as_object();
    for (const auto* field : {"id", "name", "type", "region", "neutron_id", "endpoints", "monitors", "status", "links"})
        EXPECT_TRUE(member.contains(field)) << field;
    const auto& create =
        document.at("paths").at("/v0.1/monitors").at("post").at("requestBody").at("content").at("application/json");
    const auto& wrapped = create.at("schema").at("anyOf").at(0).at("properties").at("monitor").at("properties").as_object();
    for (const auto* field : {"delay", "max_retries", "url_path", "expected_codes", "payload"})
        EXPECT_TRUE(wrapped.contains(field)) << field;
}

} // namespace orrery::api::testing
