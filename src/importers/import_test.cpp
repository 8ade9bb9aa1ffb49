#include "core/text.h"
#include "importers/import.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::importers {

namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// "Pool eu {...}" of each document.
std::vector<std::string> lines_of(const ImportResult& imported) {
    std::vector<std::string> out;
    for (const auto& one : imported.documents)
        out.push_back(fmt::format("{} {} {}", std::string_view(one.at("kind").as_string()),
                                  std::string_view(one.at("name").as_string()), to_json_text(one.at("spec"))));
    return out;
}

} // namespace

TEST(Importers, Route53FailoverAndWeights) {
    const auto sets = json::parse(R"({"ResourceRecordSets":[
        {"Name":"example.test.","Type":"NS","TTL":172800,"ResourceRecords":[{"Value":"ns-1.awsdns.com."}]},
        {"Name":"example.test.","Type":"SOA","TTL":900,"ResourceRecords":[{"Value":"ns-1.awsdns.com. a. 1 2 3 4 5"}]},
        {"Name":"mail.example.test.","Type":"MX","TTL":300,"ResourceRecords":[{"Value":"10 mx.example.test."}]},
        {"Name":"www.example.test.","Type":"A","SetIdentifier":"second","Failover":"SECONDARY","TTL":60,"ResourceRecords":[{"Value":"192.0.2.2"}]},
        {"Name":"www.example.test.","Type":"A","SetIdentifier":"first","Failover":"PRIMARY","TTL":60,"ResourceRecords":[{"Value":"192.0.2.1"}],"HealthCheckId":"abcdef12-0"},
        {"Name":"www.example.test.","Type":"AAAA","SetIdentifier":"first","Failover":"PRIMARY","TTL":60,"ResourceRecords":[{"Value":"2001:db8::1"}],"HealthCheckId":"abcdef12-0"},
        {"Name":"api.example.test.","Type":"A","SetIdentifier":"a","Weight":3,"TTL":30,"ResourceRecords":[{"Value":"192.0.2.11"}]},
        {"Name":"api.example.test.","Type":"A","SetIdentifier":"b","Weight":1,"TTL":30,"ResourceRecords":[{"Value":"192.0.2.12"}]},
        {"Name":"geo.example.test.","Type":"A","SetIdentifier":"eu","GeoLocation":{"ContinentCode":"EU"},"TTL":30,"ResourceRecords":[{"Value":"192.0.2.21"}]},
        {"Name":"geo.example.test.","Type":"A","SetIdentifier":"ny","GeoLocation":{"CountryCode":"US","SubdivisionCode":"NY"},"TTL":30,"ResourceRecords":[{"Value":"192.0.2.22"}]},
        {"Name":"geo.example.test.","Type":"A","SetIdentifier":"rest","GeoLocation":{"CountryCode":"*"},"TTL":30,"ResourceRecords":[{"Value":"192.0.2.23"}]},
        {"Name":"near.example.test.","Type":"A","SetIdentifier":"eu","GeoProximityLocation":{"AWSRegion":"eu-west-1"},"TTL":30,"ResourceRecords":[{"Value":"192.0.2.24"}]},
        {"Name":"cdn.example.test.","Type":"A","AliasTarget":{"DNSName":"d1.cloudfront.net."}}]})");
    const auto checks = json::parse(R"({"HealthChecks":[{"Id":"abcdef12-0","HealthCheckConfig":{"Type":"HTTPS_STR_MATCH","Port":443,
        "ResourcePath":"/health","FullyQualifiedDomainName":"www.example.test","SearchString":"fine","RequestInterval":10,"FailureThreshold":2}}]})");
    const auto imported = import_route53(sets, checks);
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    const auto lines = lines_of(*imported);
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"(Monitor r53-abcdef12 {"kind":"https","port":443,"path":"/health","host":"www.example.test","contains":"fine")")));
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"(Member www-example-test-first-1 {"pool":"www-example-test-first","addresses":["192.0.2.1","2001:db8::1"]})")));
    EXPECT_THAT(lines, Contains(HasSubstr(
                           R"("pools":[{"pool":"www-example-test-first"},{"pool":"www-example-test-second","tier":"passive"}])")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("steering":"spread","answers":"weighted")")));
    EXPECT_THAT(lines, Contains(HasSubstr("mail.example.test. 300 MX 10 mx.example.test.")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("near.example.test: geoproximity routing is not imported")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("set dns.geo_databases")));
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"("pools":[{"pool":"geo-example-test-rest"},{"pool":"geo-example-test-eu"},{"pool":"geo-example-test-ny"}],"steering":"geo","geo":{"rules":[{"pools":["geo-example-test-ny"],"country":"US","subdivision":"NY"},{"pools":["geo-example-test-eu"],"continent":"EU"}]})")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("cdn.example.test A")));
    EXPECT_FALSE(import_route53(json::object{}, nullptr).ok());
    EXPECT_THAT(import_route53(sets, nullptr)->warnings, Contains(HasSubstr("health check abcdef12-0: it is in no file")));
}

TEST(Importers, PowerdnsLuaRecords) {
    const auto imported = import_powerdns(R"x($ORIGIN example.test.
$TTL 30
www   IN LUA A    "ifportup(443, {'192.0.2.1', '192.0.2.2'})"
www   IN LUA AAAA "ifportup(443, {'2001:db8::1', '2001:db8::2'})"
api 60 IN LUA A "ifurlup('https://api.example.test:8443/health', " "{'192.0.2.5'})"
tier  LUA A "ifurlup('http://tier.example.test/', {{'192.0.2.1'}, {'192.0.2.9','192.0.2.10'}}, {stringmatch='ok', interval=7, minimumFailures=3, byteslimit=1})"
w     LUA A "pickwrandom({{10,'192.0.2.1'}, {20, '192.0.2.2'}})"
h     LUA A "pickhashed({'192.0.2.1', '192.0.2.2'})"
*.n   LUA A "picknamehashed({{1,'192.0.2.1'}, {3, '192.0.2.2'}})"
geo   LUA A ";if country('DE') then return '192.0.2.1' else return '192.0.2.2' end"
t     LUA TXT "os.date()"
plain A 192.0.2.77
)x",
                                          "example.test");
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    const auto lines = lines_of(*imported);
    EXPECT_THAT(lines,
                Contains(HasSubstr(R"(Monitor port-www-example-test {"kind":"tcp","port":443,"interval":"5s","timeout":"2s")")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("addresses":["192.0.2.2","2001:db8::2"])")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("pools":[{"pool":"tier-example-test-1"},{"pool":"tier-example-test-2"}])")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("contains":"ok")")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("weight":20)")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("answers":"sticky")")));
    EXPECT_THAT(lines, Contains(AllOf(HasSubstr(R"("fqdn":"*.n.example.test")"), HasSubstr(R"("answers":"sticky-by-name")"))));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("geo.example.test A")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("only A and AAAA")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("option byteslimit has no equivalent")));
    EXPECT_FALSE(import_powerdns("www A 192.0.2.1\n", "example.test").ok());
}

TEST(Importers, GdnsdPluginsAndZones) {
    const auto imported = import_gdnsd(
        R"x(
service_types => {
  web => { plugin => http_status, port => 8080, url_path => /up, vhost => www.example.test, ok_codes => [ 200, 301 ], interval => 4, timeout => 2, up_thresh => 5 }
  odd => { plugin => extmon, cmd => [ "/bin/true" ] }
}
plugins => {
  multifo => { service_types => web, up_thresh => 0.7
    pub => { addrs_v4 => { a => 192.0.2.1, b => 192.0.2.2 }, addrs_v6 => { a => 2001:db8::1 } } }
  weighted => { corp => { lb1 => [ 192.0.2.11, 45 ], lb2 => [ 192.0.2.12, 60 ], service_types => odd, multi => true } }
  simplefo => { two => { primary => 192.0.2.31, secondary => 192.0.2.32, service_types => up } }
  metafo => { resources => { all => { datacenters => [ dc1, dc2 ], dcmap => { dc1 => %multifo!pub, dc2 => 192.0.2.41 } } } } # the end
}
)x",
        {{"example.test", "www 300/30 DYNA multifo!pub ; a comment\nall 60 DYNA metafo!all\n@ 60 DYNA weighted!corp\n"
                          "two DYNA simplefo!two\nlost DYNA multifo!missing\nc DYNC metafo!all\nplain A 192.0.2.1\n"}});
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    const auto lines = lines_of(*imported);
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"(Monitor web {"kind":"http","port":8080,"path":"/up","host":"www.example.test","expect":"200,301","interval":"4s","timeout":"2s","rise":5,"fall":10,"forgive":10})")));
    EXPECT_THAT(lines,
                Contains(HasSubstr(R"(Pool pub {"monitors":["web"],"min_healthy":"70%","guard":{"max_ejections":"100%"}})")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("addresses":["192.0.2.1","2001:db8::1"])")));
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"({"fqdn":"www.example.test","zone":"example.test","pools":[{"pool":"pub"}],"ttl":{"max":"300s","min":"30s"}})")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("pools":[{"pool":"pub"},{"pool":"all-dc2"}])")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"("answers":"weighted-many")")));
    EXPECT_THAT(
        lines,
        Contains(HasSubstr(
            R"(Zone example-test {"origin":"example.test","nameservers":["ns1.example.test"],"records":"plain.example.test. A 192.0.2.1\n"})")));
    EXPECT_THAT(lines, Contains(HasSubstr(R"({"pool":"two-secondary","tier":"passive"})")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("service type odd: extmon has no equivalent")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("multifo!missing: the configuration does not have this resource")));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("DYNC")));
}

TEST(Importers, StaticRecordsOfAZoneFileBecomeAZone) {
    const auto imported =
        import_powerdns("$TTL 1h\n@ IN SOA ns1 host ( 1 ; serial\n 2 3\n 4 5 )\n  NS ns1\n  NS ns.other.test.\n"
                        "ns1 60 A 192.0.2.53\n    TXT \"a; b\" ( \"c\" )\nw LUA A \"pickrandom({'192.0.2.1'})\"\n  MX 10 mail\n"
                        "$ORIGIN sub\nx CNAME y\n$INCLUDE other\n",
                        "example.test");
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    EXPECT_THAT(
        lines_of(*imported),
        Contains(
            R"(Zone example-test {"origin":"example.test","nameservers":["ns1.example.test","ns.other.test"],"records":"ns1.example.test. 60 A 192.0.2.53\nns1.example.test. 3600 TXT \"a; b\" \"c\"\nw.example.test. 3600 MX 10 mail\n$ORIGIN sub.example.test.\nx.sub.example.test. 3600 CNAME y\n"})"));
    EXPECT_THAT(imported->warnings, Contains(HasSubstr("$INCLUDE other")));
    EXPECT_THAT(lines_of(*imported), Contains(HasSubstr(R"("fqdn":"w.example.test","ttl":{"max":"3600s"})")));
}

TEST(Importers, MalformedFilesAreRejectedWithTheirLine) {
    for (const auto* text :
         {"plugins => {", "plugins => { a => [ }", "plugins { }", "a => \"b", "=> x", "plugins => { x => { y => ] } }"}) {
        const auto read = import_gdnsd(text, {});
        EXPECT_FALSE(read.ok()) << text;
        if (!read.ok() && read.error().message.find("plugins") == std::string::npos)
            EXPECT_THAT(read.error().message, HasSubstr("line 1")) << text;
    }
    EXPECT_FALSE(import_gdnsd(std::string(10'000, '{'), {}).ok());
    std::string deep = "a => ";
    for (int i = 0; i < 10'000; ++i) deep += "[";
    EXPECT_FALSE(import_gdnsd(deep, {}).ok());
    EXPECT_EQ(import_powerdns("w LUA A \"pickrandom({{{{{{{{{{{{{{{{{{{{{{{{\"\n", "a.test")->documents.size(), 1U)
        << "only the Zone";
    EXPECT_EQ(import_powerdns("w LUA A \"x\nv A 192.0.2.1\n", "a.test").error().message,
              "zone a.test: line 1, column 9: unclosed string");
    EXPECT_EQ(import_gdnsd("plugins => { multifo => { a => 192.0.2.1 } }", {{"a.test", "w MX ( 10"}}).error().message,
              "zone a.test: line 1, column 6: unclosed parenthesis");
}

TEST(Importers, TtlsComeFromTheRecordOrTheDirective) {
    const auto imported = import_gdnsd("plugins => { multifo => { m => { a => 192.0.2.1 } } }",
                                       {{"a.test", "$TTL 1h\na DYNA multifo!m\nb 2m/30 DYNA multifo!m\nc 90d DYNA multifo!m\n"}});
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    EXPECT_THAT(lines_of(*imported), Contains(AllOf(HasSubstr("a.a.test"), HasSubstr(R"("ttl":{"max":"3600s"})"))));
    EXPECT_THAT(lines_of(*imported), Contains(AllOf(HasSubstr("b.a.test"), HasSubstr(R"("ttl":{"max":"120s","min":"30s"})"))));
    EXPECT_THAT(lines_of(*imported), Contains(AllOf(HasSubstr("c.a.test"), HasSubstr(R"("ttl":{"max":"604800s"})"))));
}

TEST(Importers, ReadWhatPdnsutilPrints) {
    const auto imported = import_powerdns("$ORIGIN .\nexample.test\t3600\tIN\tSOA\ta.example.test b.example.test 1 2 3 4 5\n"
                                          "example.test\t3600\tIN\tNS\tns1.example.test.\n"
                                          "www.example.test\t60\tIN\tLUA\tA \"pickrandom({'192.0.2.1'})\"\n",
                                          "example.test");
    ASSERT_TRUE(imported.ok()) << imported.error().text();
    EXPECT_THAT(lines_of(*imported),
                Contains(HasSubstr(R"({"fqdn":"www.example.test","ttl":{"max":"60s"},"zone":"example.test")")));
    EXPECT_THAT(lines_of(*imported), Contains(R"(Zone example-test {"origin":"example.test","nameservers":["ns1.example.test"]})"));
}

} // namespace orrery::importers
