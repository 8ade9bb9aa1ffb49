#include "api/server_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::api {

namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ServerFixture;

net::Headers webhook_headers() {
    net::Headers out;
    out.set("Accept", "application/external.dns.webhook+json;version=1");
    out.set("Content-Type", "application/external.dns.webhook+json;version=1");
    return out;
}

asio::awaitable<std::string> a_cluster(ServerFixture& server, std::string name, std::string site) {
    const auto made = co_await server.post(
        "/v1/clusters", fmt::format(R"({{"name":"{}","spec":{{"site":"{}","domains":["apps.test"]}}}})", name, site));
    EXPECT_EQ(made.status, 201) << made.text;
    co_return std::string(made.body.at("once").at("path").as_string());
}

std::string creates(std::string_view host, std::string_view address) {
    return fmt::format(
        R"({{"create":[{{"dnsName":"{0}","recordType":"A","targets":["{1}"],"recordTTL":20,"labels":{{"owner":"k"}}}},
        {{"dnsName":"a-{0}","recordType":"TXT","targets":["\"heritage=external-dns,external-dns/owner=k\""]}}]}})",
        host, address);
}

} // namespace

CO_SERVER_TEST(ExternalDns, MembersOfOneNameComeFromManyClusters) {
    const auto ams = co_await a_cluster(server, "ams", "amsterdam"), nyc = co_await a_cluster(server, "nyc", "new-york");
    const auto headers = webhook_headers();
    auto answer = co_await server.call("GET", ams, "", "", headers);
    EXPECT_EQ(answer.text, R"({"filters":["apps.test"]})");
    EXPECT_EQ(answer.headers.get("Content-Type"), "application/external.dns.webhook+json;version=1");
    EXPECT_EQ((co_await server.call("GET", ams + "/", "", "", headers)).status, 200);
    EXPECT_EQ((co_await server.call("GET", ams + "/records", "", "", headers)).text, "[]");
    answer = co_await server.call("POST", ams + "/records", creates("www.apps.test", "192.0.2.1"), "", headers);
    EXPECT_EQ(answer.status, 204) << answer.text;
    answer = co_await server.call("POST", nyc + "/records", creates("www.apps.test", "192.0.2.9"), "", headers);
    EXPECT_EQ(answer.status, 204) << answer.text;

    answer = co_await server.get("/v1/members/nyc-192-0-2-9.www.apps.test");
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.at("spec").at("site").as_string(), "new-york");
    EXPECT_EQ(answer.body.at("spec").at("pool").as_string(), "www.apps.test");
    answer = co_await server.get("/v1/loadbalancers/www.apps.test");
    EXPECT_EQ(answer.body.at("spec").at("zone").as_string(), "apps.test");
    EXPECT_EQ(answer.body.at("spec").at("ttl").at("max").as_string(), "20s");
    // Its own registry records are returned unchanged; those of another cluster are not returned.
    answer = co_await server.call("GET", ams + "/records", "", "", headers);
    EXPECT_EQ(answer.body.as_array().size(), 2U) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(R"("targets":["\"heritage=external-dns,external-dns/owner=k\""])"));
    EXPECT_THAT(answer.text, HasSubstr(R"("labels":{"owner":"k"})"));
    EXPECT_THAT(answer.text, Not(HasSubstr("192.0.2.9")));

    // A person's word stays when the address set grows.
    const auto drained = co_await server.call("PATCH", "/v1/members/ams-192-0-2-1.www.apps.test",
                                              R"({"spec":{"override":{"state":"drain"}}})", server.admin_token);
    EXPECT_EQ(drained.status, 200) << drained.text;
    answer = co_await server.call("POST", ams + "/records",
                                  R"({"create":[{"dnsName":"www.apps.test","recordType":"AAAA","targets":["2001:db8::1"]}]})", "",
                                  headers);
    EXPECT_EQ(answer.status, 204) << answer.text;
    answer = co_await server.get("/v1/members/ams-192-0-2-1.www.apps.test");
    EXPECT_EQ(answer.body.at("spec").at("addresses").as_array().size(), 2U) << answer.text;
    EXPECT_EQ(answer.body.at("spec").at("override").at("state").as_string(), "drain");

    const std::string gone =
        R"({"delete":[{"dnsName":"www.apps.test","recordType":"A","targets":["192.0.2.9"]},{"dnsName":"a-www.apps.test","recordType":"TXT"}]})";
    EXPECT_EQ((co_await server.call("POST", nyc + "/records", gone, "", headers)).status, 204);
    EXPECT_EQ((co_await server.get("/v1/members/nyc-192-0-2-9.www.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/www.apps.test")).status, 200);
    const std::string rest =
        R"({"delete":[{"dnsName":"www.apps.test","recordType":"A"},{"dnsName":"www.apps.test","recordType":"AAAA"}]})";
    EXPECT_EQ((co_await server.call("POST", ams + "/records", rest, "", headers)).status, 204);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/www.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/pools/www.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/clusters/ams")).body.at("status").at("records").as_int64(), 1);
}

CO_SERVER_TEST(ExternalDns, ResourcesOfUsersAreKept) {
    EXPECT_EQ((co_await server.post("/v1/pools", R"({"name":"www.apps.test","spec":{"site":"own"}})")).status, 201);
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    const auto headers = webhook_headers();
    EXPECT_EQ((co_await server.call("POST", path + "/records", creates("www.apps.test", "192.0.2.1"), "", headers)).status, 204);
    // A member that a user removes is sent again, because the listing does not show it.
    EXPECT_EQ((co_await server.call("DELETE", "/v1/members/ams-192-0-2-1.www.apps.test", "", server.admin_token)).status, 200);
    auto answer = co_await server.call("GET", path + "/records", "", "", headers);
    EXPECT_THAT(answer.text, Not(HasSubstr("192.0.2.1")));
    EXPECT_EQ((co_await server.call("POST", path + "/records", creates("www.apps.test", "192.0.2.1"), "", headers)).status, 204);
    EXPECT_EQ((co_await server.get("/v1/members/ams-192-0-2-1.www.apps.test")).status, 200);
    EXPECT_EQ((co_await server.call("POST", path + "/records", R"({"delete":[{"dnsName":"www.apps.test","recordType":"A"}]})", "",
                                    headers))
                  .status,
              204);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/www.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/pools/www.apps.test")).status, 200);
}

CO_SERVER_TEST(ExternalDns, TheMembersOfADeletedClusterAreRemoved) {
    const auto ams = co_await a_cluster(server, "ams", "amsterdam"), nyc = co_await a_cluster(server, "nyc", "new-york");
    const auto headers = webhook_headers();
    EXPECT_EQ((co_await server.call("POST", ams + "/records", creates("www.apps.test", "192.0.2.1"), "", headers)).status, 204);
    EXPECT_EQ((co_await server.call("POST", ams + "/records", creates("only.apps.test", "192.0.2.2"), "", headers)).status, 204);
    EXPECT_EQ((co_await server.call("POST", nyc + "/records", creates("www.apps.test", "192.0.2.9"), "", headers)).status, 204);
    auto answer = co_await server.call("DELETE", "/v1/clusters/ams", "", server.admin_token);
    EXPECT_EQ(answer.status, 409);
    EXPECT_THAT(answer.text, HasSubstr("POST /v1/clusters/ams/forget"));
    answer = co_await server.post("/v1/clusters/ams/forget", "");
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.at("removed").as_int64(), 4);
    EXPECT_EQ((co_await server.get("/v1/members")).body.at("items").as_array().size(), 1U);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/only.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/www.apps.test")).status, 200);
    EXPECT_EQ((co_await server.call("DELETE", "/v1/clusters/ams", "", server.admin_token)).status, 200);
}

CO_SERVER_TEST(ExternalDns, AnInterruptedRemovalIsCompletedByTheNextChange) {
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    const auto headers = webhook_headers();
    EXPECT_EQ((co_await server.call("POST", path + "/records", creates("www.apps.test", "192.0.2.1"), "", headers)).status, 204);
    // As if the server had ended before the records were written, or before members were taken away.
    EXPECT_EQ(
        (co_await server.post("/v1/pools", R"({"name":"cut.apps.test","labels":{"made-for":"externaldns"},"spec":{}})")).status,
        201);
    const auto stray =
        R"({"name":"ams-192-0-2-7.cut.apps.test","labels":{"externaldns":"ams"},"spec":{"pool":"cut.apps.test","addresses":["192.0.2.7"]}})";
    EXPECT_EQ((co_await server.post("/v1/members", stray)).status, 201);
    // The members of this one had gone already.
    EXPECT_EQ(
        (co_await server.post("/v1/pools", R"({"name":"bare.apps.test","labels":{"made-for":"externaldns"},"spec":{}})")).status,
        201);
    EXPECT_EQ((co_await server.post("/v1/loadbalancers", R"({"name":"bare.apps.test","labels":{"made-for":"externaldns"},
        "spec":{"fqdn":"bare.apps.test","zone":"apps.test","pools":[{"pool":"bare.apps.test"}]}})"))
                  .status,
              201);
    const auto moved = co_await server.call("PATCH", "/v1/members/ams-192-0-2-1.www.apps.test",
                                            R"({"spec":{"addresses":["192.0.2.1","2001:db8::1"]}})", server.admin_token);
    EXPECT_EQ(moved.status, 200) << moved.text;
    EXPECT_EQ((co_await server.call("POST", path + "/records", creates("other.apps.test", "192.0.2.2"), "", headers)).status, 204);
    EXPECT_EQ((co_await server.get("/v1/members/ams-192-0-2-7.cut.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/pools/cut.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/bare.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/pools/bare.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/pools/www.apps.test")).status, 200);
    const auto put_right = co_await server.get("/v1/members/ams-192-0-2-1.www.apps.test");
    EXPECT_EQ(put_right.body.at("spec").at("addresses").as_array().size(), 1U) << put_right.text;
    EXPECT_EQ((co_await server.get("/v1/clusters/ams")).body.at("status").at("changes").as_int64(), 2);
    EXPECT_EQ((co_await server.get("/v1/clusters/ams")).body.at("status").at("records").as_int64(), 4);
}

CO_SERVER_TEST(ExternalDns, AnInterruptedRemovalIsCompletedWithoutAnotherChange) {
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    const auto headers = webhook_headers();
    EXPECT_EQ((co_await server.call("POST", path + "/records", creates("www.apps.test", "192.0.2.1"), "", headers)).status, 204);
    EXPECT_EQ(
        (co_await server.post("/v1/pools", R"({"name":"bare.apps.test","labels":{"made-for":"externaldns"},"spec":{}})")).status,
        201);
    EXPECT_EQ((co_await server.call("GET", path + "/records", "", "", headers)).status, 200);
    EXPECT_EQ((co_await server.get("/v1/pools/bare.apps.test")).status, 200) << "nothing was cut off: nothing is looked for";
    // A change that was started and not finished.
    const auto& kind = *server.resources->registry().find("Cluster");
    auto status = server.resources->get(kind, "ams")->status;
    EXPECT_EQ(status.at("finished"), status.at("changes"));
    status["changes"] = status.at("changes").as_int64() + 1;
    CO_ASSERT_OK(co_await server.resources->set_status(Context::background(), kind, "ams", std::move(status), {}));
    const auto shown = co_await server.call("GET", path + "/records", "", "", headers);
    EXPECT_EQ(shown.status, 200);
    EXPECT_EQ(shown.body.as_array().size(), 2U) << shown.text;
    EXPECT_EQ((co_await server.get("/v1/pools/bare.apps.test")).status, 404);
    EXPECT_EQ((co_await server.get("/v1/members/ams-192-0-2-1.www.apps.test")).status, 200);
    const auto after = server.resources->get(kind, "ams")->status;
    EXPECT_EQ(after.at("finished"), after.at("changes"));
}

CO_SERVER_TEST(ExternalDns, ManyNamesInOneChange) {
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    const auto headers = webhook_headers();
    std::string all;
    for (int i = 0; i < 100; ++i)
        all += fmt::format(R"({}{{"dnsName":"n{}.apps.test","recordType":"A","targets":["192.0.2.{}"]}})", i == 0 ? "" : ",", i,
                           i % 250 + 1);
    auto answer = co_await server.call("POST", path + "/records", fmt::format(R"({{"create":[{}]}})", all), "", headers);
    EXPECT_EQ(answer.status, 204) << answer.text;
    EXPECT_EQ((co_await server.get("/v1/clusters/ams")).body.at("status").at("records").as_int64(), 100);
    EXPECT_EQ((co_await server.get("/v1/loadbalancers/n99.apps.test")).status, 200);
    answer = co_await server.call("POST", path + "/records", fmt::format(R"({{"delete":[{}]}})", all), "", headers);
    EXPECT_EQ(answer.status, 204) << answer.text;
    for (const auto* kind : {"members", "pools", "loadbalancers", "clusterrecords"})
        EXPECT_EQ((co_await server.get(fmt::format("/v1/{}", kind))).body.at("items").as_array().size(), 0U) << kind;
}

CO_SERVER_TEST(ExternalDns, OnlyTheClustersTokenIsAcceptedAndItIsNeverShown) {
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    const auto token = path.substr(path.rfind('/') + 1);
    EXPECT_GE(token.size(), 50U);
    const auto headers = webhook_headers();
    EXPECT_EQ((co_await server.call("GET", "/externaldns/ams/" + std::string(token.size(), 'a'), "", "", headers)).status, 404);
    EXPECT_EQ((co_await server.call("GET", "/externaldns/other/" + token, "", "", headers)).status, 404);
    for (const auto* where : {"/v1/clusters/ams", "/v1/clusters", "/v1/events"}) {
        const auto shown = co_await server.get(where);
        EXPECT_EQ(shown.status, 200);
        EXPECT_THAT(shown.text, Not(HasSubstr(token))) << where;
    }
    // The token is not repeated to the client that sent it.
    for (const auto* tail : {"/nothing", "/records/more", "/records?token=x"}) {
        const auto shown = co_await server.call("GET", path + tail, "", "", headers);
        EXPECT_GE(shown.status, 400);
        EXPECT_THAT(shown.text, Not(HasSubstr(token))) << tail;
    }
    EXPECT_THAT((co_await server.call("DELETE", path + "/records", "", "", headers)).text, Not(HasSubstr(token)));
    // A token of one's own.
    const auto changed = co_await server.call("PATCH", "/v1/clusters/ams",
                                              R"({"spec":{"token":"0123456789abcdef0123456789ABCDEF"}})", server.admin_token);
    EXPECT_EQ(changed.status, 200) << changed.text;
    EXPECT_EQ((co_await server.call("GET", path, "", "", headers)).status, 404);
    EXPECT_EQ((co_await server.call("GET", "/externaldns/ams/0123456789abcdef0123456789ABCDEF", "", "", headers)).status, 200);
    const auto bad = co_await server.call("PATCH", "/v1/clusters/ams", R"({"spec":{"token":"0123456789abcdef0123456789/BCDEF"}})",
                                          server.admin_token);
    EXPECT_EQ(bad.status, 400) << bad.text;
}

CO_SERVER_TEST(ExternalDns, RefusesOtherTypesAndBadBodies) {
    const auto path = co_await a_cluster(server, "ams", "amsterdam");
    auto headers = webhook_headers();
    headers.set("Accept", "application/external.dns.webhook+json;version=2");
    EXPECT_EQ((co_await server.call("GET", path + "/records", "", "", headers)).status, 406);
    headers = webhook_headers();
    headers.set("Content-Type", "application/json");
    EXPECT_EQ((co_await server.call("POST", path + "/records", "{}", "", headers)).status, 415);
    headers = webhook_headers();
    auto answer = co_await server.call("POST", path + "/records", R"({"create":[{"dnsName":"x"}]})", "", headers);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.text, HasSubstr("create[0].recordType"));
    answer = co_await server.call("POST", path + "/records", creates("www.elsewhere.test", "192.0.2.1"), "", headers);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.text, HasSubstr("outside the domains of the cluster"));
    EXPECT_EQ((co_await server.get("/v1/members")).body.at("items").as_array().size(), 0U);
    answer = co_await server.call(
        "POST", path + "/adjustendpoints",
        R"([{"dnsName":"www.apps.test","recordType":"A","targets":["192.0.2.1"],"providerSpecific":[{"name":"alias","value":"false"}]},
                                     {"dnsName":"lb.apps.test","recordType":"CNAME","targets":["elb.test"]}])",
        "", headers);
    EXPECT_EQ(answer.status, 200) << answer.text;
    EXPECT_EQ(answer.body.as_array().size(), 1U);
    EXPECT_THAT(answer.text, HasSubstr("providerSpecific"));
    EXPECT_THAT((co_await server.get("/v1/clusters/ams")).text, HasSubstr("lb.apps.test CNAME: a CNAME record cannot"));
}

} // namespace orrery::api
