#include "net/outbound.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::net {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<OutboundRules> outbound(std::vector<std::string> allow = {}, std::vector<std::string> deny = {}) {
    auto made =
        OutboundRules::make({.allow = std::move(allow), .deny = std::move(deny), .local = [] {
                                 return std::vector{asio::ip::make_address("192.0.2.10"), asio::ip::make_address("2001:db8::10")};
                             }});
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *made;
}

bool permits(const OutboundRules& rules, const std::string& address, std::uint16_t port = 80) {
    return rules.check(asio::ip::make_address(address), port).ok();
}

TEST(Outbound, DeniesTheClassesByDefaultInEveryEmbedding) {
    const auto rules = outbound();
    for (const auto* address : {
             "127.0.0.1",
             "127.255.255.254",
             "::1",
             "0.0.0.0",
             "0.1.2.3",
             "::",
             "169.254.0.1",
             "169.254.169.254",
             "fe80::1",
             "fe80::1%1",
             "febf::1",
             "fd00:ec2::254",
             "fd20:ce::254",
             "100.100.100.200",
             "168.63.129.16",
             "224.0.0.1",
             "ff01::1",
             "ff02::1",
             "255.255.255.255",
             "::ffff:127.0.0.1",
             "::ffff:0.0.0.0",
             "::ffff:169.254.169.254", // mapped
             "::127.0.0.1",
             "::169.254.169.254",  // compatible
             "::ffff:0:127.0.0.1", // translated
             "2002:7f00:1::",
             "2002:a9fe:a9fe::1",
             "2002:7f00:1:1234::5", // 6to4
             "64:ff9b::127.0.0.1",
             "64:ff9b::169.254.169.254", // NAT64
             "64:ff9b:1::127.0.0.1",
             "64:ff9b:1:7f00:0:100::",
             "64:ff9b:1:7f:0:1::",
             "64:ff9b:1:0:7f:0:100::",
             "2001:0:7f00:1:0:0:3fff:fdfd",
             "2001:0:4136:e378:8000:63bf:80ff:fffe", // Teredo: server, client
             "2001:db8::5efe:127.0.0.1",
             "2001:db8::200:5efe:169.254.169.254", // ISATAP
         }) {
        EXPECT_FALSE(permits(*rules, address)) << address;
        EXPECT_FALSE(permits(*rules, address, 0)) << address;
    }
}

TEST(Outbound, PermitsOtherAddresses) {
    const auto rules = outbound();
    for (const auto* address :
         {"10.0.0.1", "192.168.1.1", "172.16.0.1", "8.8.8.8", "128.0.0.1", "126.255.255.255", "169.253.255.255", "169.255.0.1",
          "100.64.0.1", "2001:db8::1", "fd00::1", "fc00::1", "fec0::1", "2002:a00:1::", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
          "64:ff9b:1::10.0.0.1", "64:ff9b:1:ffff::10.0.0.1", "2001:db8::7f00:1"})
        EXPECT_TRUE(permits(*rules, address)) << address;
}

TEST(Outbound, ConfigurationPermitsAnAddressInAllItsForms) {
    const auto rules = outbound({"127.0.0.0/8", "::1"});
    for (const auto* address : {"127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::", "::1", "64:ff9b::127.0.0.1"})
        EXPECT_TRUE(permits(*rules, address)) << address;
    for (const auto* address : {"169.254.169.254", "fe80::1", "0.1.2.3"}) EXPECT_FALSE(permits(*rules, address)) << address;
}

TEST(Outbound, TheMostSpecificRuleDecides) {
    EXPECT_FALSE(permits(*outbound({"0.0.0.0/0", "::/0"}), "127.0.0.1"));    // wider than what is built in
    EXPECT_FALSE(permits(*outbound({"169.254.0.0/16"}), "169.254.169.254")); // the metadata service must be named
    EXPECT_TRUE(permits(*outbound({"169.254.0.0/16"}), "169.254.7.7"));
    EXPECT_TRUE(permits(*outbound({"169.254.169.254"}), "169.254.169.254"));
    EXPECT_TRUE(permits(*outbound({"127.0.0.1:80"}), "127.0.0.1", 80));
    EXPECT_FALSE(permits(*outbound({"127.0.0.1:80"}), "127.0.0.1", 81));
    EXPECT_FALSE(permits(*outbound({"127.0.0.1:80"}), "127.0.0.1", 0));
    EXPECT_FALSE(permits(*outbound({"127.0.0.0/8"}, {"127.0.0.1:5432"}), "127.0.0.1", 5432));
    EXPECT_TRUE(permits(*outbound({"127.0.0.0/8"}, {"127.0.0.1:5432"}), "127.0.0.1", 5433));
    EXPECT_FALSE(permits(*outbound({"10.0.0.0/8"}, {"10.0.0.0/8"}), "10.0.0.1")); // of equals, deny
    EXPECT_TRUE(permits(*outbound({"10.1.0.0/16"}, {"10.0.0.0/8"}), "10.1.0.1"));
    EXPECT_FALSE(permits(*outbound({"10.1.0.0/16"}, {"10.0.0.0/8"}), "10.2.0.1"));
    EXPECT_FALSE(permits(*outbound({}, {"10.0.0.0/8"}), "64:ff9b::10.2.0.1"));
}

TEST(Outbound, ProtectedEndpointsAreOpenedOnlyByAddressAndPort) {
    const auto protect = [](const std::shared_ptr<OutboundRules>& rules) {
        rules->protect("this server's API", {{asio::ip::make_address("::"), 8421}, {asio::ip::make_address("10.0.0.5"), 8500}});
        rules->protect("etcd", {{asio::ip::make_address("127.0.0.1"), 2379}, {asio::ip::make_address("10.0.0.6"), 2379}});
        return rules;
    };
    const auto loopback_open = protect(outbound({"127.0.0.0/8", "::1", "10.0.0.0/8"}));
    for (const auto& [address, port] : std::vector<std::pair<std::string, std::uint16_t>>{{"127.0.0.1", 8421},
                                                                                          {"127.9.9.9", 8421},
                                                                                          {"::1", 8421},
                                                                                          {"192.0.2.10", 8421},
                                                                                          {"2001:db8::10", 8421},
                                                                                          {"64:ff9b::192.0.2.10", 8421},
                                                                                          {"10.0.0.5", 8500},
                                                                                          {"127.0.0.1", 2379},
                                                                                          {"192.0.2.10", 2379},
                                                                                          {"10.0.0.6", 2379},
                                                                                          {"::ffff:10.0.0.6", 2379}})
        EXPECT_FALSE(permits(*loopback_open, address, port)) << address << " " << port;
    for (const auto& [address, port] : std::vector<std::pair<std::string, std::uint16_t>>{
             {"192.0.2.11", 8421}, {"10.0.0.5", 80}, {"10.0.0.5", 8421}, {"127.0.0.1", 80}, {"10.0.0.6", 443}})
        EXPECT_TRUE(permits(*loopback_open, address, port)) << address << " " << port;
    EXPECT_TRUE(permits(*protect(outbound({"127.0.0.1:8421"})), "127.0.0.1", 8421));
    EXPECT_TRUE(permits(*protect(outbound({"10.0.0.6:2379"})), "10.0.0.6", 2379));
    const auto replaced = protect(outbound());
    replaced->protect("etcd", {{asio::ip::make_address("10.0.0.7"), 2379}});
    EXPECT_TRUE(permits(*replaced, "10.0.0.6", 2379));
    EXPECT_FALSE(permits(*replaced, "10.0.0.7", 2379));
}

TEST(Outbound, TheErrorNamesTheRuleAndWhatOpensIt) {
    const auto rules = outbound();
    rules->protect("etcd", {{asio::ip::make_address("10.0.0.6"), 2379}});
    const auto of = [&](const char* address, std::uint16_t port) {
        return rules->check(asio::ip::make_address(address), port).error();
    };
    EXPECT_EQ(of("127.0.0.1", 80).code, Code::denied);
    EXPECT_EQ(of("127.0.0.1", 80).message, "outbound rule \"loopback\" (127.0.0.0/8) denies 127.0.0.1:80");
    EXPECT_EQ(of("127.0.0.1", 80).remedy, "net.outbound.allow: [\"127.0.0.1:80\"] opens it");
    EXPECT_EQ(of("64:ff9b::a9fe:a9fe", 80).message,
              "outbound rule \"metadata service\" (169.254.169.254) denies [64:ff9b::a9fe:a9fe]:80, which reaches 169.254.169.254");
    EXPECT_EQ(of("::1", 0).remedy, "net.outbound.allow: [\"::1\"] opens it");
    EXPECT_EQ(of("::", 443).remedy, "net.outbound.allow: [\"[::1]:443\"] opens it");
    EXPECT_EQ(of("10.0.0.6", 2379).message, "outbound rule \"etcd\" denies 10.0.0.6:2379");
    EXPECT_EQ(of("10.0.0.6", 2379).remedy, "net.outbound.allow: [\"10.0.0.6:2379\"] opens it");
}

TEST(Outbound, LiteralsAreRecognisedInEveryFormThatResolversAccept) {
    const auto rules = outbound();
    for (const auto* host : {"127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0", "::1", "fe80::1%lo", "::ffff:7f00:1"})
        EXPECT_FALSE(rules->check_literal(host, 80).ok()) << host;
    for (const auto* host : {"localhost", "example.org", "10.0.0.1", "10.1", "2001:db8::1"})
        EXPECT_TRUE(rules->check_literal(host, 80).ok()) << host;
}

TEST(Outbound, RangesAreParsedAndFormatted) {
    for (const auto* text : {"127.0.0.0/8", "127.0.0.1", "127.0.0.1:80", "10.0.0.0/8:443", "::1", "fd00::/8", "[::1]:8080",
                             "[fd00::/8]:443", "0.0.0.0/0", "::/0"}) {
        const auto range = parse_outbound_range(text);
        ASSERT_TRUE(range.ok()) << text << ": " << range.error().message;
        EXPECT_EQ(range->text(), text);
    }
    for (const auto* text :
         {"", "localhost", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.0/33", "::/129", "127.0.0.0/-1", "127.0.0.0/",
          "[::1]", "[::1]:", "[127.0.0.1]:80", "::1:80:", "fe80::1%1", "127.0.0.1:80:90", "127.1", " 127.0.0.1"})
        EXPECT_FALSE(parse_outbound_range(text).ok()) << text;
    EXPECT_THAT(parse_outbound_range("127.0.0.1/8").error().remedy, HasSubstr("127.0.0.0/8"));
}

/// Whatever way an IPv4 address is embedded, the verdict is the one of the IPv4 address.
TEST(Outbound, EmbeddingsOfRandomAddressesAreJudgedAsTheAddress) {
    std::mt19937 random(7);
    const auto rules = outbound({"127.3.0.0/16", "169.254.9.9:80"}, {"10.0.0.0/8", "203.0.113.0/24:80"});
    const std::uint8_t interesting[] = {0, 10, 127, 169, 203, 224, 255, 100, 192};
    for (int i = 0; i < 20'000; ++i) {
        std::array<std::uint8_t, 4> v4{};
        for (auto& byte : v4) byte = static_cast<std::uint8_t>(random());
        if (i % 2 == 0) v4[0] = interesting[random() % std::size(interesting)];
        if (v4[0] == 169 && i % 3 == 0) v4[1] = 254;
        if (v4[0] == 203) v4 = {203, 0, 113, v4[3]};
        const auto port = static_cast<std::uint16_t>(random() % 2 == 0 ? 80 : 443);
        const asio::ip::address_v4 plain(v4);
        const bool expected = rules->check(plain, port).ok();
        const auto forms = {fmt::format("::ffff:{}", plain.to_string()), fmt::format("64:ff9b::{}", plain.to_string()),
                            fmt::format("2002:{:02x}{:02x}:{:02x}{:02x}::1", v4[0], v4[1], v4[2], v4[3]),
                            fmt::format("2001:db8::5efe:{}", plain.to_string()), fmt::format("::ffff:0:{}", plain.to_string())};
        for (const auto& form : forms) {
            // 0.0.0.0 is this host only if the kernel sees IPv4.
            if (plain.is_unspecified() && form != *forms.begin()) continue;
            EXPECT_EQ(rules->check(asio::ip::make_address(form), port).ok(), expected) << form << " " << port;
        }
    }
}

/// A range contains exactly the addresses that share its prefix, bit by bit.
TEST(Outbound, RangesContainTheAddressesOfTheirPrefix) {
    std::mt19937 random(11);
    for (int i = 0; i < 5000; ++i) {
        OutboundRange range;
        range.length = static_cast<int>(random() % 129);
        AddressBytes address{};
        for (std::size_t at = 0; at < 16; ++at) range.network[at] = address[at] = static_cast<std::uint8_t>(random());
        const auto flip = static_cast<int>(random() % 128);
        address[static_cast<std::size_t>(flip / 8)] ^= static_cast<std::uint8_t>(0x80U >> (flip % 8));
        EXPECT_EQ(range.contains(address, 1), flip >= range.length);
    }
}

} // namespace
} // namespace orrery::net
