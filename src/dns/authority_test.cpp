#include "dns/authority.h"
#include "dns/edns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace orrery::dns {

namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr std::string_view example = R"($TTL 300
@       IN SOA ns1 hostmaster 1 3600 600 86400 60
        NS ns1
        NS ns2.other.test.
        MX 10 mail
        TXT "v=spf1 -all"
ns1     A 192.0.2.53
        AAAA 2001:db8::53
mail    A 192.0.2.25
www     A 192.0.2.1
        A 192.0.2.2
alias   CNAME www
chain   CNAME alias
out     CNAME www.other.test.
dangling CNAME nothing
loop    CNAME loop2
loop2   CNAME loop
to-dynamic CNAME app
to-cut  CNAME host.sub
a.b.c   A 192.0.2.9
*.wild  A 192.0.2.77
        TXT "from afar"
deep.sure.wild A 192.0.2.78
*.walias CNAME www
sub     NS ns.sub
        NS ns1
ns.sub  A 192.0.2.99
odd     TYPE731 \# 3 0A0B0C
big     A 10.0.0.1
)";

Name name(std::string_view text) { return *Name::from_text(text); }

Zone example_zone(std::string_view more = {}) {
    std::string text(example);
    for (int i = 2; i <= 60; ++i) text += "big A 10.0.0." + std::to_string(i) + "\n";
    text += more;
    auto zone = parse_zone(text, name("example.test"));
    EXPECT_TRUE(zone.ok()) << zone.error().text();
    return std::move(*zone);
}

Choice addresses(std::vector<int> last, Picking picking = Picking::all, std::uint32_t ttl = 30) {
    Choice out;
    out.picking = picking;
    out.ttl = ttl;
    for (const int one : last)
        out.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{198, 51, 100, static_cast<std::uint8_t>(one)},
                                  .identity = static_cast<std::uint64_t>(one)});
    return out;
}

Prefix prefix(std::array<std::uint8_t, 4> address, std::uint8_t length) {
    Prefix out{.length = length};
    std::copy(address.begin(), address.end(), out.address.begin());
    return out;
}

using Octets = std::vector<std::uint8_t>;

/// A question, and ways to spoil it.
struct Ask {
    std::string of;
    std::uint16_t type = type::a;
    std::optional<std::uint16_t> edns{};
    Octets options{};
    std::uint16_t dns_class = 1;
    std::uint32_t opt_ttl = 0;
    bool tcp = false;
    std::array<std::uint8_t, 4> from{203, 0, 113, 5};

    Octets bytes() const {
        auto out = write_query(0x1234, name(of), type, edns);
        const auto end = 12 + name(of).size() + 4;
        out[end - 2] = static_cast<std::uint8_t>(dns_class >> 8);
        out[end - 1] = static_cast<std::uint8_t>(dns_class);
        if (edns) {
            for (std::size_t i = 0; i < 4; ++i) out[end + 5 + i] = static_cast<std::uint8_t>(opt_ttl >> 8 * (3 - i));
            out[end + 9] = static_cast<std::uint8_t>(options.size() >> 8);
            out[end + 10] = static_cast<std::uint8_t>(options.size());
            out.insert(out.end(), options.begin(), options.end());
        }
        return out;
    }
    Asker asker() const {
        Asker out{.transport = tcp ? Asker::Transport::tcp : Asker::Transport::udp};
        std::copy(from.begin(), from.end(), out.address.begin());
        return out;
    }
};

struct World {
    explicit World(Authority::Options options = {}, std::string_view more = {}) : authority(std::move(options)) {
        Authority::Update update{.revision = 7};
        update.zones.push_back(example_zone(more));
        const auto done = authority.apply(std::move(update));
        EXPECT_TRUE(done.ok()) << done.error().text();
    }
    Result<Unit> set(std::string_view of, Tailored tailored, std::uint64_t revision = 8) {
        Authority::Update update{.revision = revision};
        update.names.emplace_back(name(of), std::move(tailored));
        return authority.apply(std::move(update));
    }
    Octets raw(const Octets& query, const Asker& asker = {}) const {
        Octets out(asker.transport == Asker::Transport::tcp ? 65535 : 4096);
        out.resize(authority.respond(query, asker, out));
        return out;
    }
    Message ask(const Ask& question) const {
        const auto out = raw(question.bytes(), question.asker());
        auto message = read_message(out);
        EXPECT_TRUE(message.ok()) << question.of << ": " << out.size() << " bytes";
        if (!message.ok()) return {};
        EXPECT_TRUE(message->response);
        EXPECT_EQ(message->id, 0x1234);
        EXPECT_FALSE(message->recursion_available);
        EXPECT_EQ(message->edns_size.has_value(), question.edns.has_value());
        return std::move(*message);
    }
    Authority authority;
};

std::vector<std::string> texts(const std::vector<Record>& records) {
    std::vector<std::string> out;
    for (const auto& record : records) out.push_back(record.to_text());
    return out;
}

/// Of the answer to an ask, the code, whether it is authoritative, and all records: "NOERROR aa | a ... | ..."
std::string gist(const Message& message) {
    std::string out = message.rcode == Rcode::noerror    ? "NOERROR"
                      : message.rcode == Rcode::nxdomain ? "NXDOMAIN"
                      : message.rcode == Rcode::refused  ? "REFUSED"
                      : message.rcode == Rcode::formerr  ? "FORMERR"
                      : message.rcode == Rcode::notimp   ? "NOTIMP"
                      : message.rcode == Rcode::servfail ? "SERVFAIL"
                      : message.rcode == Rcode::badvers  ? "BADVERS"
                                                         : "?";
    if (message.authoritative) out += " aa";
    if (message.truncated) out += " tc";
    for (const auto* section : {&message.answer, &message.authority, &message.additional}) {
        out += " |";
        for (const auto& record : *section) out += " " + record.to_text() + ",";
    }
    return out;
}

const std::string no_data = "NOERROR aa | | example.test 60 SOA ns1.example.test, |";
const std::string no_name = "NXDOMAIN aa | | example.test 60 SOA ns1.example.test, |";

Octets subnet(std::uint16_t family, std::uint8_t source, Octets address, std::uint8_t scope = 0) {
    Octets out{0, 8, 0, static_cast<std::uint8_t>(4 + address.size()), 0, static_cast<std::uint8_t>(family), source, scope};
    out.insert(out.end(), address.begin(), address.end());
    return out;
}

} // namespace

TEST(Authority, AnswersFromStaticRecords) {
    const World world;
    EXPECT_EQ(gist(world.ask({"www.example.test"})),
              "NOERROR aa | www.example.test 300 A 192.0.2.1, www.example.test 300 A 192.0.2.2, | |");
    EXPECT_EQ(gist(world.ask({"WwW.eXample.TEST"})),
              "NOERROR aa | WwW.eXample.TEST 300 A 192.0.2.1, WwW.eXample.TEST 300 A 192.0.2.2, | |");
    EXPECT_EQ(gist(world.ask({"ns1.example.test", type::aaaa})),
              "NOERROR aa | ns1.example.test 300 AAAA 2001:db8:0:0:0:0:0:53, | |");
    EXPECT_EQ(gist(world.ask({"example.test", type::ns})),
              "NOERROR aa | example.test 300 NS ns1.example.test, example.test 300 NS ns2.other.test, | |");
    EXPECT_EQ(gist(world.ask({"example.test", type::soa})), "NOERROR aa | example.test 300 SOA ns1.example.test, | |");
    EXPECT_EQ(world.ask({"odd.example.test", 731}).answer.at(0).data, (Octets{10, 11, 12}));
    // The question is repeated byte for byte, and the owner of what is answered points to it.
    const auto query = Ask{"WwW.example.test"}.bytes();
    const auto bytes = world.raw(query);
    ASSERT_GT(bytes.size(), query.size());
    EXPECT_TRUE(std::equal(query.begin() + 12, query.end(), bytes.begin() + 12));
    EXPECT_EQ(bytes[query.size()], 0xC0);
    EXPECT_EQ(bytes[query.size() + 1], 12);
}

TEST(Authority, SaysNoInTheRightWords) {
    const World world;
    EXPECT_EQ(gist(world.ask({"nothing.example.test"})), no_name);
    EXPECT_EQ(gist(world.ask({"x.www.example.test"})), no_name);
    EXPECT_EQ(gist(world.ask({"www.example.test", type::mx})), no_data);
    EXPECT_EQ(gist(world.ask({"www.example.test", 0})), no_data);
    EXPECT_EQ(gist(world.ask({"www.example.test", 65535})), no_data);
    EXPECT_EQ(gist(world.ask({"www.example.test", type::rrsig})), no_data);
    EXPECT_EQ(gist(world.ask({"example.test", type::ds})), no_data);
    EXPECT_EQ(gist(world.ask({"b.c.example.test"})), no_data); // between others
    EXPECT_EQ(gist(world.ask({"c.example.test"})), no_data);
    for (const auto* outside : {"other.test", "test", ".", "ample.test", "xexample.test"})
        EXPECT_EQ(gist(world.ask({outside})), "REFUSED | | |") << outside;
    EXPECT_EQ(world.ask({"nothing.example.test"}).authority.at(0).data.size(),
              name("ns1.example.test").size() + name("hostmaster.example.test").size() + 20);
}

TEST(Authority, WildcardsMatchOnlyWhereNothingIsCloser) {
    const World world;
    EXPECT_EQ(gist(world.ask({"x.wild.example.test"})), "NOERROR aa | x.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(gist(world.ask({"x.y.wild.example.test"})), "NOERROR aa | x.y.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(gist(world.ask({"*.wild.example.test"})), "NOERROR aa | *.wild.example.test 300 A 192.0.2.77, | |");
    EXPECT_EQ(gist(world.ask({"x.wild.example.test", type::mx})), no_data);
    EXPECT_EQ(gist(world.ask({"wild.example.test"})), no_data);
    EXPECT_EQ(gist(world.ask({"deep.sure.wild.example.test"})), "NOERROR aa | deep.sure.wild.example.test 300 A 192.0.2.78, | |");
    EXPECT_EQ(gist(world.ask({"sure.wild.example.test"})), no_data);
    EXPECT_EQ(gist(world.ask({"x.sure.wild.example.test"})), no_name); // RFC 4592 2.2.1: a name below exists
    EXPECT_EQ(gist(world.ask({"x.walias.example.test"})),
              "NOERROR aa | x.walias.example.test 300 CNAME www.example.test, www.example.test 300 A 192.0.2.1, www.example.test "
              "300 A 192.0.2.2, | |");
}

TEST(Authority, FollowsAliasesWithinTheZone) {
    World world;
    ASSERT_TRUE(world.set("app.example.test", {.choices = {addresses({7}, Picking::one)}}).ok());
    EXPECT_EQ(gist(world.ask({"chain.example.test"})),
              "NOERROR aa | chain.example.test 300 CNAME alias.example.test, alias.example.test 300 CNAME www.example.test, "
              "www.example.test 300 A 192.0.2.1, www.example.test 300 A 192.0.2.2, | |");
    EXPECT_EQ(gist(world.ask({"alias.example.test", type::cname})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | |");
    EXPECT_EQ(gist(world.ask({"alias.example.test", type::mx})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | example.test 60 SOA ns1.example.test, |");
    EXPECT_EQ(gist(world.ask({"out.example.test"})), "NOERROR aa | out.example.test 300 CNAME www.other.test, | |");
    EXPECT_EQ(gist(world.ask({"dangling.example.test"})),
              "NXDOMAIN aa | dangling.example.test 300 CNAME nothing.example.test, | example.test 60 SOA ns1.example.test, |");
    EXPECT_EQ(world.ask({"loop.example.test"}).answer.size(), 2U);
    EXPECT_EQ(gist(world.ask({"to-cut.example.test"})), "NOERROR aa | to-cut.example.test 300 CNAME host.sub.example.test, | |");
    EXPECT_EQ(gist(world.ask({"to-dynamic.example.test"})),
              "NOERROR aa | to-dynamic.example.test 300 CNAME app.example.test, app.example.test 30 A 198.51.100.7, | |");
    // What depends on the client is not put behind an alias: for whom would it hold?
    ASSERT_TRUE(
        world.set("app.example.test", {.choices = {addresses({7}), addresses({8})}, .by_client = {{prefix({10, 0, 0, 0}, 8), 1}}})
            .ok());
    EXPECT_EQ(gist(world.ask({"to-dynamic.example.test"})), "NOERROR aa | to-dynamic.example.test 300 CNAME app.example.test, | |");
}

TEST(Authority, RefersToWhoItDelegatedTo) {
    const World world;
    const std::string referral =
        "NOERROR | | sub.example.test 300 NS ns.sub.example.test, sub.example.test 300 NS ns1.example.test, | "
        "ns.sub.example.test 300 A 192.0.2.99, ns1.example.test 300 A 192.0.2.53, ns1.example.test 300 AAAA 2001:db8:0:0:0:0:0:53,";
    EXPECT_EQ(gist(world.ask({"sub.example.test"})), referral);
    EXPECT_EQ(gist(world.ask({"a.b.sub.example.test", type::mx})), referral);
    EXPECT_EQ(gist(world.ask({"ns.sub.example.test"})), referral);
    EXPECT_EQ(gist(world.ask({"sub.example.test", type::ns})), referral);
    EXPECT_EQ(gist(world.ask({"sub.example.test", type::ds})), no_data); // the parent answers for it
    EXPECT_EQ(gist(world.ask({"sub.example.test", type::any})), referral);
}

TEST(Authority, AZoneBelowAnotherAnswersForItself) {
    World world({}, "sub DS 1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n");
    const auto child = [](std::string_view text) {
        Authority::Update update{.revision = 9};
        update.zones.push_back(*parse_zone(text, name("sub.example.test")));
        return update;
    };
    ASSERT_TRUE(world.authority
                    .apply(child("@ 60 SOA ns.sub.example.test. h 1 1 1 1 5\n NS ns\nns 60 A 192.0.2.100\nx.y 60 A 192.0.2.101\n"))
                    .ok());
    EXPECT_EQ(gist(world.ask({"ns.sub.example.test"})), "NOERROR aa | ns.sub.example.test 60 A 192.0.2.100, | |");
    EXPECT_EQ(gist(world.ask({"n.sub.example.test"})), "NXDOMAIN aa | | sub.example.test 5 SOA ns.sub.example.test, |");
    EXPECT_EQ(world.ask({"sub.example.test", type::ds}).answer.size(), 1U);
    ASSERT_TRUE(world.set("app.sub.example.test", {.choices = {addresses({1})}}).ok());
    EXPECT_EQ(world.authority.statistics().by_zone.at("sub.example.test").nxdomain, 1U);
    // With its zone gone, it is the parent's delegation again.
    Authority::Update update{.revision = 10};
    update.without_zones.push_back(name("sub.example.test"));
    ASSERT_TRUE(world.authority.apply(std::move(update)).ok());
    EXPECT_FALSE(world.ask({"ns.sub.example.test"}).authoritative);
    EXPECT_EQ(world.ask({"app.sub.example.test"}).authority.size(), 2U);
    EXPECT_EQ(world.ask({"x.y.sub.example.test"}).authority.size(), 2U);
    EXPECT_EQ(gist(world.ask({"www.example.test"})).substr(0, 12), "NOERROR aa |");
}

TEST(Authority, EmptyPlacesGoWithTheirLastName) {
    World world;
    ASSERT_TRUE(world.set("one.two.three.example.test", {.choices = {addresses({1})}}).ok());
    EXPECT_EQ(gist(world.ask({"two.three.example.test"})), no_data);
    const auto names = world.authority.name_count();
    Authority::Update update{.revision = 9};
    update.without_names.push_back(name("one.two.three.example.test"));
    ASSERT_TRUE(world.authority.apply(std::move(update)).ok());
    EXPECT_EQ(gist(world.ask({"three.example.test"})), no_name);
    EXPECT_EQ(world.authority.name_count(), names - 3);
    // And the other way round: a zone without what was in it.
    Authority::Update fewer{.revision = 10};
    fewer.zones.push_back(*parse_zone("@ 300 SOA ns1 hostmaster 1 1 1 1 60\n NS ns1\nns1 A 192.0.2.53\n", name("example.test")));
    ASSERT_TRUE(world.authority.apply(std::move(fewer)).ok());
    for (const auto* gone : {"b.c.example.test", "www.example.test", "x.wild.example.test", "ns.sub.example.test"})
        EXPECT_EQ(gist(world.ask({gone})), no_name) << gone;
    EXPECT_EQ(world.authority.name_count(), 2U);
}

TEST(Authority, QuestionsThatAreNotForRecords) {
    const World world({.version = "orrery 1", .identity = "a"});
    const auto any = world.ask({"www.example.test", type::any});
    ASSERT_EQ(any.answer.size(), 1U);
    EXPECT_EQ(any.answer[0].type, type::hinfo);
    EXPECT_EQ(any.answer[0].data, (Octets{7, 'R', 'F', 'C', '8', '4', '8', '2', 0}));
    EXPECT_EQ(gist(world.ask({"alias.example.test", type::any})),
              "NOERROR aa | alias.example.test 300 CNAME www.example.test, | |");
    EXPECT_EQ(gist(world.ask({"c.example.test", type::any})), no_data);
    EXPECT_EQ(gist(world.ask({"n.example.test", type::any})), no_name);
    for (const auto asked : {type::axfr, type::ixfr, type::maila, type::mailb, type::tkey, type::tsig})
        EXPECT_EQ(gist(world.ask({"example.test", asked})), "NOTIMP | | |") << asked;
    EXPECT_EQ(gist(world.ask({.of = "example.test", .type = type::axfr, .tcp = true})), "REFUSED | | |");
    EXPECT_EQ(gist(world.ask({"example.test", type::nxname})), "FORMERR | | |");
    for (const std::uint16_t other : {0, 4, 254})
        EXPECT_EQ(gist(world.ask({.of = "www.example.test", .dns_class = other})), "REFUSED | | |") << other;
    const auto version = world.ask({.of = "Version.Bind", .type = type::txt, .dns_class = 3});
    ASSERT_EQ(version.answer.size(), 1U);
    EXPECT_EQ(version.answer[0].dns_class, 3);
    EXPECT_EQ(version.answer[0].data, (Octets{8, 'o', 'r', 'r', 'e', 'r', 'y', ' ', '1'}));
    EXPECT_EQ(world.ask({.of = "id.server", .type = type::txt, .dns_class = 3}).answer.size(), 1U);
    EXPECT_EQ(gist(world.ask({.of = "www.example.test", .type = type::txt, .dns_class = 3})), "REFUSED | | |");
    EXPECT_EQ(gist(World().ask({.of = "version.bind", .type = type::txt, .dns_class = 3})), "REFUSED | | |");
}

TEST(Authority, TooLargeIsTruncatedWhole) {
    const World world;
    const auto over_udp = world.ask({"big.example.test"});
    EXPECT_TRUE(over_udp.truncated && over_udp.authoritative && over_udp.answer.empty());
    EXPECT_TRUE(world.ask({.of = "big.example.test", .edns = 512}).truncated);
    EXPECT_TRUE(world.ask({.of = "big.example.test", .edns = 0}).truncated);
    EXPECT_EQ(world.ask({.of = "big.example.test", .edns = 1232}).answer.size(), 60U);
    EXPECT_EQ(world.raw(Ask{.of = "big.example.test", .edns = 4096}.bytes()).size(), 12 + 18 + 4 + 60 * 16 + 11U);
    EXPECT_EQ(world.ask({.of = "big.example.test", .tcp = true}).answer.size(), 60U);
    EXPECT_EQ(world.authority.statistics().truncated, 3U);
}

TEST(Authority, Edns) {
    World world({.nsid = "pop1"});
    const auto plain = world.ask({.of = "www.example.test", .edns = 1400, .options = {0xFD, 0xE9, 0, 1, 9}, .opt_ttl = 0x8001});
    EXPECT_EQ(plain.edns_size, 1232);
    EXPECT_TRUE(plain.dnssec_ok);
    EXPECT_TRUE(plain.options.empty()); // an option nobody knows is not repeated
    EXPECT_EQ(gist(world.ask({.of = "www.example.test", .edns = 1232, .opt_ttl = 0x00010000})), "BADVERS | | |");
    EXPECT_EQ(world.ask({.of = "www.example.test", .edns = 1232, .options = {0, 3, 0, 0}}).options,
              (Octets{0, 3, 0, 4, 'p', 'o', 'p', '1'}));
    EXPECT_EQ(world.ask({.of = "www.example.test", .edns = 1232, .options = {0, 11, 0, 0}, .tcp = true}).options,
              (Octets{0, 11, 0, 2, 0x01, 0x2C}));
    EXPECT_TRUE(world.ask({.of = "www.example.test", .edns = 1232, .options = {0, 11, 0, 0}}).options.empty());
    EXPECT_EQ(world.raw(Ask{.of = "www.example.test", .edns = 1232, .options = {0, 3, 0, 1}}.bytes())[3], 1); // runs over: FORMERR
    EXPECT_TRUE(world.raw(Octets(11)).empty());
    auto answer = Ask{"www.example.test"}.bytes();
    answer[2] |= 0x80;
    EXPECT_TRUE(world.raw(answer).empty());
    // A forged TC, AA, AD or Z is not repeated; RD and CD are.
    auto bits = Ask{"www.example.test"}.bytes();
    bits[2] = 0x07;
    bits[3] = 0x70;
    const auto back = world.raw(bits);
    EXPECT_EQ(back[2], 0x85);
    EXPECT_EQ(back[3], 0x10);
    for (const std::uint8_t opcode : {1, 2, 4, 5, 15}) {
        auto other = Ask{"www.example.test"}.bytes();
        other[2] = static_cast<std::uint8_t>(opcode << 3);
        EXPECT_EQ(world.raw(other)[3] & 0xF, 4) << int{opcode};
    }
}

TEST(Authority, SubnetsOfClients) {
    World world;
    Tailored tailored{.choices = {addresses({1}), addresses({2}), addresses({3})},
                      .by_client = {{prefix({10, 1, 0, 0}, 16), 1},
                                    {prefix({10, 1, 2, 0}, 24), 2},
                                    {prefix({10, 2, 0, 0}, 16), 1},
                                    {prefix({10, 3, 0, 0}, 16), 1}}};
    ASSERT_TRUE(world.set("geo.example.test", tailored).ok());
    const auto with = [&](Octets options) {
        return world.ask({.of = "geo.example.test", .edns = 1232, .options = std::move(options)});
    };
    const auto check = [&](std::uint8_t source, Octets address, const std::string& wanted, int scope) {
        const auto message = with(subnet(1, source, address));
        ASSERT_EQ(message.answer.size(), 1U);
        EXPECT_EQ(message.answer[0].to_text(), "geo.example.test 30 A 198.51.100." + wanted);
        EXPECT_EQ(message.options, subnet(1, source, address, static_cast<std::uint8_t>(scope)));
    };
    check(24, {10, 1, 2}, "3", 24);
    check(24, {10, 1, 3}, "2", 24); // its sibling is the other
    check(24, {10, 1, 128}, "2", 17);
    check(24, {10, 2, 9}, "2", 15); // 10.2 and 10.3 merge
    check(24, {10, 3, 9}, "2", 15);
    check(32, {192, 0, 2, 1}, "1", 1); // half of all addresses: nothing in it differs
    check(8, {10}, "1", 16);           // it was too short for what is there
    check(0, {}, "1", 0);
    // No subnet: the asker's own address, and no option in the answer.
    const auto plain = world.ask({.of = "geo.example.test", .edns = 1232, .from = {10, 1, 2, 9}});
    EXPECT_EQ(plain.answer.at(0).to_text(), "geo.example.test 30 A 198.51.100.3");
    EXPECT_TRUE(plain.options.empty());
    EXPECT_EQ(world.ask({.of = "geo.example.test", .from = {10, 1, 9, 9}}).answer.at(0).to_text(),
              "geo.example.test 30 A 198.51.100.2");
    // Static names and negative answers are the same for all.
    EXPECT_EQ(world.ask({.of = "www.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(world.ask({.of = "geo.example.test", .type = type::mx, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    EXPECT_EQ(world.ask({.of = "geo.example.test", .type = type::aaaa, .edns = 1232, .options = subnet(1, 24, {10, 1, 2})}).options,
              subnet(1, 24, {10, 1, 2}, 0));
    const Octets v6{0x20, 0x01, 0x0d, 0xb8, 0, 0, 1};
    EXPECT_EQ(with(subnet(2, 56, v6)).options, subnet(2, 56, v6, 0));
    for (const auto& bad :
         {subnet(3, 24, {10, 1, 2}), subnet(1, 24, {10, 1, 2}, 1), subnet(1, 33, {10, 1, 2, 0, 0}), subnet(1, 23, {10, 1, 3}),
          subnet(1, 24, {10, 1, 2, 0}), subnet(1, 24, {10, 1}), Octets{0, 8, 0, 3, 0, 1, 0}})
        EXPECT_EQ(gist(with(bad)), "FORMERR | | |");
}

TEST(Authority, StickyNamesSayHowMuchOfTheClientCounts) {
    World world;
    auto choice = addresses({1, 2, 3, 4, 5, 6, 7, 8}, Picking::sticky);
    choice.most = 1;
    ASSERT_TRUE(world.set("sticky.example.test", {.choices = {choice}}).ok());
    const auto first = world.ask({.of = "sticky.example.test", .edns = 1232, .options = subnet(1, 24, {10, 1, 2})});
    EXPECT_EQ(first.options, subnet(1, 24, {10, 1, 2}, 24));
    for (int i = 0; i < 20; ++i) {
        const auto again = world.ask({.of = "sticky.example.test", .from = {10, 1, 2, static_cast<std::uint8_t>(i)}});
        EXPECT_EQ(texts(again.answer), texts(first.answer)); // the same network, told or seen
    }
}

TEST(Authority, Cookies) {
    VirtualClock clock;
    const CookieSecret secret{0xe5, 0xe9, 0x73, 0xe5, 0xa6, 0xb2, 0xa4, 0x3f, 0x48, 0xe7, 0xdc, 0x84, 0x9e, 0x37, 0xbf, 0xcf};
    const Octets client{0x24, 0x64, 0xc4, 0xab, 0xcf, 0x10, 0xc9, 0x57};
    // RFC 9018, appendix A.1.
    Asker asker;
    asker.address = {198, 51, 100, 100};
    EXPECT_EQ(make_cookie(secret, client, asker, 1559731985),
              (ServerCookie{0x01, 0, 0, 0, 0x5c, 0xf7, 0x9f, 0x11, 0x1f, 0x81, 0x30, 0xc3, 0xee, 0xe2, 0x94, 0x80}));
    World world({.cookies = {secret}, .rate_limit = {.per_second = 1, .burst = 1, .slip = 1}, .clock = &clock});
    const auto cookie = [&](const Octets& server) {
        Octets out{0, 10, 0, static_cast<std::uint8_t>(8 + server.size())};
        out.insert(out.end(), client.begin(), client.end());
        out.insert(out.end(), server.begin(), server.end());
        return out;
    };
    const auto ask = [&](const Octets& server, std::array<std::uint8_t, 4> from = {198, 51, 100, 100}) {
        return world.ask({.of = "www.example.test", .edns = 1232, .options = cookie(server), .from = from});
    };
    const auto first = ask({});
    ASSERT_EQ(first.options.size(), 28U);
    EXPECT_FALSE(first.truncated);
    const Octets given(first.options.begin() + 12, first.options.end());
    EXPECT_TRUE(ask({}).truncated);     // the limit
    EXPECT_FALSE(ask(given).truncated); // who shows the cookie is who it says
    EXPECT_EQ(ask(given).options, cookie(given));
    EXPECT_TRUE(ask(given, {198, 51, 100, 101}).truncated);
    clock.advance(std::chrono::minutes(31));
    EXPECT_NE(ask(given).options, cookie(given)); // renewed
    clock.advance(std::chrono::minutes(31));
    std::ignore = ask({});
    EXPECT_TRUE(ask(given).truncated);
    EXPECT_EQ(world.authority.statistics().valid_cookies, 3U);
    for (const std::size_t length : {7, 9, 15, 41}) {
        Octets bad{0, 10, 0, static_cast<std::uint8_t>(length)};
        bad.resize(4 + length);
        EXPECT_EQ(gist(World().ask({.of = "www.example.test", .edns = 1232, .options = bad})), "FORMERR | | |") << length;
    }
    // Only a cookie, and no question at all.
    Octets only{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12};
    const auto wanted = cookie({});
    only.insert(only.end(), wanted.begin(), wanted.end());
    clock.advance(std::chrono::minutes(31));
    const auto out = world.raw(only, asker);
    EXPECT_EQ(out.size(), 12 + 11 + 28U);
    EXPECT_EQ(out[3] & 0xF, 0);
    only.resize(12);
    only[11] = 0;
    EXPECT_EQ(world.raw(only)[3] & 0xF, 1);
}

TEST(Authority, DynamicNamesBesideStaticOnes) {
    World world;
    auto both = addresses({1, 2});
    both.candidates[0].v6 = std::array<std::uint8_t, 16>{0x20, 1};
    ASSERT_TRUE(world.set("app.example.test", {.choices = {both}}).ok());
    EXPECT_THAT(texts(world.ask({"app.example.test"}).answer),
                ElementsAre("app.example.test 30 A 198.51.100.1", "app.example.test 30 A 198.51.100.2"));
    EXPECT_EQ(world.ask({"app.example.test", type::aaaa}).answer.size(), 1U);
    EXPECT_EQ(gist(world.ask({"app.example.test", type::mx})), no_data);
    ASSERT_TRUE(world.set("example.test", {.choices = {addresses({5})}}).ok()); // the apex, beside SOA and MX
    EXPECT_EQ(world.ask({"example.test"}).answer.at(0).to_text(), "example.test 30 A 198.51.100.5");
    EXPECT_EQ(world.ask({"example.test", type::mx}).answer.size(), 1U);
    ASSERT_TRUE(world.set("*.dyn.example.test", {.choices = {addresses({6}, Picking::one)}}).ok());
    EXPECT_EQ(gist(world.ask({"any.dyn.example.test"})), "NOERROR aa | any.dyn.example.test 30 A 198.51.100.6, | |");
    ASSERT_TRUE(world.set("cname.example.test", {.choices = {{.ttl = 5, .alias = name("app.example.test")}}}).ok());
    EXPECT_EQ(gist(world.ask({"cname.example.test", type::mx})), "NOERROR aa | cname.example.test 5 CNAME app.example.test, | |");
    for (const auto& [empty, wanted] :
         {std::pair(Choice::Empty::nodata, no_data), std::pair(Choice::Empty::servfail, std::string("SERVFAIL | | |")),
          std::pair(Choice::Empty::refuse, std::string("REFUSED | | |"))}) {
        ASSERT_TRUE(world.set("none.example.test", {.choices = {{.when_empty = empty}}}).ok());
        EXPECT_EQ(gist(world.ask({"none.example.test"})), wanted);
        EXPECT_EQ(gist(world.ask({"none.example.test", type::txt})), no_data);
    }
    const auto turning = addresses({1, 2, 3}, Picking::rotate);
    ASSERT_TRUE(world.set("turn.example.test", {.choices = {turning}}).ok());
    const auto one = texts(world.ask({"turn.example.test"}).answer), two = texts(world.ask({"turn.example.test"}).answer);
    EXPECT_EQ(one.size(), 3U);
    EXPECT_EQ(one[1], two[0]);
    // Two members behind one address are one record.
    ASSERT_TRUE(world.set("twice.example.test", {.choices = {addresses({4, 4, 5}, Picking::rotate)}}).ok());
    EXPECT_THAT(texts(world.ask({"twice.example.test"}).answer),
                UnorderedElementsAre("twice.example.test 30 A 198.51.100.4", "twice.example.test 30 A 198.51.100.5"));
    // And refused, with a reason, is what cannot be.
    const auto refused = [&](std::string_view of, Tailored tailored) {
        const auto done = world.set(of, std::move(tailored));
        return done.ok() ? std::string("ok") : done.error().message;
    };
    EXPECT_EQ(refused("www.other.test", {.choices = {addresses({1})}}), "www.other.test is in none of our zones");
    EXPECT_EQ(refused("www.example.test", {.choices = {addresses({1})}}),
              "www.example.test cannot be a dynamic name: its zone has A records at it");
    EXPECT_EQ(refused("x.sub.example.test", {.choices = {addresses({1})}}),
              "x.sub.example.test cannot be a dynamic name: sub.example.test is delegated");
    EXPECT_EQ(refused("example.test", {.choices = {{.alias = name("a.test")}}}),
              "example.test cannot be a dynamic name: the origin of a zone cannot have an alias");
    EXPECT_EQ(refused("odd.example.test", {.choices = {{.alias = name("a.test")}}}),
              "odd.example.test cannot be a dynamic name: its zone has records at it, and an alias stands alone");
    EXPECT_EQ(refused("new.example.test", {}), "new.example.test: there is no choice for it");
    Authority::Update clash{.revision = 20};
    clash.zones.push_back(example_zone("app A 192.0.2.200\n"));
    const auto clashed = world.authority.apply(std::move(clash));
    ASSERT_FALSE(clashed.ok());
    EXPECT_EQ(clashed.error().message,
              "the zone example.test does not go with the dynamic name app.example.test: its zone has A records at it");
    EXPECT_EQ(world.ask({"app.example.test"}).answer.size(), 2U);
}

TEST(Authority, TheSerialIsTheRevision) {
    World world;
    const auto serial = [&] {
        const auto message = world.ask({"example.test", type::soa});
        const auto& data = message.answer.at(0).data;
        return data[data.size() - 17];
    };
    EXPECT_EQ(serial(), 7);
    ASSERT_TRUE(world.set("app.example.test", {.choices = {addresses({1})}}, 42).ok());
    EXPECT_EQ(serial(), 42);
    const auto negative = world.ask({"nothing.example.test"}).authority.at(0).data;
    EXPECT_EQ(negative[negative.size() - 17], 42);
}

TEST(Authority, GivesZonesToSecondaries) {
    World world({.transfer_to = {prefix({203, 0, 113, 0}, 24)}});
    ASSERT_TRUE(world.set("app.example.test", {.choices = {addresses({1, 2}, Picking::one)}}).ok());
    const auto all = [&](const Ask& ask) {
        std::vector<Record> out;
        const auto transfer = world.authority.transfer(ask.bytes(), ask.asker());
        if (!transfer) return out;
        Octets buffer(65535);
        while (const auto size = transfer->next(buffer)) {
            const auto message = read_message(Bytes(buffer).first(size));
            EXPECT_TRUE(message.ok() && message->authoritative);
            if (!message.ok()) break;
            out.insert(out.end(), message->answer.begin(), message->answer.end());
        }
        return out;
    };
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

TEST(Authority, KeepsALogOfQuestionsThatNeverWaits) {
    VirtualClock clock;
    World world({.query_log = 4, .clock = &clock});
    for (int i = 0; i < 6; ++i) std::ignore = world.ask({"n" + std::to_string(i) + ".example.test"});
    std::vector<std::string> seen;
    EXPECT_EQ(world.authority.take_queries([&](const Authority::Asked& one) {
        seen.push_back(one.name.to_text());
        EXPECT_EQ(one.rcode, Rcode::nxdomain);
        EXPECT_EQ(one.time, clock.wall());
        EXPECT_GT(one.size, 50);
    }),
              4U);
    EXPECT_EQ(seen.back(), "n3.example.test");
    EXPECT_EQ(world.authority.statistics().unlogged, 2U);
    std::ignore = world.ask({"www.example.test"});
    EXPECT_EQ(world.authority.take_queries([](const Authority::Asked&) {}), 1U);
}

/// While readers read without pause, names change: each answer is wholly the old or wholly the new, and what was replaced is freed.
TEST(Authority, ChangesUnderLoadGiveNoWrongAnswer) {
    World world;
    const auto generation = [](int i) {
        std::vector<int> out;
        for (int k = 0; k < 8; ++k) out.push_back(i % 2 == 0 ? k + 1 : k + 101);
        return Tailored{.choices = {addresses(out)}};
    };
    ASSERT_TRUE(world.set("app.example.test", generation(0)).ok());
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 2; ++t)
        readers.emplace_back([&] {
            const auto query = Ask{.of = "app.example.test", .edns = 1232}.bytes();
            Octets out(4096);
            while (!stop) {
                const auto size = world.authority.respond(query, {}, out);
                const auto message = read_message(Bytes(out).first(size));
                bool good = message.ok() && message->answer.size() == 8;
                for (std::size_t i = 1; good && i < 8; ++i)
                    good = message->answer[i].data[3] > 100 == message->answer[0].data[3] > 100;
                if (!good) ++wrong;
            }
        });
    for (int i = 1; i <= 300; ++i) {
        Authority::Update update{.revision = static_cast<std::uint64_t>(100 + i)};
        update.names.emplace_back(name("app.example.test"), generation(i));
        if (i % 10 == 0) update.zones.push_back(example_zone(i % 20 == 0 ? "extra A 192.0.2.200\n" : ""));
        ASSERT_TRUE(world.authority.apply(std::move(update)).ok());
    }
    stop = true;
    for (auto& reader : readers) reader.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(world.authority.waiting_garbage(), 0U);
}

} // namespace orrery::dns
