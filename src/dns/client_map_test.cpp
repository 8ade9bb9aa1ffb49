#include "dns/client_map.h"

#include <gtest/gtest.h>

#include <random>

namespace orrery::dns {

TEST(ClientMap, MappedEqualsAMapBuiltWithTheNewIndexes) {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        std::vector<ClientMap::Rule> rules;
        for (int at = 0; at < 12; ++at) {
            ClientMap::Rule rule;
            rule.length = static_cast<std::uint8_t>(random() % 9);
            rule.address[0] = static_cast<std::uint8_t>(rule.length == 0 ? 0 : random() & 0xff00U >> rule.length);
            rule.answer_set = static_cast<std::uint32_t>(random() % 6);
            rules.push_back(rule);
        }
        const std::vector<std::uint32_t> answer_set_of{0, 1, 2, static_cast<std::uint32_t>(random() % 3), 1, 0};
        const auto mapped = ClientMap(rules, 32).mapped(answer_set_of);
        for (auto& rule : rules) rule.answer_set = answer_set_of[rule.answer_set];
        const ClientMap made(rules, 32);
        EXPECT_EQ(mapped.size(), made.size());
        EXPECT_LE(mapped.max_answer_set(), 2U);
        for (unsigned first = 0; first < 256; ++first) {
            const ClientMap::Address client{static_cast<std::uint8_t>(first), 7, 7, 7};
            EXPECT_EQ(mapped.find(client).answer_set, made.find(client).answer_set);
            EXPECT_EQ(mapped.find(client).scope, made.find(client).scope);
        }
    }
}

TEST(ClientMap, AppendMergesAdjacentPrefixes) {
    ClientMap map;
    for (unsigned at = 0; at < 256; ++at) map.append({static_cast<std::uint8_t>(at)}, 8, at < 128 ? 3 : 5);
    EXPECT_EQ(map.size(), 2U);
    EXPECT_EQ(map.max_answer_set(), 5U);
    EXPECT_EQ(map.find({200, 1}).answer_set, 5U);
    EXPECT_EQ(map.find({100, 1}).scope, 1);
    const std::vector<std::uint32_t> same(6, 4);
    EXPECT_TRUE(map.mapped(same).is_trivial());
    EXPECT_EQ(map.mapped(same).find({1}).scope, 0);
}

} // namespace orrery::dns
