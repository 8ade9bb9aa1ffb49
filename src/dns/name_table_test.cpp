#include "dns/client_map.h"
#include "dns/name_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace orrery::dns {

namespace {

EntryPtr entry_with(NameTable& table, std::uint64_t hash, std::string_view name, std::uint32_t zone) {
    Entry like;
    like.hash = hash;
    like.zone = zone;
    return make_entry(table.memory(), std::move(like), Bytes(reinterpret_cast<const std::uint8_t*>(name.data()), name.size()), {},
                      {});
}

Bytes of(std::string_view text) { return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}; }

} // namespace

TEST(NameTable, EveryVersionEqualsAReferenceMap) {
    for (const std::uint64_t mask : {~0ULL, 0xFFFULL, 0ULL}) { // spread, crowded, and all with one hash
        NameTable table;
        std::map<std::string, std::uint32_t> model;
        std::vector<NameTable::Garbage> kept; // so that old versions stay readable
        std::vector<std::pair<const NameTable::Root*, std::map<std::string, std::uint32_t>>> versions;
        std::mt19937 random(1);
        const auto hash = [&](const std::string& name) { return NameKey::hash_below(1, of(name)) & mask; };
        for (std::uint32_t i = 0; i < 2000; ++i) {
            const auto name = "n" + std::to_string(random() % 300);
            if (random() % 3 == 0) {
                table.erase(hash(name), of(name));
                model.erase(name);
            } else {
                table.set(entry_with(table, hash(name), name, i));
                model[name] = i;
            }
            if (i % 100 == 0) {
                versions.emplace_back(table.version(), model);
                kept.push_back(table.release_garbage());
            }
        }
        versions.emplace_back(table.version(), model);
        std::vector<std::uint64_t> soon; // more than are fetched at once, and some that are not there
        for (int i = 0; i < 100; ++i) soon.push_back(hash("n" + std::to_string(i * 4)));
        for (const auto& [root, wanted] : versions) {
            NameTable::prefetch(*root, soon);
            for (int i = 0; i < 300; ++i) {
                const auto name = "n" + std::to_string(i);
                const auto* found = NameTable::find(*root, hash(name), of(name));
                const auto at = wanted.find(name);
                ASSERT_EQ(found != nullptr, at != wanted.end());
                if (found != nullptr) {
                    ASSERT_EQ(found->zone, at->second);
                }
            }
        }
    }
}

TEST(ClientMap, FindsTheLongestPrefixAndMergesEqualSiblings) {
    std::mt19937 random(2);
    for (int round = 0; round < 50; ++round) {
        std::vector<ClientMap::Rule> rules;
        for (int i = 0; i < 40; ++i) {
            ClientMap::Rule rule{.length = static_cast<std::uint8_t>(random() % 33),
                                 .answer_set = static_cast<std::uint32_t>(random() % 3)};
            for (unsigned bit = 0; bit < rule.length; ++bit)
                if (random() % 2 == 0) rule.address[bit / 8] = static_cast<std::uint8_t>(rule.address[bit / 8] | 0x80 >> bit % 8);
            rules.push_back(rule);
        }
        const ClientMap map(rules, 32);
        const auto plain = [&](const ClientMap::Address& address) {
            int longest = -1;
            std::uint32_t answer_set = 0;
            for (const auto& rule : rules) {
                bool inside = true;
                for (unsigned bit = 0; bit < rule.length && inside; ++bit)
                    inside = ((rule.address[bit / 8] ^ address[bit / 8]) & 0x80 >> bit % 8) == 0;
                if (inside && rule.length >= longest) longest = rule.length, answer_set = rule.answer_set;
            }
            return answer_set;
        };
        for (int i = 0; i < 500; ++i) {
            ClientMap::Address address{};
            const auto& near = rules[random() % rules.size()].address;
            for (std::size_t k = 0; k < 4; ++k) address[k] = static_cast<std::uint8_t>(random() % 3 == 0 ? random() : near[k]);
            const auto found = map.find(address);
            ASSERT_EQ(found.answer_set, plain(address));
            // All addresses within the scope have the same answer set; within a prefix one bit shorter they do not.
            for (int probe = 0; probe < 20; ++probe) {
                auto other = address;
                for (unsigned bit = found.scope; bit < 32; ++bit)
                    if (random() % 2 == 0) other[bit / 8] = static_cast<std::uint8_t>(other[bit / 8] ^ 0x80 >> bit % 8);
                ASSERT_EQ(plain(other), found.answer_set);
                ASSERT_EQ(map.find(other).scope, found.scope);
            }
        }
    }
    EXPECT_TRUE(ClientMap({}, 128).is_trivial());
    ClientMap::Rule low{.length = 127, .answer_set = 1}, high = low;
    low.address[15] = 0, high.address[15] = 2;
    const std::array rules{low, high};
    const ClientMap v6(rules, 128);
    ClientMap::Address address{};
    address[15] = 3;
    EXPECT_EQ(v6.find(address).answer_set, 1U);
    EXPECT_EQ(v6.find(address).scope, 126);
    address[15] = 4;
    EXPECT_EQ(v6.find(address).answer_set, 0U);
}

} // namespace orrery::dns
