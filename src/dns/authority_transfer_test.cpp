#include "dns/authority_fixture.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace orrery::dns {

namespace {

std::vector<Record> transfer_signatures(const AuthorityFixture& fixture, const TestQuery& ask) {
    std::vector<Record> out;
    const auto transfer = fixture.authority.transfer(ask.bytes(), ask.client());
    if (!transfer) return out;
    Octets buffer(65535);
    while (const auto size = transfer->next(buffer)) {
        const auto message = read_message(Bytes(buffer).first(size));
        EXPECT_TRUE(message.ok() && message->authoritative);
        if (!message.ok()) break;
        out.insert(out.end(), message->answer.begin(), message->answer.end());
    }
    return out;
}

} // namespace

TEST(Authority, TheSerialIsTheRevision) {
    AuthorityFixture fixture;
    const auto serial = [&] {
        const auto message = fixture.ask({"example.test", type::soa});
        const auto& data = message.answer.at(0).data;
        return data[data.size() - 17];
    };
    EXPECT_EQ(serial(), 7);
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {addresses({1})}}, 42).ok());
    EXPECT_EQ(serial(), 42);
    const auto negative = fixture.ask({"nothing.example.test"}).authority.at(0).data;
    EXPECT_EQ(negative[negative.size() - 17], 42);
}

TEST(Authority, TransfersZonesToSecondaries) {
    AuthorityFixture fixture({.transfer_to = {prefix({203, 0, 113, 0}, 24)}});
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {addresses({1, 2}, SelectionPolicy::weighted)}}).ok());
    const auto all = [&](const TestQuery& ask) { return transfer_signatures(fixture, ask); };
    const auto records = all({.of = "example.test", .type = type::axfr, .tcp = true});
    ASSERT_GT(records.size(), 80U);
    EXPECT_EQ(records.front().type, type::soa);
    EXPECT_EQ(records.back().type, type::soa);
    EXPECT_THAT(texts(records), testing::Contains("app.example.test 30 A 198.51.100.2"));
    EXPECT_EQ(all({.of = "example.test", .type = type::ixfr, .tcp = true}).size(), records.size());
    EXPECT_TRUE(all({.of = "example.test", .type = type::axfr, .tcp = true, .from = {192, 0, 2, 1}}).empty());
    EXPECT_TRUE(all({.of = "example.test", .type = type::axfr}).empty());
    EXPECT_TRUE(all({.of = "www.example.test", .type = type::axfr, .tcp = true}).empty());
    EXPECT_TRUE(all({.of = "example.test", .type = type::a, .tcp = true}).empty());
}

TEST(Authority, TransfersSignedZonesWithAnNsecChain) {
    VirtualClock clock;
    AuthorityFixture fixture({.transfer_to = {prefix({203, 0, 113, 0}, 24)}, .clock = &clock});
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {addresses({1, 2}, SelectionPolicy::weighted)}}, 8).ok());
    Authority::Update update{.revision = 9};
    update.signing_keys.emplace_back(name("example.test"), *SigningKey::from_pem(*SigningKey::generate_pem()));
    ASSERT_TRUE(fixture.authority.apply(std::move(update)).ok());
    const auto records = transfer_signatures(fixture, {.of = "example.test", .type = type::axfr, .tcp = true});
    ASSERT_GT(records.size(), 100U);
    EXPECT_EQ(records.front().type, type::soa);
    EXPECT_EQ(records.back().type, type::soa);
    std::map<std::string, Name> next;
    std::map<std::string, std::set<int>> types, signed_types;
    for (const auto& record : records) {
        const auto owner = record.owner.to_text();
        if (record.type == type::rrsig)
            signed_types[owner].insert(record.data[0] << 8 | record.data[1]);
        else
            types[owner].insert(record.type);
        if (record.type == type::nsec) {
            std::size_t at = 0;
            ASSERT_TRUE(next[owner].read(record.data, at, Name::Pointers::no));
        }
    }
    // The NSEC chain visits every authoritative name in order, without empty non-terminals and names below a delegation.
    std::vector<std::string> chain;
    for (auto at = name("example.test"); chain.empty() || !(at == name("example.test")); at = next.at(at.to_text())) {
        chain.push_back(at.to_text());
        ASSERT_LE(chain.size(), next.size());
    }
    EXPECT_EQ(chain.size(), next.size());
    EXPECT_THAT(chain, testing::ElementsAre("example.test", "alias.example.test", "app.example.test", "big.example.test",
                                            "a.b.c.example.test", "chain.example.test", "dangling.example.test",
                                            "loop.example.test", "loop2.example.test", "mail.example.test", "ns1.example.test",
                                            "odd.example.test", "out.example.test", "sub.example.test", "to-cut.example.test",
                                            "to-dynamic.example.test", "*.walias.example.test", "*.wild.example.test",
                                            "deep.sure.wild.example.test", "www.example.test"));
    for (const auto& [owner, all] : types) {
        auto wanted = all;
        if (owner == "ns.sub.example.test") wanted = {};
        if (owner == "sub.example.test") wanted = {type::nsec};
        EXPECT_EQ(signed_types[owner], wanted) << owner;
    }
    EXPECT_TRUE(types["example.test"].contains(type::dnskey));
    EXPECT_THAT(texts(records), testing::Contains("app.example.test 30 A 198.51.100.2"));
    // The next transfer reuses the signatures of unchanged RRsets. A new key signs everything again.
    const auto signatures = [&] {
        std::set<Octets> out;
        for (const auto& record : transfer_signatures(fixture, {.of = "example.test", .type = type::axfr, .tcp = true}))
            if (record.type == type::rrsig && (record.data[0] << 8 | record.data[1]) != type::soa) out.insert(record.data);
        return out;
    };
    const auto first = signatures();
    EXPECT_EQ(signatures(), first);
    Authority::Update changed{.revision = 10};
    changed.dynamic_names.emplace_back(name("app.example.test"),
                                       DynamicName{.answer_sets = {addresses({1, 3}, SelectionPolicy::weighted)}});
    ASSERT_TRUE(fixture.authority.apply(std::move(changed)).ok());
    const auto second = signatures();
    std::vector<Octets> made;
    std::set_difference(second.begin(), second.end(), first.begin(), first.end(), std::back_inserter(made));
    EXPECT_EQ(made.size(), 1U); // its addresses
    Authority::Update rolled{.revision = 11};
    rolled.signing_keys.emplace_back(name("example.test"), *SigningKey::from_pem(*SigningKey::generate_pem()));
    ASSERT_TRUE(fixture.authority.apply(std::move(rolled)).ok());
    for (const auto& one : signatures()) EXPECT_FALSE(second.contains(one));
    // Signatures at a secondary would expire: the zone gets a new serial without a change.
    const auto serial = [&] { return fixture.authority.serials().at(0).serial; };
    EXPECT_EQ(serial(), 11U);
    fixture.authority.refresh_signatures();
    EXPECT_EQ(serial(), 11U);
    clock.advance(std::chrono::hours(25));
    const auto changes = fixture.authority.change_count();
    fixture.authority.refresh_signatures();
    EXPECT_EQ(serial(), 12U);
    EXPECT_GT(fixture.authority.change_count(), changes);
    fixture.authority.refresh_signatures();
    EXPECT_EQ(serial(), 12U);
    EXPECT_EQ(fixture.ask({"example.test", type::soa}).answer.at(0).data.end()[-17], 12);
    const auto renewed = signatures(); // by now they are a day old
    EXPECT_EQ(renewed.size(), second.size());
    for (const auto& one : renewed) EXPECT_FALSE(second.contains(one));
    // The next change has a revision that is not later.
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {addresses({3})}}, 12).ok());
    EXPECT_EQ(serial(), 13U);
}

} // namespace orrery::dns
