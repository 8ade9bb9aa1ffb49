#include "dns/authority_fixture.h"
#include "dns/edns.h"

namespace orrery::dns {

TEST(Authority, Edns) {
    AuthorityFixture fixture({.nsid = "pop1"});
    const auto plain = fixture.ask({.of = "www.example.test", .edns = 1400, .options = {0xFD, 0xE9, 0, 1, 9}, .opt_ttl = 0x8001});
    EXPECT_EQ(plain.edns_size, 1232);
    EXPECT_TRUE(plain.dnssec_ok);
    EXPECT_TRUE(plain.options.empty()); // an unknown option is not repeated
    EXPECT_EQ(summary(fixture.ask({.of = "www.example.test", .edns = 1232, .opt_ttl = 0x00010000})), "BADVERS | | |");
    EXPECT_EQ(fixture.ask({.of = "www.example.test", .edns = 1232, .options = {0, 3, 0, 0}}).options,
              (Octets{0, 3, 0, 4, 'p', 'o', 'p', '1'}));
    EXPECT_EQ(fixture.ask({.of = "www.example.test", .edns = 1232, .options = {0, 11, 0, 0}, .tcp = true}).options,
              (Octets{0, 11, 0, 2, 0x01, 0x2C}));
    EXPECT_TRUE(fixture.ask({.of = "www.example.test", .edns = 1232, .options = {0, 11, 0, 0}}).options.empty());
    EXPECT_EQ(fixture.raw(TestQuery{.of = "www.example.test", .edns = 1232, .options = {0, 3, 0, 1}}.bytes())[3],
              1); // runs over: FORMERR
    EXPECT_TRUE(fixture.raw(Octets(11)).empty());
    auto answer = TestQuery{"www.example.test"}.bytes();
    answer[2] |= 0x80;
    EXPECT_TRUE(fixture.raw(answer).empty());
    // The flags TC, AA, AD and Z of a query are not copied; RD and CD are.
    auto bits = TestQuery{"www.example.test"}.bytes();
    bits[2] = 0x07;
    bits[3] = 0x70;
    const auto back = fixture.raw(bits);
    EXPECT_EQ(back[2], 0x85);
    EXPECT_EQ(back[3], 0x10);
    for (const std::uint8_t opcode : {1, 2, 4, 5, 15}) {
        auto other = TestQuery{"www.example.test"}.bytes();
        other[2] = static_cast<std::uint8_t>(opcode << 3);
        EXPECT_EQ(fixture.raw(other)[3] & 0xF, 4) << int{opcode};
    }
}

TEST(Authority, ASuspendedAuthorityAnswersServfailUntilItIsResumed) {
    AuthorityFixture fixture({.transfer_to = {Prefix{}}});
    const auto before = summary(fixture.ask({.of = "www.example.test"}));
    EXPECT_TRUE(before.starts_with("NOERROR")) << before;
    fixture.authority.suspend(true);
    EXPECT_TRUE(fixture.authority.is_suspended());
    const auto refused = fixture.ask({.of = "www.example.test", .edns = 1232});
    EXPECT_TRUE(summary(refused).starts_with("SERVFAIL")) << summary(refused);
    ASSERT_GE(refused.options.size(), 6U);
    EXPECT_EQ((Octets(refused.options.begin(), refused.options.begin() + 2)), (Octets{0, 15}));
    EXPECT_EQ(refused.options[5], 14) << "not ready";
    const auto query = write_query(1, name("example.test"), type::axfr);
    EXPECT_EQ(fixture.authority.transfer(query, {.transport = Client::Transport::tcp}), nullptr)
        << "a stale zone is not transfer_signatures";
    fixture.authority.suspend(false);
    EXPECT_EQ(summary(fixture.ask({.of = "www.example.test"})), before);
    EXPECT_NE(fixture.authority.transfer(query, {.transport = Client::Transport::tcp}), nullptr);
}

TEST(Authority, Cookies) {
    VirtualClock clock;
    const CookieSecret secret{0xe5, 0xe9, 0x73, 0xe5, 0xa6, 0xb2, 0xa4, 0x3f, 0x48, 0xe7, 0xdc, 0x84, 0x9e, 0x37, 0xbf, 0xcf};
    const Octets client_cookie{0x24, 0x64, 0xc4, 0xab, 0xcf, 0x10, 0xc9, 0x57};
    // RFC 9018, appendix A.1.
    Client client;
    client.address = {198, 51, 100, 100};
    EXPECT_EQ(make_cookie(secret, client_cookie, client, 1559731985),
              (ServerCookie{0x01, 0, 0, 0, 0x5c, 0xf7, 0x9f, 0x11, 0x1f, 0x81, 0x30, 0xc3, 0xee, 0xe2, 0x94, 0x80}));
    AuthorityFixture fixture({.cookie_secrets = {secret}, .rate_limit = {.per_second = 1, .burst = 1, .slip = 1}, .clock = &clock});
    const auto cookie = [&](const Octets& server) {
        Octets out{0, 10, 0, static_cast<std::uint8_t>(8 + server.size())};
        out.insert(out.end(), client_cookie.begin(), client_cookie.end());
        out.insert(out.end(), server.begin(), server.end());
        return out;
    };
    const auto ask = [&](const Octets& server, std::array<std::uint8_t, 4> from = {198, 51, 100, 100}) {
        return fixture.ask({.of = "www.example.test", .edns = 1232, .options = cookie(server), .from = from});
    };
    const auto first = ask({});
    ASSERT_EQ(first.options.size(), 28U);
    EXPECT_FALSE(first.truncated);
    const Octets given(first.options.begin() + 12, first.options.end());
    EXPECT_TRUE(ask({}).truncated);     // the limit
    EXPECT_FALSE(ask(given).truncated); // a valid cookie proves the address of the client
    EXPECT_EQ(ask(given).options, cookie(given));
    EXPECT_TRUE(ask(given, {198, 51, 100, 101}).truncated);
    clock.advance(std::chrono::minutes(31));
    EXPECT_NE(ask(given).options, cookie(given)); // renewed
    clock.advance(std::chrono::minutes(31));
    std::ignore = ask({});
    EXPECT_TRUE(ask(given).truncated);
    EXPECT_EQ(fixture.authority.statistics().valid_cookies, 3U);
    for (const std::size_t length : {7, 9, 15, 41}) {
        Octets bad{0, 10, 0, static_cast<std::uint8_t>(length)};
        bad.resize(4 + length);
        EXPECT_EQ(summary(AuthorityFixture().ask({.of = "www.example.test", .edns = 1232, .options = bad})), "FORMERR | | |")
            << length;
    }
    // A query for a cookie without a question.
    Octets only{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12};
    const auto wanted = cookie({});
    only.insert(only.end(), wanted.begin(), wanted.end());
    clock.advance(std::chrono::minutes(31));
    const auto out = fixture.raw(only, client);
    EXPECT_EQ(out.size(), 12 + 11 + 28U);
    EXPECT_EQ(out[3] & 0xF, 0);
    only.resize(12);
    only[11] = 0;
    EXPECT_EQ(fixture.raw(only)[3] & 0xF, 1);
}

TEST(Authority, SendsExtendedErrorsToEdnsClients) {
    AuthorityFixture fixture({.transfer_to = {prefix({192, 0, 2, 0}, 24)}, .rate_limit = {.per_second = 1000, .slip = 1}});
    /// The extended error as "18 text"; empty if there is none.
    const auto why = [&](TestQuery ask) {
        ask.edns = ask.edns.value_or(1232);
        const auto options = fixture.ask(ask).options;
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
    auto update = TestQuery{.of = "example.test", .type = type::soa, .edns = 1232}.bytes();
    update[2] = 5 << 3;
    EXPECT_EQ(read_message(fixture.raw(update))->rcode, Rcode::notimp);
    // The extended error of an answer set is sent on every path for addresses, and not for other types.
    for (const auto policy : {SelectionPolicy::all, SelectionPolicy::weighted, SelectionPolicy::round_robin}) {
        auto panic = addresses({1, 2}, policy);
        panic.extended_error = "panic: no pool is usable";
        ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {panic}}).ok());
        EXPECT_EQ(why({"app.example.test"}), "0 panic: no pool is usable");
        EXPECT_GE(fixture.ask({.of = "app.example.test", .edns = 1232}).answer.size(), 1U);
        EXPECT_EQ(why({.of = "app.example.test", .type = type::mx}), "");
    }
    ASSERT_TRUE(
        fixture.set("app.example.test", {.answer_sets = {{.when_empty = AnswerSet::Empty::servfail, .extended_error = "none"}}})
            .ok());
    EXPECT_EQ(why({"app.example.test"}), "0 none");
    EXPECT_FALSE(fixture.set("app.example.test", {.answer_sets = {{.extended_error = std::string(65, 'x')}}}).ok());
    // It displaces no record: 29 addresses leave space for a part of the text, more addresses for none.
    std::vector<int> many;
    for (int i = 1; i <= 28; ++i) many.push_back(i);
    auto large = addresses(many, SelectionPolicy::round_robin);
    large.extended_error = "panic: no pool is usable";
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {large}}).ok());
    EXPECT_EQ(why({.of = "app.example.test", .edns = 512}), "0 panic: no poo"); // 512 - 12 - 22 - 11 - 28 * 16 = 19
    large.candidates.push_back(addresses({29}).candidates[0]);
    ASSERT_TRUE(fixture.set("app.example.test", {.answer_sets = {large}}).ok());
    const auto full = fixture.ask({.of = "app.example.test", .edns = 512});
    EXPECT_EQ(full.answer.size(), 29U);
    EXPECT_TRUE(full.options.empty());
    // Without EDNS there is no extended error.
    EXPECT_EQ(summary(fixture.ask({"www.other.test"})), "REFUSED | | |");
    // Over the rate limit.
    VirtualClock clock;
    const AuthorityFixture limited({.rate_limit = {.per_second = 1, .burst = 1, .slip = 1}, .clock = &clock});
    std::ignore = limited.ask({.of = "www.example.test", .edns = 1232});
    const auto slipped = limited.ask({.of = "www.example.test", .edns = 1232});
    EXPECT_TRUE(slipped.truncated);
    EXPECT_EQ(slipped.options, (Octets{0, 15, 0, 12, 0, 0, 'r', 'a', 't', 'e', ' ', 'l', 'i', 'm', 'i', 't'}));
}

TEST(Authority, QueryLogNeverBlocksAnswering) {
    VirtualClock clock;
    AuthorityFixture fixture({.query_log_capacity = 4, .clock = &clock});
    for (int i = 0; i < 6; ++i) std::ignore = fixture.ask({"n" + std::to_string(i) + ".example.test"});
    std::vector<std::string> seen;
    EXPECT_EQ(fixture.authority.drain_query_log([&](const Authority::LoggedQuery& one) {
        seen.push_back(one.name.to_text());
        EXPECT_EQ(one.rcode, Rcode::nxdomain);
        EXPECT_EQ(one.time, clock.wall());
        EXPECT_GT(one.size, 50);
    }),
              4U);
    EXPECT_EQ(seen.back(), "n3.example.test");
    EXPECT_EQ(fixture.authority.statistics().query_log_dropped, 2U);
    std::ignore = fixture.ask({"www.example.test"});
    EXPECT_EQ(fixture.authority.drain_query_log([](const Authority::LoggedQuery&) {}), 1U);
}

} // namespace orrery::dns
