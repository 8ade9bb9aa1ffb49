#include "dns/authority_fixture.h"

namespace orrery::dns {

TEST(Authority, AnswersFromStaticRecords) {
    const AuthorityFixture fixture;
    EXPECT_EQ(summary(fixture.ask({"www.example.test"})),
              "NOERROR aa | www.example.test 300 A 192.0.2.1, www.example.test 300 A 192.0.2.2, | |");
    EXPECT_EQ(summary(fixture.ask({"WwW.eXample.TEST"})),
              "NOERROR aa | WwW.eXample.TEST 300 A 192.0.2.1, WwW.eXample.TEST 300 A 192.0.2.2, | |");
    EXPECT_EQ(summary(fixture.ask({"ns1.example.test", type::aaaa})),
              "NOERROR aa | ns1.example.test 300 AAAA 2001:db8:0:0:0:0:0:53, | |");
    EXPECT_EQ(summary(fixture.ask({"example.test", type::ns})),
              "NOERROR aa | example.test 300 NS ns1.example.test, example.test 300 NS ns2.other.test, | |");
    EXPECT_EQ(summary(fixture.ask({"example.test", type::soa})), "NOERROR aa | example.test 300 SOA ns1.example.test, | |");
    EXPECT_EQ(fixture.ask({"odd.example.test", 731}).answer.at(0).data, (Octets{10, 11, 12}));
    // The question is copied byte for byte, and the owner of the answer is a pointer to it.
    const auto query = TestQuery{"WwW.example.test"}.bytes();
    const auto bytes = fixture.raw(query);
    ASSERT_GT(bytes.size(), query.size());
    EXPECT_TRUE(std::equal(query.begin() + 12, query.end(), bytes.begin() + 12));
    EXPECT_EQ(bytes[query.size()], 0xC0);
    EXPECT_EQ(bytes[query.size() + 1], 12);
}

TEST(Authority, NegativeResponsesHaveTheRightRcodeAndSoa) {
    const AuthorityFixture fixture;
    EXPECT_EQ(summary(fixture.ask({"nothing.example.test"})), no_name);
    EXPECT_EQ(summary(fixture.ask({"x.www.example.test"})), no_name);
    EXPECT_EQ(summary(fixture.ask({"www.example.test", type::mx})), no_data);
    EXPECT_EQ(summary(fixture.ask({"www.example.test", 0})), no_data);
    EXPECT_EQ(summary(fixture.ask({"www.example.test", 65535})), no_data);
    EXPECT_EQ(summary(fixture.ask({"www.example.test", type::rrsig})), no_data);
    EXPECT_EQ(summary(fixture.ask({"example.test", type::ds})), no_data);
    EXPECT_EQ(summary(fixture.ask({"b.c.example.test"})), no_data); // between others
    EXPECT_EQ(summary(fixture.ask({"c.example.test"})), no_data);
    for (const auto* outside : {"other.test", "test", ".", "ample.test", "xexample.test"})
        EXPECT_EQ(summary(fixture.ask({outside})), "REFUSED | | |") << outside;
    EXPECT_EQ(fixture.ask({"nothing.example.test"}).authority.at(0).data.size(),
              name("ns1.example.test").size() + name("hostmaster.example.test").size() + 20);
}

TEST(Authority, WildcardsMatchOnlyWhereNothingIsCloser) {
    const AuthorityFixture fixture;
    EXPECT_EQ(summary(fixture.ask({"x.wild.example.test"})), "NOERROR aa | x.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(summary(fixture.ask({"x.y.wild.example.test"})), "NOERROR aa | x.y.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(summary(fixture.ask({"*.wild.example.test"})), "NOERROR aa | *.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(summary(fixture.ask({"x.wild.example.test", type::mx})), no_data);
    EXPECT_EQ(summary(fixture.ask({"wild.example.test"})), no_data);
    EXPECT_EQ(summary(fixture.ask({"deep.sure.wild.example.test"})),
              "NOERROR aa | deep.sure.wild.example.test 300 A 192.0.2.78, | |");
    EXPECT_EQ(summary(fixture.ask({"sure.wild.example.test"})), no_data);
    EXPECT_EQ(summary(fixture.ask({"x.sure.wild.example.test"})), no_name); // RFC 4592 2.2.1: a name below exists
    EXPECT_EQ(summary(fixture.ask({"x.walias.example.test"})),
              "NOERROR aa | x.walias.example.test 300 CNAME www.example.test, www.example.test 300 A 192.0.2.1, www.example.test "
              "300 A 192.0.2.2, | |");
}

TEST(Authority, FollowsAliasesWithinTheZone) {
    AuthorityFixture fixture;
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {addresses({7}, SelectionPolicy::weighted)}}).ok());
    EXPECT_EQ(summary(fixture.ask({"chain.example.test"})),
              "NOERROR aa | chain.example.test 300 CNAME alias.example.test, alias.example.test 300 CNAME www.example.test, "
              "www.example.test 300 A 192.0.2.1, www.example.test 300 A 192.0.2.2, | |");
    EXPECT_EQ(summary(fixture.ask({"alias.example.test", type::cname})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | |");
    EXPECT_EQ(summary(fixture.ask({"alias.example.test", type::mx})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | example.test 60 SOA ns1.example.test, |");
    EXPECT_EQ(summary(fixture.ask({"out.example.test"})), "NOERROR aa | out.example.test 300 CNAME www.other.test, | |");
    EXPECT_EQ(summary(fixture.ask({"dangling.example.test"})),
              "NXDOMAIN aa | dangling.example.test 300 CNAME nothing.example.test, | example.test 60 SOA ns1.example.test, |");
    EXPECT_EQ(fixture.ask({"loop.example.test"}).answer.size(), 2U);
    EXPECT_EQ(summary(fixture.ask({"to-cut.example.test"})),
              "NOERROR aa | to-cut.example.test 300 CNAME host.sub.example.test, | |");
    EXPECT_EQ(summary(fixture.ask({"to-dynamic.example.test"})),
              "NOERROR aa | to-dynamic.example.test 300 CNAME app.example.test, app.example.test 30 A 198.51.100.7, | |");
    // Data that depends on the client is not appended to a CNAME: a resolver would cache it for all clients.
    ASSERT_TRUE(fixture
                    .set("app.example.test",
                         {.answer_sets = {addresses({7}), addresses({8})}, .client_rules = {{prefix({10, 0, 0, 0}, 8), 1}}})
                    .ok());
    EXPECT_EQ(summary(fixture.ask({"to-dynamic.example.test"})),
              "NOERROR aa | to-dynamic.example.test 300 CNAME app.example.test, | |");
}

TEST(Authority, RefersToDelegatedServers) {
    const AuthorityFixture fixture;
    const std::string referral =
        "NOERROR | | sub.example.test 300 NS ns.sub.example.test, sub.example.test 300 NS ns1.example.test, | "
        "ns.sub.example.test 300 A 192.0.2.99, ns1.example.test 300 A 192.0.2.53, ns1.example.test 300 AAAA 2001:db8:0:0:0:0:0:53,";
    EXPECT_EQ(summary(fixture.ask({"sub.example.test"})), referral);
    EXPECT_EQ(summary(fixture.ask({"a.b.sub.example.test", type::mx})), referral);
    EXPECT_EQ(summary(fixture.ask({"ns.sub.example.test"})), referral);
    EXPECT_EQ(summary(fixture.ask({"sub.example.test", type::ns})), referral);
    EXPECT_EQ(summary(fixture.ask({"sub.example.test", type::ds})), no_data); // the parent answers for it
    EXPECT_EQ(summary(fixture.ask({"sub.example.test", type::any})), referral);
}

TEST(Authority, AChildZoneAnswersForItself) {
    AuthorityFixture fixture({}, "sub DS 1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n");
    const auto child = [](std::string_view text) {
        Authority::Update update{.revision = 9};
        update.zones.push_back(*parse_zone(text, name("sub.example.test")));
        return update;
    };
    ASSERT_TRUE(fixture.authority
                    .apply(child("@ 60 SOA ns.sub.example.test. h 1 1 1 1 5\n NS ns\nns 60 A 192.0.2.100\nx.y 60 A 192.0.2.101\n"))
                    .ok());
    EXPECT_EQ(summary(fixture.ask({"ns.sub.example.test"})), "NOERROR aa | ns.sub.example.test 60 A 192.0.2.100, | |");
    EXPECT_EQ(summary(fixture.ask({"n.sub.example.test"})), "NXDOMAIN aa | | sub.example.test 5 SOA ns.sub.example.test, |");
    EXPECT_EQ(fixture.ask({"sub.example.test", type::ds}).answer.size(), 1U);
    ASSERT_TRUE(fixture.set("app.sub.example.test", {.answer_sets = {addresses({1})}}).ok());
    EXPECT_EQ(fixture.authority.statistics().by_zone.at("sub.example.test").nxdomain, 1U);
    // Without the child zone, the delegation of the parent applies again.
    Authority::Update update{.revision = 10};
    update.removed_zones.push_back(name("sub.example.test"));
    ASSERT_TRUE(fixture.authority.apply(std::move(update)).ok());
    EXPECT_FALSE(fixture.ask({"ns.sub.example.test"}).authoritative);
    EXPECT_EQ(fixture.ask({"app.sub.example.test"}).authority.size(), 2U);
    EXPECT_EQ(fixture.ask({"x.y.sub.example.test"}).authority.size(), 2U);
    EXPECT_EQ(summary(fixture.ask({"www.example.test"})).substr(0, 12), "NOERROR aa |");
}

TEST(Authority, EmptyNonTerminalsDisappearWithTheirLastChild) {
    AuthorityFixture fixture;
    ASSERT_TRUE(fixture.set("one.two.three.example.test", {.answer_sets = {addresses({1})}}).ok());
    EXPECT_EQ(summary(fixture.ask({"two.three.example.test"})), no_data);
    const auto names = fixture.authority.name_count();
    Authority::Update update{.revision = 9};
    update.removed_names.push_back(name("one.two.three.example.test"));
    ASSERT_TRUE(fixture.authority.apply(std::move(update)).ok());
    EXPECT_EQ(summary(fixture.ask({"three.example.test"})), no_name);
    EXPECT_EQ(fixture.authority.name_count(), names - 3);
    // A zone file without the records removes them.
    Authority::Update fewer{.revision = 10};
    fewer.zones.push_back(*parse_zone("@ 300 SOA ns1 hostmaster 1 1 1 1 60\n NS ns1\nns1 A 192.0.2.53\n", name("example.test")));
    ASSERT_TRUE(fixture.authority.apply(std::move(fewer)).ok());
    for (const auto* gone : {"b.c.example.test", "www.example.test", "x.wild.example.test", "ns.sub.example.test"})
        EXPECT_EQ(summary(fixture.ask({gone})), no_name) << gone;
    EXPECT_EQ(fixture.authority.name_count(), 2U);
}

TEST(Authority, RejectsMetaTypesAndOtherClasses) {
    const AuthorityFixture fixture({.version = "orrery 1", .identity = "a"});
    const auto any = fixture.ask({"www.example.test", type::any});
    ASSERT_EQ(any.answer.size(), 1U);
    EXPECT_EQ(any.answer[0].type, type::hinfo);
    EXPECT_EQ(any.answer[0].data, (Octets{7, 'R', 'F', 'C', '8', '4', '8', '2', 0}));
    EXPECT_EQ(summary(fixture.ask({"alias.example.test", type::any})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | |");
    EXPECT_EQ(summary(fixture.ask({"c.example.test", type::any})), no_data);
    EXPECT_EQ(summary(fixture.ask({"n.example.test", type::any})), no_name);
    for (const auto asked : {type::axfr, type::ixfr, type::maila, type::mailb, type::tkey, type::tsig})
        EXPECT_EQ(summary(fixture.ask({"example.test", asked})), "NOTIMP | | |") << asked;
    EXPECT_EQ(summary(fixture.ask({.of = "example.test", .type = type::axfr, .tcp = true})), "REFUSED | | |");
    EXPECT_EQ(summary(fixture.ask({"example.test", type::nxname})), "FORMERR | | |");
    for (const std::uint16_t other : {0, 4, 254})
        EXPECT_EQ(summary(fixture.ask({.of = "www.example.test", .dns_class = other})), "REFUSED | | |") << other;
    const auto version = fixture.ask({.of = "Version.Bind", .type = type::txt, .dns_class = 3});
    ASSERT_EQ(version.answer.size(), 1U);
    EXPECT_EQ(version.answer[0].dns_class, 3);
    EXPECT_EQ(version.answer[0].data, (Octets{8, 'o', 'r', 'r', 'e', 'r', 'y', ' ', '1'}));
    EXPECT_EQ(fixture.ask({.of = "id.server", .type = type::txt, .dns_class = 3}).answer.size(), 1U);
    EXPECT_EQ(summary(fixture.ask({.of = "www.example.test", .type = type::txt, .dns_class = 3})), "REFUSED | | |");
    EXPECT_EQ(summary(AuthorityFixture().ask({.of = "version.bind", .type = type::txt, .dns_class = 3})), "REFUSED | | |");
}

TEST(Authority, AResponseThatDoesNotFitIsTruncatedToNothing) {
    const AuthorityFixture fixture;
    const auto over_udp = fixture.ask({"big.example.test"});
    EXPECT_TRUE(over_udp.truncated && over_udp.authoritative && over_udp.answer.empty());
    EXPECT_TRUE(fixture.ask({.of = "big.example.test", .edns = 512}).truncated);
    EXPECT_TRUE(fixture.ask({.of = "big.example.test", .edns = 0}).truncated);
    EXPECT_EQ(fixture.ask({.of = "big.example.test", .edns = 1232}).answer.size(), 60U);
    EXPECT_EQ(fixture.raw(TestQuery{.of = "big.example.test", .edns = 4096}.bytes()).size(), 12 + 18 + 4 + 60 * 16 + 11U);
    EXPECT_EQ(fixture.ask({.of = "big.example.test", .tcp = true}).answer.size(), 60U);
    EXPECT_EQ(fixture.authority.statistics().truncated, 3U);
}

} // namespace orrery::dns
