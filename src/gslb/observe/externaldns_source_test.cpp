#include "gslb/observe/externaldns_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::gslb {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

ClusterEndpoint an_endpoint(std::string name, std::string type, std::vector<std::string> targets) {
    json::array list(targets.begin(), targets.end());
    return *read_cluster_endpoint(json::object{{"dnsName", name}, {"recordType", type}, {"targets", std::move(list)}}, "x");
}

std::string complaint(const Error& error) {
    return error.fields.empty() ? error.message : error.fields[0].path + ": " + error.fields[0].message;
}

} // namespace

TEST(ExternalDnsSource, ParsesChanges) {
    const auto changes = read_cluster_changes(
        R"({"create":[{"dnsName":"WWW.Apps.Example.","recordType":"A","recordTTL":60,"targets":["192.0.2.1"],"labels":{"owner":"k"}}],
            "updateOld":[{"dnsName":"a.apps.example","recordType":"A","targets":["192.0.2.2"],"setIdentifier":"s"}],
            "updateNew":[{"dnsName":"a.apps.example","recordType":"A","targets":["192.0.2.3"],"setIdentifier":"s"}],
            "delete":null})");
    ASSERT_TRUE(changes.ok());
    ASSERT_EQ(changes->put.size(), 2U);
    EXPECT_EQ(changes->put[0].name, "www.apps.example");
    EXPECT_EQ(changes->put[0].ttl, 60U);
    EXPECT_EQ(changes->put[0].as_given.at("labels").at("owner").as_string(), "k");
    EXPECT_EQ(changes->put[1].record_name("k"), changes->removed.at(0).record_name("k"));
    EXPECT_NE(changes->put[0].record_name("k"), changes->put[1].record_name("k"));
}

TEST(ExternalDnsSource, ErrorsNameTheirPositionInTheBody) {
    EXPECT_THAT(complaint(read_cluster_changes("[]").error()), HasSubstr("(body)"));
    EXPECT_THAT(complaint(read_cluster_changes(R"({"create":5})").error()), HasSubstr("create: must be a list"));
    EXPECT_THAT(complaint(read_cluster_changes(R"({"create":[{"recordType":"A"}]})").error()), HasSubstr("create[0].dnsName"));
    EXPECT_THAT(complaint(read_cluster_changes(R"({"updateNew":[{"dnsName":"a.b","recordType":"A"}]})").error()),
                HasSubstr("must pair with updateOld"));
    EXPECT_THAT(complaint(read_cluster_endpoints(R"([{"dnsName":"a.b","recordType":"A","targets":[1]}])").error()),
                HasSubstr("(body)[0].targets"));
    EXPECT_THAT(complaint(read_cluster_endpoints(R"([{"dnsName":"a\nb","recordType":"A"}])").error()), HasSubstr("one line"));
    std::string many = "[";
    for (std::size_t at = 0; at <= max_cluster_endpoints; ++at) many += at == 0 ? "{}" : ",{}";
    EXPECT_THAT(complaint(read_cluster_endpoints(many + "]").error()), HasSubstr("at most 5000"));
    EXPECT_THAT(complaint(read_cluster_endpoints(R"([{"dnsName":"a.b","recordType":"A","labels":{"x":")" +
                                                 std::string(max_cluster_endpoint_size, 'x') + R"("}}])")
                              .error()),
                HasSubstr("bytes"));
}

TEST(ExternalDnsSource, AcceptsAddressesOfItsDomainsOnly) {
    const std::vector<std::string> domains{"example", "apps.example"};
    EXPECT_THAT(cluster_refusal(an_endpoint("www.apps.example", "A", {"192.0.2.1"}), domains), IsEmpty());
    EXPECT_THAT(cluster_refusal(an_endpoint("*.apps.example", "AAAA", {"2001:db8::1"}), domains), IsEmpty());
    EXPECT_THAT(cluster_refusal(an_endpoint("a-elsewhere.org", "TXT", {"heritage"}), domains), IsEmpty());
    EXPECT_THAT(cluster_refusal(an_endpoint("www.elsewhere.org", "A", {"192.0.2.1"}), domains),
                HasSubstr("outside the domains of the cluster"));
    EXPECT_THAT(cluster_refusal(an_endpoint("wwwexample", "A", {"192.0.2.1"}), domains),
                HasSubstr("outside the domains of the cluster"));
    EXPECT_THAT(cluster_refusal(an_endpoint("www.example", "CNAME", {"x.example"}), domains), HasSubstr("CNAME"));
    EXPECT_THAT(cluster_refusal(an_endpoint("www.example", "A", {"2001:db8::1"}), domains), HasSubstr("is not an IPv4 address"));
    EXPECT_THAT(cluster_refusal(an_endpoint("www.example", "A", {}), domains), HasSubstr("no target"));
    EXPECT_EQ(cluster_domain("www.apps.example", domains), "apps.example");
}

TEST(ExternalDnsSource, CreatesMembersFromAddresses) {
    const auto a = an_endpoint("www.example", "A", {"192.0.2.1"}), six = an_endpoint("www.example", "AAAA", {"2001:DB8::1"});
    EXPECT_THAT(cluster_members("k", "www.example", {a, six}),
                ElementsAre(Pair("k-192-0-2-1.www.example", ElementsAre("192.0.2.1", "2001:db8::1"))));
    const auto two = an_endpoint("www.example", "A", {"192.0.2.2", "192.0.2.1"});
    EXPECT_THAT(cluster_members("k", "www.example", {two, six}),
                ElementsAre(Pair("k-192-0-2-1.www.example", ElementsAre("192.0.2.1")),
                            Pair("k-192-0-2-2.www.example", ElementsAre("192.0.2.2")),
                            Pair("k-2001-db8--1.www.example", ElementsAre("2001:db8::1"))));
    EXPECT_EQ(cluster_pool_name("www.example"), "www.example");
    EXPECT_THAT(cluster_pool_name("*.example"), HasSubstr("host-"));
    EXPECT_NE(cluster_pool_name("*.example"), cluster_pool_name("*.example.org"));
}

TEST(ExternalDnsSource, ComparesSecrets) {
    EXPECT_TRUE(same_secret("abc", "abc"));
    EXPECT_FALSE(same_secret("abd", "abc"));
    EXPECT_FALSE(same_secret("ab", "abc"));
    EXPECT_FALSE(same_secret("", ""));
}

} // namespace orrery::gslb
