#include "cli/cli_fixture.h"

#include <fmt/format.h>

namespace orrery::cli {
namespace {

using ::testing::HasSubstr;

class Gslb : public CliTest {
protected:
    Gslb() {
        api.intercept = [this](const net::Request& request, const std::string&) -> std::optional<net::Response> {
            const auto found = answers_of.find(request.method + " " + request.target.path);
            if (found == answers_of.end()) return {};
            return net::Response{200, {{"Content-Type", "application/json"}}, found->second};
        };
    }
    std::map<std::string, std::string> answers_of;
};

TEST_F(Gslb, WhyShowsTheAnswerAndItsMessages) {
    answers_of["GET /v1/loadbalancers/www/why"] =
        R"x({"loadbalancer":"www","fqdn":"www.gslb.test","decision":{"condition":"failover"},
        "answer":{"pools":["us"],"answers":[{"member":"us-1","pool":"us","addresses":["192.0.2.9","2001:db8::9"],"weight":3}],"ttl":20},
        "client":{"address":"198.51.100.7","class":"office"},
        "messages":["pool eu is not usable: 0 of 2 healthy, needs 1","eu-1 in eu: refused\u001b[2J","us answers"],
        "withheld":[{"cause":"failback","about":"eu","message":"pool eu is usable again","until":"2026-11-16T05:00:00.000Z"},
        {"cause":"quorum_hold","about":"us-2","message":"web: home reports refused; 1 of 3 down, need 2"}],
        "record":{"at":"2026-11-16T04:00:00.000Z","seq":7,"cause":"probe"},
        "failover_time":{"bounded":true,"worst":"21s","detection":"7s","vantages":"7s","publication":"1s","ttl":"6s","warnings":["lower spec.ttl.max"]}})x";
    EXPECT_EQ(run({"gslb", "why", "www", "--client", "198.51.100.7"}), 0) << err;
    EXPECT_EQ(out, "www.gslb.test answers from us (ttl 20s, failover)\n"
                   "  us-1 192.0.2.9, 2001:db8::9 weight 3\n"
                   "  for 198.51.100.7, one of office\n"
                   "messages\n"
                   "  pool eu is not usable: 0 of 2 healthy, needs 1\n"
                   "  eu-1 in eu: refused\\x1b[2J\n"
                   "  us answers\n"
                   "  withheld (failback): pool eu is usable again, until 2026-11-16T05:00:00.000Z\n"
                   "  withheld (quorum_hold): us-2: web: home reports refused; 1 of 3 down, need 2\n"
                   "decided 2026-11-16T04:00:00.000Z (#7, probe)\n"
                   "clients leave a failed address within 21s (detection 7s, silent vantages 7s, publication 1s, ttl 6s)\n"
                   "warning: lower spec.ttl.max\n");
    EXPECT_EQ(run({"gslb", "why", "www", "--at", "yesterday"}), 2);
}

TEST_F(Gslb, VantagesShowWhichCountTowardsQuorum) {
    answers_of["GET /v1/health/vantages"] =
        R"x({"items":[{"name":"home","kind":"server","trusted":true,"targets":4},
        {"name":"tokyo\u001b","kind":"checker","trusted":false,"targets":3,"message":"2 of 2 canaries fail","last_report_ms_ago":2900}]})x";
    EXPECT_EQ(run({"gslb", "vantages"}), 0) << err;
    EXPECT_EQ(out, "VANTAGE    KIND     TRUSTED  TARGETS  LAST REPORT  MESSAGE\n"
                   "home       server   yes      4        -\n"
                   "tokyo\\x1b  checker  no       3        2s ago       2 of 2 canaries fail\n");
    EXPECT_EQ(run({"gslb", "vantages", "-o", "json"}), 0) << err;
    EXPECT_THAT(out, HasSubstr("\"home\""));
}

TEST_F(Gslb, FailbackNamesThePoolsThatClientsMayReturnTo) {
    answers_of["POST /v1/loadbalancers/www/failback"] = R"({"spec":{"fqdn":"www.example"},"returning":["eu","us"]})";
    EXPECT_EQ(run({"gslb", "failback", "www"}), 0) << err;
    EXPECT_EQ(out, "clients of www.example may return to eu, us\n");
    answers_of["POST /v1/loadbalancers/www/failback"] = R"({"spec":{"fqdn":"www.example"},"returning":[]})";
    EXPECT_EQ(run({"gslb", "failback", "www"}), 0) << err;
    EXPECT_EQ(out, "no clients of www.example left a pool; nothing changed\n");
}

TEST_F(Gslb, ImportCountsOneWarningInTheSingular) {
    const auto zone = file("example.org", "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns1.example.net.\n"
                                          "w IN LUA A \"nonsense()\"\n");
    EXPECT_EQ(run({"gslb", "import", "powerdns", zone}), 0) << err;
    EXPECT_THAT(err, HasSubstr("\n1 resource, 1 warning\n"));
}

TEST_F(Gslb, WhatIfExitsWithZeroOnlyForASafeChange) {
    const auto answer = [](std::string_view verdict) {
        return fmt::format(R"x({{"loadbalancer":"www","verdict":"{}","messages":["eu-1 would get 50.0 of 100, and can carry 40"],
        "after":{{"pool":"eu","answers":["192.0.2.1"]}},"shares_before":[{{"sites":{{"ams":0.5,"nyc":0.5}}}}],"shares_after":[{{"sites":{{"ams":1.0}}}}]}})x",
                           verdict);
    };
    answers_of["GET /v1/loadbalancers/www/whatif"] = answer("unsafe");
    EXPECT_EQ(run({"gslb", "whatif", "www", "--drain", "us", "--down", "eu-1", "--down", "eu-2"}), 1) << err;
    EXPECT_EQ(out, "unsafe\n"
                   "  eu-1 would get 50.0 of 100, and can carry 40\n"
                   "clients by site\n"
                   "  now   ams 50.0 %, nyc 50.0 %\n"
                   "  then  ams 100.0 %\n"
                   "the answer would be 192.0.2.1 from eu\n");
    EXPECT_THAT(api.seen().back().target, HasSubstr("whatif?drain=us&down=eu-1,eu-2"));
    answers_of["GET /v1/loadbalancers/www/whatif"] = answer("safe");
    EXPECT_EQ(run({"gslb", "whatif", "www", "--drain", "us"}), 0) << err;
    EXPECT_EQ(run({"gslb", "whatif", "www"}), 2);
}

} // namespace
} // namespace orrery::cli
