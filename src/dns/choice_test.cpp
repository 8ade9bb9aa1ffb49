#include "dns/choice.h"
#include "dns/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace orrery::dns {

namespace {

Choice choice_of(Picking picking, std::vector<std::uint32_t> weights, std::size_t most = 0) {
    Choice out;
    out.picking = picking;
    out.most = most;
    for (std::size_t i = 0; i < weights.size(); ++i)
        out.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{10, 0, 0, static_cast<std::uint8_t>(i + 1)},
                                  .weight = weights[i],
                                  .identity = 1000 + i});
    return out;
}

std::vector<int> picks(const Choice& choice, Draw draw) {
    std::array<std::uint16_t, 64> picked{};
    const auto count = pick(choice, draw, picked);
    return {picked.begin(), picked.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// How often each was picked in so many draws.
std::vector<int> tally(const Choice& choice, int draws) {
    std::vector<int> out(choice.candidates.size());
    for (int i = 0; i < draws; ++i)
        for (const auto place : picks(choice, {.random = mixed(static_cast<std::uint64_t>(i))}))
            ++out[static_cast<std::size_t>(place)];
    return out;
}

} // namespace

TEST(Pick, AllInOrderAndRotatingFromTheNext) {
    EXPECT_EQ(picks(choice_of(Picking::all, {1, 1, 0}), {}), (std::vector{0, 1, 2}));
    EXPECT_EQ(picks(choice_of(Picking::all, {1, 1, 1}, 2), {}), (std::vector{0, 1}));
    const auto rotating = choice_of(Picking::rotate, {1, 1, 1});
    EXPECT_EQ(picks(rotating, {.turn = 0}), (std::vector{0, 1, 2}));
    EXPECT_EQ(picks(rotating, {.turn = 4}), (std::vector{1, 2, 0}));
    EXPECT_EQ(picks(choice_of(Picking::rotate, {1, 1, 1}, 1), {.turn = 2}), (std::vector{2}));
    EXPECT_TRUE(picks(choice_of(Picking::one, {}), {}).empty());
}

TEST(Pick, OneIsPickedByItsShareOfTheWeights) {
    const auto counts = tally(choice_of(Picking::one, {5, 3, 2, 0}), 100'000);
    EXPECT_NEAR(counts[0], 50'000, 800);
    EXPECT_NEAR(counts[1], 30'000, 800);
    EXPECT_NEAR(counts[2], 20'000, 800);
    EXPECT_EQ(counts[3], 0);
    for (const auto count : tally(choice_of(Picking::one, {0, 0}), 10'000)) EXPECT_NEAR(count, 5'000, 300);
    // Weights as large as they come do not overflow.
    const auto heavy = tally(choice_of(Picking::one, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE, 1}), 30'000);
    EXPECT_NEAR(heavy[0], 10'000, 500);
    EXPECT_NEAR(heavy[2], 10'000, 500);
    EXPECT_LE(heavy[3], 3);
}

TEST(Pick, TheHeaviestOfManyAreAlwaysThere) {
    const auto counts = tally(choice_of(Picking::many, {4, 2, 4, 1, 0}), 40'000);
    EXPECT_EQ(counts[0], 40'000);
    EXPECT_NEAR(counts[1], 20'000, 600);
    EXPECT_EQ(counts[2], 40'000);
    EXPECT_NEAR(counts[3], 10'000, 500);
    EXPECT_EQ(counts[4], 0);
    EXPECT_EQ(picks(choice_of(Picking::many, {0, 0}), {}).size(), 2U);
    // Where there is room for fewer, nobody is left out for ever.
    for (const auto count : tally(choice_of(Picking::many, {3, 3, 3, 3}, 1), 40'000)) EXPECT_NEAR(count, 10'000, 500);
}

TEST(Pick, ASubsetHasEqualChancesAndSpreadsOverDomains) {
    for (const auto count : tally(choice_of(Picking::subset, {1, 9, 1, 1}, 2), 40'000)) EXPECT_NEAR(count, 20'000, 600);
    auto spread = choice_of(Picking::subset, {1, 1, 1, 1, 1, 1}, 3);
    for (std::size_t i = 0; i < 6; ++i) spread.candidates[i].domain = static_cast<std::uint32_t>(i / 2 + 1);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        std::set<int> domains;
        for (const auto place : picks(spread, {.random = mixed(i)})) domains.insert(place / 2);
        ASSERT_EQ(domains.size(), 3U);
    }
}

TEST(Pick, StickyClientsMoveOnlyFromALostMember) {
    auto whole = choice_of(Picking::sticky, {1, 1, 2, 1}, 1);
    auto without = whole;
    without.candidates.erase(without.candidates.begin() + 1);
    std::vector<int> counts(4);
    for (std::uint64_t client = 0; client < 20'000; ++client) {
        const auto before = picks(whole, {.random = client * 7, .client_prefix = client}).at(0);
        const auto after = picks(without, {.client_prefix = client}).at(0);
        ++counts[static_cast<std::size_t>(before)];
        if (before != 1) {
            ASSERT_EQ(whole.candidates[static_cast<std::size_t>(before)].identity,
                      without.candidates[static_cast<std::size_t>(after)].identity);
        }
    }
    EXPECT_NEAR(counts[0], 4'000, 300);
    EXPECT_NEAR(counts[2], 8'000, 400);
}

TEST(Pick, ByNameTheNameDecidesAndNobodyElse) {
    const auto choice = choice_of(Picking::by_name, {1, 1, 2, 1}, 1);
    const auto hash = [](std::string_view of) { return hash_of(*Name::from_text(of)); };
    EXPECT_EQ(hash("A.Shop.Example"), hash("a.shop.example"));
    EXPECT_NE(hash("a.shop.example"), hash("ashop.example"));
    std::vector<int> counts(4);
    for (int at = 0; at < 4'000; ++at) {
        const auto name = hash(std::to_string(at) + ".shop.example");
        const auto first = picks(choice, {.random = 1, .turn = 1, .client_prefix = 1, .name = name});
        ASSERT_EQ(picks(choice, {.random = 2, .turn = 2, .client_prefix = 2, .name = name}), first);
        ++counts[static_cast<std::size_t>(first.at(0))];
    }
    EXPECT_NEAR(counts[0], 800, 130);
    EXPECT_NEAR(counts[2], 1'600, 160);
}

TEST(Pick, TheSameDrawGivesTheSamePicks) {
    for (const auto picking : {Picking::one, Picking::many, Picking::subset, Picking::sticky, Picking::by_name}) {
        const auto choice = choice_of(picking, {3, 1, 2, 5, 1}, 3);
        for (std::uint64_t i = 0; i < 100; ++i) {
            const Draw draw{.random = mixed(i), .turn = static_cast<std::uint32_t>(i), .client_prefix = i, .name = i};
            ASSERT_EQ(picks(choice, draw), picks(choice, draw));
        }
    }
}

} // namespace orrery::dns
