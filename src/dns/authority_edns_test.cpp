#include "dns/authority_testing.h"
#include "dns/edns.h"

namespace orrery::dns {

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

TEST(Authority, SaysWhyToWhoAsksWithEdns) {
    World world({.transfer_to = {prefix({192, 0, 2, 0}, 24)}, .rate_limit = {.per_second = 1000, .slip = 1}});
    /// "18 text", or nothing.
    const auto why = [&](Ask ask) {
        ask.edns = ask.edns.value_or(1232);
        const auto options = world.ask(ask).options;
        std::string out;
        if (options.size() < 6 || options[1] != option::extended_error) return out;
        EXPECT_EQ(options.size(), 4U + options[3]);
        return std::to_string(options[4] << 8 | options[5]) + " " + std::string(options.begin() + 6, options.end());
    };
    EXPECT_EQ(why({"www.example.test"}), "");
    EXPECT_EQ(why({"nothing.example.test"}), "");
    EXPECT_EQ(why({"www.other.test"}), "20 ");
    EXPECT_EQ(why({.of = "example.test", .type = type::axfr}), "21 over TCP only");
    EXPECT_EQ(why({.of = "example.test", .type = type::axfr, .tcp = true}), "18 transfer");
    EXPECT_EQ(why({.of = "other.test", .type = type::axfr, .tcp = true}), "20 ");
    EXPECT_EQ(why({.of = "www.example.test", .type = type::axfr, .tcp = true}), "20 ");
    EXPECT_EQ(why({.of = "www.example.test", .type = type::tkey}), "21 ");
    EXPECT_EQ(why({.of = "www.example.test", .type = type::nxname}), "30 "); // RFC 9824 3.5
    EXPECT_EQ(why({.of = "www.example.test", .dns_class = 4}), "21 class");
    EXPECT_EQ(why({.of = "version.bind", .type = type::txt, .dns_class = 3}), "18 ");
    auto update = Ask{.of = "example.test", .type = type::soa, .edns = 1232}.bytes();
    update[2] = 5 << 3;
    EXPECT_EQ(read_message(world.raw(update))->rcode, Rcode::notimp);
    // What was decided has its reason with it, in whatever way it is answered; other types of the name have none.
    for (const auto picking : {Picking::all, Picking::one, Picking::rotate}) {
        auto panic = addresses({1, 2}, picking);
        panic.remark = "panic: no pool is usable";
        ASSERT_TRUE(world.set("app.example.test", {.choices = {panic}}).ok());
        EXPECT_EQ(why({"app.example.test"}), "0 panic: no pool is usable");
        EXPECT_GE(world.ask({.of = "app.example.test", .edns = 1232}).answer.size(), 1U);
        EXPECT_EQ(why({.of = "app.example.test", .type = type::mx}), "");
    }
    ASSERT_TRUE(world.set("app.example.test", {.choices = {{.when_empty = Choice::Empty::servfail, .remark = "none"}}}).ok());
    EXPECT_EQ(why({"app.example.test"}), "0 none");
    EXPECT_FALSE(world.set("app.example.test", {.choices = {{.remark = std::string(65, 'x')}}}).ok());
    // It takes no record's place: 29 addresses leave room for a part of it, then for none.
    std::vector<int> many;
    for (int i = 1; i <= 28; ++i) many.push_back(i);
    auto large = addresses(many, Picking::rotate);
    large.remark = "panic: no pool is usable";
    ASSERT_TRUE(world.set("app.example.test", {.choices = {large}}).ok());
    EXPECT_EQ(why({.of = "app.example.test", .edns = 512}), "0 panic: no poo"); // 512 - 12 - 22 - 11 - 28 * 16 = 19
    large.candidates.push_back(addresses({29}).candidates[0]);
    ASSERT_TRUE(world.set("app.example.test", {.choices = {large}}).ok());
    const auto full = world.ask({.of = "app.example.test", .edns = 512});
    EXPECT_EQ(full.answer.size(), 29U);
    EXPECT_TRUE(full.options.empty());
    // Without EDNS nothing is said.
    EXPECT_EQ(gist(world.ask({"www.other.test"})), "REFUSED | | |");
    // Over the limit.
    VirtualClock clock;
    const World limited({.rate_limit = {.per_second = 1, .burst = 1, .slip = 1}, .clock = &clock});
    std::ignore = limited.ask({.of = "www.example.test", .edns = 1232});
    const auto slipped = limited.ask({.of = "www.example.test", .edns = 1232});
    EXPECT_TRUE(slipped.truncated);
    EXPECT_EQ(slipped.options, (Octets{0, 15, 0, 12, 0, 0, 'r', 'a', 't', 'e', ' ', 'l', 'i', 'm', 'i', 't'}));
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

} // namespace orrery::dns
