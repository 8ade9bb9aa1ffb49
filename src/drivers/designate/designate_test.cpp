#include "core/test_fixture.h"
#include "drivers/designate/designate.h"
#include "drivers/designate/designate_messages.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

namespace orrery::drivers::designate_test {

using namespace std::chrono_literals;
using gslb::RecordType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace json = boost::json;

namespace {

constexpr auto www = "www.gslb.test.";
// As Designate 15 answers, cut to what matters.
constexpr std::string_view recorded_page = R"({"recordsets": [
 {"id": "r0", "name": "gslb.test.", "type": "SOA", "ttl": null, "records": ["ns1. a. 1 2 3 4 5"], "status": "ACTIVE", "action": "NONE", "version": 2, "description": null},
 {"id": "r1", "name": "www.gslb.test.", "type": "A", "ttl": 5, "records": ["192.0.2.2", "192.0.2.1"], "status": "PENDING", "action": "UPDATE", "version": 3,
  "description": "orrery owner=site-1 set=0123456789abcdef; member m2 is down"},
 {"id": "r2", "name": "www.gslb.test.", "type": "AAAA", "ttl": null, "records": ["2001:db8::1"], "status": "ACTIVE", "action": "NONE", "version": 1, "description": "by hand"},
 {"id": "r3", "name": "old.gslb.test.", "type": "A", "ttl": 5, "records": ["192.0.2.9"], "status": "PENDING", "action": "DELETE", "version": 1, "description": null}],
 "links": {"self": "x"}, "metadata": {"total_count": 4}})";

gslb::RecordSets marked(RecordType type, std::vector<std::string> values) {
    auto set = *gslb::record_set(type, 30, std::move(values));
    set.mark = gslb::mark_of("site-1", set);
    return {set};
}

/// Designate as the driver sees it, behind a session that has logged in.
class FakeDesignate final : public OpenstackSession {
public:
    Task<net::ClientResponse> send(Context, Call call) override {
        seen.push_back(call.method);
        if (fail_with != 0) co_return net::ClientResponse{fail_with, {}, R"({"code": 500, "type": "unknown", "message": "boom"})"};
        if (call.path.starts_with("/v2/zones?"))
            co_return net::ClientResponse{
                200, {}, R"({"zones": [{"id": "z1", "name": "gslb.test.", "ttl": 60, "status": "ACTIVE"}]})"};
        const std::string list = "/v2/zones/z1/recordsets";
        if (call.method == "GET") {
            json::array out;
            for (const auto& [id, one] : recordsets) out.push_back(one);
            co_return net::ClientResponse{200, {}, json::serialize(json::object{{"recordsets", out}})};
        }
        if (call.method == "DELETE") {
            recordsets.erase(call.path.substr(list.size() + 1));
            co_return net::ClientResponse{202, {}, "{}"};
        }
        auto body = json::parse(call.body).as_object();
        auto id = call.method == "POST" ? fmt::format("r{}", ++last) : call.path.substr(list.size() + 1);
        if (call.method == "PUT" && !recordsets.contains(id))
            co_return net::ClientResponse{404, {}, R"({"type": "recordset_not_found"})"};
        if (call.method == "POST" && body.at("name") == "taken.gslb.test.")
            co_return net::ClientResponse{
                409, {}, R"({"code": 409, "type": "duplicate_recordset", "message": "Duplicate RecordSet"})"};
        if (body.at("records").as_array().size() > 20)
            co_return net::ClientResponse{
                413, {}, R"({"code": 413, "type": "over_quota", "message": "Quota exceeded for recordset_records."})"};
        auto& kept = recordsets[id];
        for (const auto& [key, value] : body) kept[key] = value;
        kept["id"] = id;
        kept["status"] = "PENDING";
        kept["action"] = "UPDATE";
        const auto* version = kept.if_contains("version");
        kept["version"] = (version != nullptr ? version->to_number<int>() : 0) + 1 + others_between;
        co_return net::ClientResponse{202, {}, json::serialize(kept)};
    }
    std::map<std::string, json::object> recordsets;
    std::vector<std::string> seen;
    int last = 0, fail_with = 0, others_between = 0;
};

Task<gslb::RecordSets> records_at(gslb::DnsProvider& publisher) {
    CO_TRY(auto read, co_await publisher.read(Context::background(), "gslb.test.", {www}));
    co_return read.at(0).sets;
}
Task<gslb::Accepted> change(gslb::DnsProvider& publisher, gslb::Change one) {
    CO_TRY(std::ignore, co_await publisher.read(Context::background(), "gslb.test.", {one.name}));
    CO_TRY(auto done, co_await publisher.publish(Context::background(), "gslb.test.", {std::move(one)}));
    co_return std::move(done.at(0));
}

} // namespace

TEST(DesignateMessages, ReadsCurrentRecordsets) {
    const auto page = read_designate_recordsets(recorded_page, 3600);
    ASSERT_TRUE(page.ok()) << page.error().text();
    EXPECT_EQ(page->size, 4U);
    EXPECT_EQ(page->last_id, "r3");
    const auto at_www = designate_records(www, page->recordsets);
    EXPECT_EQ(gslb::text_of(at_www.sets), "A 192.0.2.1 192.0.2.2 (ttl 5), AAAA 2001:db8::1 (ttl 3600)");
    EXPECT_EQ(at_www.sets[0].mark, "orrery owner=site-1 set=0123456789abcdef");
    EXPECT_EQ(gslb::ownership(at_www.sets[1], "site-1"), gslb::Ownership::anothers);
    EXPECT_FALSE(at_www.propagated);
    const auto old = designate_records("old.gslb.test.", page->recordsets);
    EXPECT_TRUE(old.sets.empty()) << "it is being deleted";
    EXPECT_FALSE(old.propagated);
}

TEST(DesignateMessages, TruncatedOrMalformedAnswersAreUnavailable) {
    for (std::size_t length = 0; length < recorded_page.size(); ++length)
        ASSERT_EQ(read_designate_recordsets(recorded_page.substr(0, length), 60).error().code, Code::unavailable) << length;
    for (const auto* odd : {"null", "[]", "{}", R"({"recordsets": {}})", R"({"zones": 5})"}) {
        EXPECT_FALSE(read_designate_recordsets(odd, 60).ok()) << odd;
        EXPECT_FALSE(read_designate_zones(odd).ok()) << odd;
        EXPECT_FALSE(read_designate_recordset(odd, 60).ok()) << odd;
    }
    EXPECT_TRUE(
        read_designate_recordsets(R"({"recordsets": [5, {"type": "A"}, {"type": "A", "id": "x", "records": [7]}]})", 60).ok());
}

TEST(DesignateMessages, RefusalsHaveTheMessageOfDesignate) {
    const auto invalid = designate_refusal(
        400,
        R"({"code": 400, "type": "invalid_object", "errors": {"errors": [{"path": ["records", 0], "message": "'x' is not a 'ipv4'"}]}})");
    EXPECT_EQ(invalid.code, Code::invalid);
    EXPECT_THAT(invalid.message, HasSubstr("'x' is not a 'ipv4'"));
    EXPECT_EQ(designate_refusal(413, R"({"type": "over_quota", "message": "Quota exceeded"})").code, Code::too_large);
    EXPECT_EQ(designate_refusal(503, "<html>").code, Code::unavailable);
}

TEST(DesignateMessages, DescriptionsFit) {
    auto set = marked(RecordType::a, {"192.0.2.1"})[0];
    const auto body = json::parse(designate_update(set, std::string(500, 'x') + "\n")).as_object();
    EXPECT_LE(body.at("description").as_string().size(), 160U);
    EXPECT_FALSE(body.contains("name") || body.contains("type")) << "a PUT with these is refused";
}

CO_TEST(Designate, WrittenRecordsAreReadBack) {
    auto session = std::make_shared<FakeDesignate>();
    auto publisher = std::move(*designate_publisher(session, {}));
    auto first = co_await change(*publisher, {www, {}, marked(RecordType::a, {"192.0.2.1"}), false, "first"});
    CO_ASSERT_OK(first);
    EXPECT_FALSE(first->propagated);
    auto stands = co_await records_at(*publisher);
    CO_ASSERT_OK(stands);
    EXPECT_EQ(gslb::ownership(stands->at(0), "site-1"), gslb::Ownership::ours);
    auto both = marked(RecordType::a, {"192.0.2.2"});
    both.push_back(marked(RecordType::aaaa, {"2001:db8::1"})[0]);
    CO_ASSERT_OK(co_await change(*publisher, {www, *stands, both}));
    stands = co_await records_at(*publisher);
    CO_ASSERT_OK(stands);
    EXPECT_EQ(gslb::text_of(*stands), "A 192.0.2.2 (ttl 30), AAAA 2001:db8::1 (ttl 30)");
    // Addresses to an alias: away first, then there.
    session->seen.clear();
    CO_ASSERT_OK(co_await change(*publisher, {www, *stands, marked(RecordType::cname, {"other.test."})}));
    EXPECT_THAT(session->seen, ElementsAre("GET", "DELETE", "DELETE", "POST"));
    stands = co_await records_at(*publisher);
    CO_ASSERT_OK(stands);
    EXPECT_EQ(gslb::text_of(*stands), "CNAME other.test. (ttl 30)");
    CO_ASSERT_OK(co_await change(*publisher, {www, *stands, {}, true}));
    EXPECT_TRUE(session->recordsets.empty());
}

CO_TEST(Designate, AConcurrentWriteOfAnotherClientIsDetected) {
    auto session = std::make_shared<FakeDesignate>();
    auto publisher = std::move(*designate_publisher(session, {}));
    const auto ours = marked(RecordType::a, {"192.0.2.1"});
    CO_ASSERT_OK(co_await change(*publisher, {www, {}, ours}));
    session->others_between = 1;
    auto replaced = co_await change(*publisher, {www, ours, marked(RecordType::a, {"192.0.2.2"})});
    auto taken = co_await change(*publisher, {"taken.gslb.test.", {}, ours});
    session->others_between = 0;
    auto read = co_await publisher->read(Context::background(), "gslb.test.", {www});
    session->recordsets.clear();
    auto gone =
        co_await publisher->publish(Context::background(), "gslb.test.", {{www, ours, marked(RecordType::a, {"192.0.2.3"})}});
    CO_ASSERT(!replaced.ok() && !taken.ok() && gone.ok() && !gone->at(0).ok());
    EXPECT_EQ(replaced.error().code, Code::conflict);
    EXPECT_EQ(taken.error().code, Code::conflict);
    EXPECT_EQ(gone->at(0).error().code, Code::conflict);
}

CO_TEST(Designate, ErrorsAreClassifiedByTheRequiredReaction) {
    auto session = std::make_shared<FakeDesignate>();
    auto publisher = std::move(*designate_publisher(session, {}));
    std::vector<std::string> many;
    for (int i = 1; i <= 21; ++i) many.push_back(fmt::format("192.0.2.{}", i));
    auto quota = co_await change(*publisher, {www, {}, marked(RecordType::a, many)});
    auto emptied = co_await change(*publisher, {www, {}, {}});
    auto zoneless = co_await publisher->read(Context::background(), "elsewhere.test.", {"x.elsewhere.test."});
    session->fail_with = 500;
    auto broken = co_await change(*publisher, {www, {}, marked(RecordType::a, {"192.0.2.1"})});
    CO_ASSERT(!quota.ok() && !emptied.ok() && !zoneless.ok() && !broken.ok());
    EXPECT_EQ(quota.error().code, Code::too_large);
    EXPECT_EQ(emptied.error().code, Code::invalid);
    EXPECT_EQ(zoneless.error().code, Code::not_found);
    EXPECT_EQ(broken.error().code, Code::unavailable);
}

} // namespace orrery::drivers::designate_test
