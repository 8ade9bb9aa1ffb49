#include "core/test_fixture.h"
#include "dns/server.h"
#include "drivers/dns/exchange.h"
#include "drivers/rfc2136/rfc2136.h"
#include "drivers/rfc2136/update.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <mutex>
#include <set>

namespace orrery::drivers::rfc2136_test {

using namespace std::chrono_literals;
using gslb::RecordType;
using ::testing::HasSubstr;

namespace {

constexpr auto www = "www.gslb.test.";

TsigKey test_key(std::string_view secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=") {
    return *tsig_key("orrery.", "hmac-sha256", secret);
}

gslb::RecordSets marked(RecordType type, std::vector<std::string> values) {
    auto set = *gslb::record_set(type, 30, std::move(values));
    set.mark = gslb::mark_of("site-1", set);
    return {set};
}

/// A primary in memory, with what RFC 2136 says of prerequisites and updates.
class FakePrimary final : public dns::Responder {
public:
    using Key = std::pair<std::string, std::uint16_t>;
    using Values = std::map<std::vector<std::uint8_t>, std::uint32_t>; // data and TTL

    std::size_t respond(dns::Bytes bytes, const dns::Client& asker, std::span<std::uint8_t> out) const noexcept override {
        const std::lock_guard lock(mutex);
        if (bytes.size() < 12) return 0;
        if ((bytes[2] & 0x78) == 0) return answer_query(bytes, out);
        ++updates;
        if (asker.transport == dns::Client::Transport::tcp) ++over_tcp;
        Update asked;
        if (silent || !asked.read(bytes)) return 0;
        std::vector<std::uint8_t> reply(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(asked.zone_end));
        std::vector<std::uint8_t> mac;
        if (!asked.sections[2].empty() && asked.sections[2].back().type == 250) {
            // algorithm (13 octets), time 6, fudge 2, size 2, MAC
            const auto& data = asked.sections[2].back().data;
            mac.assign(data.begin() + 23, data.begin() + 55);
        }
        const int rcode = forced != 0 ? forced : update(asked);
        reply[2] = 0xA8;
        reply[3] = static_cast<std::uint8_t>(rcode);
        std::fill(reply.begin() + 6, reply.begin() + 12, std::uint8_t{0});
        if (!mac.empty() && !unsigned_answers) std::ignore = tsig_sign(reply, key, real_clock().wall(), mac);
        if (lose_answers > 0) {
            --lose_answers;
            return 0;
        }
        std::copy(reply.begin(), reply.end(), out.begin());
        return reply.size();
    }

    struct Record {
        dns::Name owner;
        std::uint16_t type = 0, dns_class = 0;
        std::uint32_t ttl = 0;
        std::vector<std::uint8_t> data;
    };
    /// An update, taken apart: prerequisites, updates, additional.
    struct Update {
        std::array<std::vector<Record>, 3> sections;
        std::size_t zone_end = 0;
        bool read(dns::Bytes bytes) {
            const auto two = [&](std::size_t at) { return static_cast<std::uint16_t>(bytes[at] << 8 | bytes[at + 1]); };
            dns::Name zone;
            std::size_t at = 12;
            if (!zone.read(bytes, at, dns::Name::Pointers::no)) return false;
            at = zone_end = at + 4;
            for (std::size_t section = 0; section < 3; ++section)
                for (int left = two(6 + 2 * section); left > 0; --left) {
                    Record record;
                    if (!record.owner.read(bytes, at, dns::Name::Pointers::yes) || at + 10 > bytes.size()) return false;
                    record.type = two(at);
                    record.dns_class = two(at + 2);
                    record.ttl = static_cast<std::uint32_t>(two(at + 4)) << 16 | two(at + 6);
                    const std::size_t size = two(at + 8);
                    at += 10;
                    if (at + size > bytes.size()) return false;
                    const auto data = bytes.subspan(at, size);
                    record.data.assign(data.begin(), data.end());
                    at += size;
                    sections[section].push_back(std::move(record));
                }
            return true;
        }
    };

    int update(const Update& message) const {
        std::map<Key, std::set<std::vector<std::uint8_t>>> exact;
        for (const auto& record : message.sections[0]) {
            const Key at{record.owner.lowered(), record.type};
            if (record.dns_class == 254) {
                if (records.contains(at)) return 7;
            } else {
                exact[at].insert(record.data);
            }
        }
        for (const auto& [at, wanted] : exact) {
            std::set<std::vector<std::uint8_t>> stands;
            if (const auto found = records.find(at); found != records.end())
                for (const auto& [data, ttl] : found->second) stands.insert(data);
            if (stands != wanted) return 8;
        }
        for (const auto& record : message.sections[1]) {
            const Key at{record.owner.lowered(), record.type};
            if (record.dns_class == 255)
                records.erase(at);
            else
                records[at][record.data] = record.ttl;
        }
        return 0;
    }

    std::size_t answer_query(dns::Bytes bytes, std::span<std::uint8_t> out) const {
        const auto reading = dns::read_query(bytes);
        dns::Writer writer(out, 1232, reading.query, bytes);
        for (const auto type : {reading.query.type, dns::type::cname})
            if (const auto found = records.find({reading.query.name.lowered(), type}); found != records.end())
                for (const auto& [data, ttl] : found->second)
                    writer.raw(dns::Writer::Section::answer, reading.query.name, type, dns::dns_class::in, ttl, data);
        return writer.finish({.authoritative = !lame});
    }

    /// The threads of the server read it all the time.
    template <class F> auto with(F change) {
        const std::lock_guard lock(mutex);
        return change(*this);
    }

    mutable std::mutex mutex;
    mutable std::map<Key, Values> records;
    mutable int updates = 0, over_tcp = 0, lose_answers = 0;
    int forced = 0;
    bool silent = false, unsigned_answers = false, lame = false;
    TsigKey key = test_key();
};

struct Primary {
    Primary() : fake(std::make_shared<FakePrimary>()), server({.address = "127.0.0.1"}, fake) { EXPECT_TRUE(server.start().ok()); }
    std::unique_ptr<gslb::DnsProvider> publisher() const {
        auto made = rfc2136_publisher(real_clock(), {.server = fmt::format("127.0.0.1:{}", server.port()), .key = test_key()});
        EXPECT_TRUE(made.ok());
        return std::move(*made);
    }
    std::shared_ptr<FakePrimary> fake;
    dns::Server server;
};

Task<gslb::RecordSets> read_one(gslb::DnsProvider& publisher, std::string name = www) {
    CO_TRY(auto read, co_await publisher.read(Context::background().with_timeout(5s), "gslb.test.", {name}));
    co_return read.at(0).sets;
}
Task<gslb::Accepted> publish_one(gslb::DnsProvider& publisher, gslb::Change change, Duration time = 5s) {
    CO_TRY(auto done, co_await publisher.publish(Context::background().with_timeout(time), "gslb.test.", {std::move(change)}));
    co_return std::move(done.at(0));
}

} // namespace

CO_TEST(Rfc2136, WrittenRecordsAreReadBackWithTheirMark) {
    Primary primary;
    auto publisher = primary.publisher();
    auto before = co_await read_one(*publisher);
    CO_ASSERT_OK(before);
    EXPECT_TRUE(before->empty());
    CO_ASSERT_OK(co_await publish_one(*publisher, {www, {}, marked(RecordType::a, {"192.0.2.1", "192.0.2.2"})}));
    auto first = co_await read_one(*publisher);
    CO_ASSERT_OK(first);
    EXPECT_EQ(text_of(*first), "A 192.0.2.1 192.0.2.2 (ttl 30)");
    EXPECT_EQ(gslb::ownership(first->at(0), "site-1"), gslb::Ownership::ours);
    // To an alias and back to addresses of both families.
    CO_ASSERT_OK(co_await publish_one(*publisher, {www, *first, marked(RecordType::cname, {"other.test."})}));
    auto alias = co_await read_one(*publisher);
    CO_ASSERT_OK(alias);
    EXPECT_EQ(text_of(*alias), "CNAME other.test. (ttl 30)");
    auto both = marked(RecordType::a, {"192.0.2.1"});
    both.push_back(marked(RecordType::aaaa, {"2001:db8::1"})[0]);
    CO_ASSERT_OK(co_await publish_one(*publisher, {www, *alias, both}));
    auto last = co_await read_one(*publisher);
    CO_ASSERT_OK(last);
    EXPECT_EQ(text_of(*last), "A 192.0.2.1 (ttl 30), AAAA 2001:db8::1 (ttl 30)");
    EXPECT_EQ(gslb::ownership(last->at(1), "site-1"), gslb::Ownership::ours);
    // And away, marks and all.
    CO_ASSERT_OK(co_await publish_one(*publisher, {www, *last, {}, true}));
    EXPECT_TRUE(primary.fake->with([](FakePrimary& fake) { return fake.records; }).empty());
}

CO_TEST(Rfc2136, AChangeOfAnotherClientIsAConflictAndNothingIsWritten) {
    Primary primary;
    auto publisher = primary.publisher();
    const auto ours = marked(RecordType::a, {"192.0.2.1"});
    CO_ASSERT_OK(co_await publish_one(*publisher, {www, {}, ours}));
    const auto records = primary.fake->with([](FakePrimary& fake) { return fake.records; });
    const auto stale = marked(RecordType::a, {"192.0.2.9"}), wanted = marked(RecordType::a, {"192.0.2.2"});
    for (const auto& before : {gslb::RecordSets{}, stale}) {
        auto done = co_await publish_one(*publisher, {www, before, wanted});
        CO_ASSERT(!done.ok());
        EXPECT_EQ(done.error().code, Code::conflict) << done.error().text();
    }
    EXPECT_EQ(primary.fake->with([](FakePrimary& fake) { return fake.records; }), records);
}

CO_TEST(Rfc2136, AfterALostAnswerTheRetryIsReadAsAConflict) {
    Primary primary;
    auto publisher = primary.publisher();
    primary.fake->with([](FakePrimary& fake) { fake.lose_answers = 1; });
    auto done = co_await publish_one(*publisher, {www, {}, marked(RecordType::a, {"192.0.2.1"})});
    CO_ASSERT(!done.ok());
    EXPECT_EQ(done.error().code, Code::conflict);
    EXPECT_EQ(primary.fake->with([](FakePrimary& fake) { return fake.updates; }), 2);
    auto stands = co_await read_one(*publisher);
    CO_ASSERT_OK(stands);
    EXPECT_EQ(gslb::ownership(stands->at(0), "site-1"), gslb::Ownership::ours) << "a later read finds our own mark";
}

CO_TEST(Rfc2136, AnUnsignedSuccessIsRefused) {
    Primary primary;
    auto publisher = primary.publisher();
    const gslb::Change change{www, {}, marked(RecordType::a, {"192.0.2.1"})};
    primary.fake->with([](FakePrimary& fake) { fake.unsigned_answers = true; });
    auto unsigned_one = co_await publish_one(*publisher, change);
    primary.fake->with([](FakePrimary& fake) { fake.unsigned_answers = false; });
    primary.fake->with([](FakePrimary& fake) { fake.records.clear(); });
    primary.fake->with([](FakePrimary& fake) { fake.key = test_key("c2VjcmV0"); });
    auto other_key = co_await publish_one(*publisher, change);
    CO_ASSERT(!unsigned_one.ok() && !other_key.ok());
    EXPECT_EQ(unsigned_one.error().code, Code::unavailable);
    EXPECT_THAT(unsigned_one.error().message, HasSubstr("is not signed, so the answer does not count"));
    EXPECT_EQ(other_key.error().code, Code::unavailable);
}

CO_TEST(Rfc2136, AnswersAreClassifiedByTheRequiredReaction) {
    Primary primary;
    auto publisher = primary.publisher();
    const gslb::Change change{www, {}, marked(RecordType::a, {"192.0.2.1"})};
    for (const auto& [rcode, code] : std::vector<std::pair<int, Code>>{
             {2, Code::unavailable}, {4, Code::unsupported}, {5, Code::denied}, {9, Code::not_found}, {10, Code::invalid}}) {
        primary.fake->with([number = rcode](FakePrimary& fake) { fake.forced = number; });
        auto done = co_await publish_one(*publisher, change);
        CO_ASSERT(!done.ok());
        EXPECT_EQ(done.error().code, code) << rcode;
    }
    primary.fake->with([](FakePrimary& fake) { fake.silent = true; });
    auto silent = co_await publish_one(*publisher, change, 300ms);
    CO_ASSERT(!silent.ok());
    EXPECT_EQ(silent.error().code, Code::timeout);
    primary.fake->with([](FakePrimary& fake) { fake.lame = true; });
    auto lame = co_await read_one(*publisher);
    CO_ASSERT(!lame.ok());
}

CO_TEST(Rfc2136, RefusesEmptySetsAndNamesOutsideTheZone) {
    Primary primary;
    auto publisher = primary.publisher();
    auto emptied = co_await publish_one(*publisher, {www, {}, {}});
    auto elsewhere = co_await publish_one(*publisher, {"www.example.org.", {}, marked(RecordType::a, {"192.0.2.1"})});
    CO_ASSERT(!emptied.ok() && !elsewhere.ok());
    EXPECT_EQ(emptied.error().code, Code::invalid);
    EXPECT_EQ(elsewhere.error().code, Code::invalid);
    EXPECT_EQ(primary.fake->with([](FakePrimary& fake) { return fake.updates; }), 0);
}

CO_TEST(Rfc2136, WritesManyNamesAndLargeSets) {
    Primary primary;
    auto publisher = primary.publisher();
    std::vector<gslb::Change> changes;
    std::vector<std::string> names, addresses;
    for (int i = 1; i <= 60; ++i) addresses.push_back(fmt::format("192.0.2.{}", i));
    for (int i = 0; i < 50; ++i) {
        names.push_back(fmt::format("n{}.gslb.test.", i));
        changes.push_back({names.back(), {}, marked(RecordType::a, i == 0 ? addresses : std::vector<std::string>{"192.0.2.1"})});
    }
    auto done = co_await publisher->publish(Context::background().with_timeout(20s), "gslb.test.", changes);
    CO_ASSERT_OK(done);
    EXPECT_EQ(std::count_if(done->begin(), done->end(), [](const auto& one) { return one.ok(); }), 50);
    EXPECT_EQ(primary.fake->with([](FakePrimary& fake) { return fake.over_tcp; }), 1) << "the large one";
    auto read = co_await publisher->read(Context::background().with_timeout(20s), "gslb.test.", names);
    CO_ASSERT_OK(read);
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(text_of((*read)[i].sets), text_of(changes[i].after)) << i;
}

TEST(Rfc2136Options, NeedAnAddress) {
    EXPECT_EQ(rfc2136_publisher(real_clock(), {.server = "ns1.example.org"}).error().fields.at(0).path, "rfc2136.server");
}

} // namespace orrery::drivers::rfc2136_test
