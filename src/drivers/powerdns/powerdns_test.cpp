#include "core/test_fixture.h"
#include "drivers/powerdns/powerdns.h"
#include "drivers/powerdns/powerdns_messages.h"
#include "drivers/rest/rest.h"
#include "net/http_fixture.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::drivers::powerdns_test {

using namespace std::chrono_literals;
using gslb::RecordType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

// As PowerDNS 4.7.3 answers, cut to what matters.
constexpr std::string_view recorded_zone =
    R"({"account": "", "dnssec": false, "id": "gslb.test.", "kind": "Native", "name": "gslb.test.", "rrsets": [
 {"comments": [], "name": "gslb.test.", "records": [{"content": "a.misconfigured.dns.server.invalid. hostmaster.gslb.test. 2026111602 10800 3600 604800 3600", "disabled": false}], "ttl": 3600, "type": "SOA"},
 {"comments": [{"account": "orrery", "content": "member m2 down", "modified_at": 1}, {"account": "orrery", "content": "orrery owner=site-1 set=0123456789abcdef", "modified_at": 1}],
  "name": "www.gslb.test.", "records": [{"content": "192.0.2.2", "disabled": false}, {"content": "192.0.2.1", "disabled": false}, {"content": "192.0.2.9", "disabled": true}], "ttl": 5, "type": "A"},
 {"comments": [], "name": "www.gslb.test.", "records": [{"content": "2001:db8::1", "disabled": false}], "ttl": 5, "type": "AAAA"},
 {"comments": [], "name": "off.gslb.test.", "records": [{"content": "192.0.2.1", "disabled": true}], "ttl": 5, "type": "A"}],
 "serial": 2026111602, "url": "/api/v1/servers/localhost/zones/gslb.test."})";

gslb::Change change_of(const std::string& name, std::vector<std::string> addresses) {
    auto set = *gslb::record_set(RecordType::a, 30, std::move(addresses));
    set.mark = gslb::mark_of("site-1", set);
    return {name, {}, {set}, false, "a\nreason"};
}

/// What the driver needs of PowerDNS.
struct FakePowerdns final : net::peers::FakeHttpService {
    using FakeHttpService::FakeHttpService;
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) override {
        CO_TRY(const auto text, co_await net::read_all(ctx, body, 1 << 20));
        seen.push_back(request.method + " " + request.target.path + (request.target.param("rrset_name") ? "?" : ""));
        if (fail_with != 0) co_return co_await out.send(ctx, {fail_with, {}, "Internal Server Error"});
        if (request.headers.get("X-API-Key") != "the-key") co_return co_await out.send(ctx, {401, {}, "Unauthorized"});
        if (request.method == "GET") co_return co_await out.send(ctx, {200, {}, std::string(recorded_zone)});
        if (text.find("bad") != std::string::npos)
            co_return co_await out.send(ctx,
                                        {422, {}, R"({"error": "RRset bad.gslb.test. IN A: Conflicts with pre-existing RRset"})"});
        bodies.push_back(text);
        co_return co_await out.send(ctx, {204, {}, ""});
    }
    std::unique_ptr<gslb::DnsProvider> publisher(std::string key = "the-key") {
        auto made = powerdns_publisher(client, {.url = url(), .key = std::move(key)});
        EXPECT_TRUE(made.ok());
        return std::move(*made);
    }
    std::vector<std::string> seen, bodies;
    int fail_with = 0;
};

} // namespace

TEST(PowerdnsMessages, ReadsServedRecords) {
    const auto zone = read_powerdns_zone(recorded_zone);
    ASSERT_TRUE(zone.ok()) << zone.error().text();
    EXPECT_EQ(zone->size(), 1U);
    EXPECT_EQ(gslb::text_of(zone->at("www.gslb.test.")), "A 192.0.2.1 192.0.2.2 (ttl 5), AAAA 2001:db8::1 (ttl 5)");
    EXPECT_EQ(zone->at("www.gslb.test.")[0].mark, "orrery owner=site-1 set=0123456789abcdef");
    EXPECT_EQ(zone->at("www.gslb.test.")[1].mark, "");
}

TEST(PowerdnsMessages, TruncatedOrMalformedAnswersAreNotZones) {
    for (std::size_t length = 0; length < recorded_zone.size(); ++length)
        ASSERT_EQ(read_powerdns_zone(recorded_zone.substr(0, length)).error().code, Code::unavailable) << length;
    for (const auto* odd : {"null", "[]", "{}", R"({"name": 5, "rrsets": []})", R"({"name": "x."})"})
        EXPECT_FALSE(read_powerdns_zone(odd).ok()) << odd;
    EXPECT_TRUE(
        read_powerdns_zone(R"({"name": "x.", "rrsets": [5, null, {"type": "A"}, {"type": "A", "records": [7, {"content": []}]}]})")
            .ok());
}

TEST(PowerdnsMessages, RemovesBeforeItSets) {
    auto change = change_of("www.gslb.test.", {"192.0.2.1"});
    change.before = {*gslb::record_set(RecordType::cname, 5, {"x.test"})};
    const auto body = powerdns_patch(std::vector{change});
    EXPECT_LT(body.find("DELETE"), body.find("REPLACE")) << body;
    const auto document = read_answer("us", body);
    ASSERT_TRUE(document.ok());
    ASSERT_EQ(array_at(as_object(*document), "rrsets").size(), 2U);
    const auto& set = array_at(as_object(*document), "rrsets")[1];
    EXPECT_EQ(integer_at(as_object(set), "ttl", 0), 30);
    EXPECT_EQ(text_at(as_object(array_at(as_object(set), "comments")[0]), "content"), change.after[0].mark);
    EXPECT_EQ(text_at(as_object(array_at(as_object(set), "comments")[1]), "content"), "a reason");
}

CO_TEST(Powerdns, ManyChangesAreOneRequest) {
    FakePowerdns powerdns(loop.get_executor());
    auto publisher = powerdns.publisher();
    std::vector<gslb::Change> changes;
    std::vector<std::string> names;
    for (int i = 0; i < 100; ++i) {
        names.push_back(fmt::format("n{}.gslb.test.", i));
        changes.push_back(change_of(names.back(), {"192.0.2.1"}));
    }
    auto read = co_await publisher->read(Context::background(), "gslb.test.", names);
    auto done = co_await publisher->publish(Context::background(), "gslb.test.", changes);
    co_await powerdns.stop();
    CO_ASSERT_OK(read);
    CO_ASSERT_OK(done);
    EXPECT_EQ(read->size(), 100U);
    EXPECT_EQ(done->size(), 100U);
    EXPECT_THAT(powerdns.seen,
                ElementsAre("GET /api/v1/servers/localhost/zones/gslb.test.", "PATCH /api/v1/servers/localhost/zones/gslb.test."));
}

CO_TEST(Powerdns, ARefusedRecordDoesNotBlockOthers) {
    FakePowerdns powerdns(loop.get_executor());
    auto publisher = powerdns.publisher();
    std::vector<gslb::Change> changes;
    for (int i = 0; i < 20; ++i)
        changes.push_back(change_of(fmt::format("{}{}.gslb.test.", i == 7 ? "bad" : "n", i), {"192.0.2.1"}));
    changes[3].after.clear(); // and the caller did not allow that
    auto done = co_await publisher->publish(Context::background(), "gslb.test.", changes);
    co_await powerdns.stop();
    CO_ASSERT_OK(done);
    for (std::size_t i = 0; i < done->size(); ++i) EXPECT_EQ((*done)[i].ok(), i != 7 && i != 3) << i;
    EXPECT_THAT((*done)[7].error().message, HasSubstr("Conflicts with pre-existing RRset"));
    EXPECT_EQ((*done)[3].error().code, Code::invalid);
}

CO_TEST(Powerdns, ErrorsAreClassifiedByTheRequiredReaction) {
    FakePowerdns powerdns(loop.get_executor());
    auto publisher = powerdns.publisher(), keyless = powerdns.publisher("another");
    auto refused = co_await keyless->read(Context::background(), "gslb.test.", {"www.gslb.test."});
    powerdns.fail_with = 500;
    auto broken = co_await publisher->publish(Context::background(), "gslb.test.", {change_of("www.gslb.test.", {"192.0.2.1"})});
    powerdns.fail_with = 404;
    auto zoneless = co_await publisher->read(Context::background(), "gslb.test.", {"www.gslb.test."});
    co_await powerdns.stop();
    CO_ASSERT(!refused.ok() && !broken.ok() && !zoneless.ok());
    EXPECT_EQ(refused.error().code, Code::unauthenticated);
    EXPECT_EQ(refused.error().text().find("another"), std::string::npos);
    EXPECT_EQ(broken.error().code, Code::unavailable);
    EXPECT_EQ(zoneless.error().code, Code::not_found);
}

CO_TEST(Powerdns, RefusesInvalidOptions) {
    net::HttpClient client(loop.get_executor(), {});
    const auto first_wrong = [&](const std::string& url, const std::string& key) {
        const auto made = powerdns_publisher(client, {.url = url, .key = key});
        return made.ok() ? std::string("none") : made.error().fields.front().path;
    };
    EXPECT_EQ(first_wrong("https://pdns:8081/api/v1/", "k"), "none");
    EXPECT_EQ(first_wrong("http://pdns:8081", "k"), "powerdns.url");
    EXPECT_EQ(first_wrong("https://pdns:8081", "a\r\nb"), "powerdns.key");
    EXPECT_EQ(first_wrong("https://pdns:8081", ""), "powerdns.key");
    co_await client.stop();
}

} // namespace orrery::drivers::powerdns_test
