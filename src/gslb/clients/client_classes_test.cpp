#include "gslb/clients/client_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace orrery::gslb {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

dns::Prefix prefix(std::string_view text) { return *parse_prefix(text); }
boost::asio::ip::address address(std::string_view text) { return boost::asio::ip::make_address(std::string(text)); }

std::vector<std::string> texts(const std::vector<dns::DynamicName::ClientRule>& rules) {
    std::vector<std::string> out;
    for (const auto& rule : rules) out.push_back(prefix_text(rule.prefix) + "=" + std::to_string(rule.answer_set));
    return out;
}

} // namespace

TEST(Prefixes, AreParsedFormattedAndMaskedToTheirLength) {
    for (const auto* text : {"192.0.2.0/24", "0.0.0.0/0", "10.1.2.3/32", "2001:db8::/32", "::/0", "2001:db8::1/128"})
        EXPECT_EQ(prefix_text(prefix(text)), text);
    EXPECT_EQ(prefix_text(prefix("192.0.2.7")), "192.0.2.7/32");
    for (const auto* text :
         {"", "192.0.2.0/33", "192.0.2.0/", "192.0.2.0/x", "2001:db8::/129", "192.0.2/24", "name/8", "fe80::1%1/64"})
        EXPECT_FALSE(parse_prefix(text).ok()) << text;
    EXPECT_THAT(parse_prefix("192.0.2.1/24").error().message, HasSubstr("bits set beyond its length"));
}

TEST(ClientClasses, AreFoundByTheLongestPrefixOfTheirFamily) {
    ClientClasses clients;
    clients.add(prefix("10.0.0.0/8"), 1);
    clients.add(prefix("10.1.0.0/16"), 2);
    clients.add(prefix("2001:db8::/32"), 3);
    EXPECT_EQ(clients.find(address("10.2.3.4")), 1U);
    EXPECT_EQ(clients.find(address("10.1.3.4")), 2U);
    EXPECT_EQ(clients.find(address("192.0.2.1")), 0U);
    EXPECT_EQ(clients.find(address("2001:db8:7::1")), 3U);
    EXPECT_EQ(clients.find(address("2001:db9::1")), 0U);
}

TEST(ClientClasses, WithEqualAnswersAreMerged) {
    ClientClasses clients;
    clients.add(prefix("10.0.0.0/9"), 1);
    clients.add(prefix("10.128.0.0/9"), 2);
    clients.add(prefix("10.3.0.0/16"), 3);
    const std::vector<std::uint32_t> same{0, 1, 1, 1};
    EXPECT_THAT(texts(clients.merged(same)), ElementsAre("10.0.0.0/8=1"));
    const std::vector<std::uint32_t> as_all{0, 0, 0, 0};
    EXPECT_THAT(texts(clients.merged(as_all)), IsEmpty());
    const std::vector<std::uint32_t> hole{0, 1, 1, 0};
    EXPECT_THAT(texts(clients.merged(hole)), ElementsAre("10.0.0.0/8=1", "10.3.0.0/16=0"));
}

TEST(ClientClasses, MergedPrefixesGiveTheSameClassForEveryAddress) {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        ClientClasses clients;
        const int rules = 1 + static_cast<int>(random() % 40);
        for (int at = 0; at < rules; ++at) {
            dns::Prefix one;
            one.v6 = random() % 4 == 0;
            one.length = static_cast<std::uint8_t>(random() % 9);
            // Few bits, so that prefixes meet.
            one.address[0] = static_cast<std::uint8_t>(one.length == 0 ? 0 : (random() & 0xffU) & (0xff00U >> one.length));
            clients.add(one, 1 + static_cast<std::uint32_t>(random() % 6));
        }
        std::vector<std::uint32_t> choice_of{0};
        for (int at = 0; at < 6; ++at) choice_of.push_back(static_cast<std::uint32_t>(random() % 3));
        ClientClasses merged;
        const auto rules_after = clients.merged(choice_of);
        for (const auto& rule : rules_after) merged.add(rule.prefix, rule.answer_set);
        EXPECT_LE(rules_after.size(), clients.size() + 2);
        for (unsigned first = 0; first < 256; ++first) {
            const boost::asio::ip::address_v4 v4(first << 24U | 0x010203U);
            std::array<std::uint8_t, 16> bytes{};
            bytes[0] = static_cast<std::uint8_t>(first);
            bytes[15] = 9;
            const boost::asio::ip::address_v6 v6(bytes);
            ASSERT_EQ(merged.find(v4), choice_of[clients.find(v4)]) << round << " " << v4.to_string();
            ASSERT_EQ(merged.find(v6), choice_of[clients.find(v6)]) << round << " " << v6.to_string();
        }
    }
}

} // namespace orrery::gslb
