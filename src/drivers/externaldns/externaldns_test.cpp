#include "core/test_fixture.h"
#include "drivers/externaldns/externaldns.h"
#include "drivers/externaldns/externaldns_messages.h"
#include "drivers/rest/rest.h"
#include "net/http_fixture.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

namespace orrery::drivers::externaldns_test {

using namespace std::chrono_literals;
using gslb::RecordType;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

constexpr auto www = "www.lab.test.";

gslb::RecordSets marked(RecordType type, std::vector<std::string> values, std::uint32_t ttl = 60) {
    auto set = *gslb::record_set(type, ttl, std::move(values));
    set.mark = gslb::mark_of("site-1", set);
    return {set};
}

/// An adapter in memory, as ExternalDNS 0.21's own server behaves; it takes no TTL below 60.
struct FakeAdapter final : net::peers::FakeHttpService {
    using FakeHttpService::FakeHttpService;
    Task<Unit> serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) override {
        CO_TRY(const auto text, co_await net::read_all(ctx, body, 1 << 20));
        if (request.headers.get("Accept") != externaldns_media_type) co_return co_await out.send(ctx, {406, {}, ""});
        if (fail_with != 0) co_return co_await out.send(ctx, {fail_with, {}, "boom"});
        const auto& path = request.target.path;
        if (path == "/token/") co_return co_await out.send(ctx, {200, {}, filters});
        if (path == "/token/records" && request.method == "GET")
            co_return co_await out.send(ctx, {200, {}, json::serialize(records)});
        auto document = read_answer("the test", text);
        if (!document.ok()) co_return co_await out.send(ctx, {400, {}, ""});
        if (path == "/token/adjustendpoints") {
            for (auto& endpoint : document->as_array())
                if (endpoint.at("recordTTL").to_number<int>() < 60) endpoint.as_object()["recordTTL"] = 60;
            co_return co_await out.send(ctx, {200, {}, json::serialize(*document)});
        }
        if (path != "/token/records") co_return co_await out.send(ctx, {404, {}, ""});
        ++writes;
        if (text.find("bad.lab.test") != std::string::npos)
            co_return co_await out.send(ctx, {500, {}, "the provider does not take it"});
        for (const auto* key : {"delete", "updateOld"})
            for (const auto& gone : document->as_object()[key].as_array()) {
                const auto at = std::find(records.begin(), records.end(), gone);
                EXPECT_NE(at, records.end()) << "not repeated as it was: " << json::serialize(gone);
                if (at != records.end()) records.erase(at);
            }
        for (const auto* key : {"create", "updateNew"})
            for (auto come : document->as_object()[key].as_array()) {
                if (forgets_ttl) come.as_object()["recordTTL"] = 0;
                records.push_back(come);
            }
        co_return co_await out.send(ctx, {204, {}, ""});
    }
    std::unique_ptr<gslb::DnsProvider> publisher() {
        auto made = externaldns_publisher(client, {.url = url("/token/")});
        EXPECT_TRUE(made.ok());
        return std::move(*made);
    }
    json::array records;
    std::string filters = R"({"filters": ["lab.test"]})";
    int writes = 0, fail_with = 0;
    bool forgets_ttl = false;
};

Task<gslb::RecordSets> records_at(gslb::DnsProvider& publisher, std::string name = www) {
    CO_TRY(auto read, co_await publisher.read(Context::background(), "lab.test.", {name}));
    co_return read.at(0).sets;
}
Task<gslb::Accepted> publish_change(gslb::DnsProvider& publisher, gslb::Change change) {
    CO_TRY(auto done, co_await publisher.publish(Context::background(), "lab.test.", {std::move(change)}));
    co_return std::move(done.at(0));
}

} // namespace

CO_TEST(Externaldns, WrittenRecordsAreReadBackWithTheirMark) {
    for (const bool forgets : {false, true}) {
        FakeAdapter adapter(loop.get_executor());
        adapter.forgets_ttl = forgets;
        auto publisher = adapter.publisher();
        auto before = co_await records_at(*publisher);
        CO_ASSERT_OK(before);
        EXPECT_TRUE(before->empty());
        CO_ASSERT_OK(co_await publish_change(*publisher, {www, {}, marked(RecordType::a, {"192.0.2.1"})}));
        auto first = co_await records_at(*publisher);
        CO_ASSERT_OK(first);
        EXPECT_EQ(text_of(*first), "A 192.0.2.1 (ttl 60)");
        CO_ASSERT(!first->empty());
        EXPECT_EQ(gslb::ownership(first->at(0), "site-1"), gslb::Ownership::ours);
        CO_ASSERT_OK(co_await publish_change(*publisher, {www, *first, marked(RecordType::cname, {"other.example."})}));
        auto alias = co_await records_at(*publisher);
        CO_ASSERT_OK(alias);
        EXPECT_EQ(text_of(*alias), "CNAME other.example. (ttl 60)");
        CO_ASSERT_OK(co_await publish_change(*publisher, {www, *alias, {}, true}));
        EXPECT_TRUE(adapter.records.empty()) << json::serialize(adapter.records);
        co_await adapter.stop();
    }
}

CO_TEST(Externaldns, RecordsAdjustedByTheAdapterAreCompared) {
    FakeAdapter adapter(loop.get_executor());
    auto publisher = adapter.publisher();
    auto normal = co_await publisher->normalised(Context::background(), "lab.test.",
                                                 {{www, marked(RecordType::a, {"192.0.2.1"}, 5)}, {"none.lab.test.", {}}});
    co_await adapter.stop();
    CO_ASSERT_OK(normal);
    CO_ASSERT(normal->size() == 2);
    EXPECT_EQ(text_of(normal->at(0).sets), "A 192.0.2.1 (ttl 60)");
}

CO_TEST(Externaldns, ARefusedChangeDoesNotBlockOthers) {
    FakeAdapter adapter(loop.get_executor());
    auto publisher = adapter.publisher();
    CO_ASSERT_OK(co_await records_at(*publisher));
    std::vector<gslb::Change> changes;
    for (int i = 0; i < 8; ++i)
        changes.push_back(
            {fmt::format("{}.lab.test.", i == 5 ? "bad" : fmt::format("n{}", i)), {}, marked(RecordType::a, {"192.0.2.1"})});
    auto done = co_await publisher->publish(Context::background(), "lab.test.", changes);
    CO_ASSERT_OK(done);
    for (std::size_t i = 0; i < done->size(); ++i) EXPECT_EQ((*done)[i].ok(), i != 5) << i;
    // In an outage it is not asked for ever.
    adapter.writes = 0;
    for (auto& change : changes) change.name = "bad.lab.test.";
    auto none = co_await publisher->publish(Context::background(), "lab.test.", changes);
    co_await adapter.stop();
    EXPECT_LE(adapter.writes, 17);
}

CO_TEST(Externaldns, RecordsOfOthersAreNotMistakenForOurs) {
    FakeAdapter adapter(loop.get_executor());
    auto publisher = adapter.publisher();
    adapter.records = json::array{
        json::object{
            {"dnsName", "WWW.lab.test"}, {"recordType", "A"}, {"targets", json::array{"192.0.2.9"}}, {"setIdentifier", "eu"}},
        json::object{{"dnsName", "x.lab.test"}, {"recordType", "A"}, {"targets", json::array{"192.0.2.9"}}}};
    auto several = co_await records_at(*publisher);
    auto plain = co_await records_at(*publisher, "x.lab.test.");
    co_await adapter.stop();
    CO_ASSERT(several.ok() && plain.ok() && several->size() == 1 && plain->size() == 1);
    EXPECT_EQ(gslb::ownership(several->at(0), "site-1"), gslb::Ownership::anothers);
    EXPECT_EQ(gslb::ownership(plain->at(0), "site-1"), gslb::Ownership::unmarked);
}

CO_TEST(Externaldns, ErrorsAreClassifiedAndDoNotShowTheToken) {
    FakeAdapter adapter(loop.get_executor());
    auto publisher = adapter.publisher();
    adapter.filters = R"({"filters": ["example.org"]})";
    auto elsewhere = co_await records_at(*publisher);
    adapter.filters = "{}";
    auto all = co_await records_at(*publisher);
    adapter.fail_with = 500;
    auto broken = co_await records_at(*publisher);
    co_await adapter.stop();
    CO_ASSERT(!elsewhere.ok() && all.ok() && !broken.ok());
    EXPECT_EQ(elsewhere.error().code, Code::not_found);
    EXPECT_EQ(broken.error().code, Code::unavailable);
    EXPECT_THAT(broken.error().text() + elsewhere.error().text(), Not(HasSubstr("/token")));
}

TEST(ExternaldnsMessages, TruncatedOrMalformedAnswersAreUnavailable) {
    constexpr std::string_view recorded =
        R"([{"dnsName":"a.example.com","targets":["192.0.2.1"],"recordType":"A","recordTTL":60,"labels":{"owner":"default"},"providerSpecific":[{"name":"x","value":"y"}]}])";
    EXPECT_TRUE(read_externaldns_records(recorded).ok());
    for (std::size_t length = 0; length < recorded.size(); ++length)
        EXPECT_FALSE(read_externaldns_records(recorded.substr(0, length)).ok()) << length;
    for (const auto* odd : {"{}", "5", "[5]", "[{}]", R"([{"dnsName": 5}])"})
        EXPECT_FALSE(read_externaldns_records(odd).ok()) << odd;
    EXPECT_TRUE(read_externaldns_records("null").ok());
    EXPECT_TRUE(externaldns_serves({"lab.test."}, "gslb.lab.test."));
    EXPECT_FALSE(externaldns_serves({"ab.test."}, "lab.test."));
}

} // namespace orrery::drivers::externaldns_test
