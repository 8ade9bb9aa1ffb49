#include "core/digest.h"
#include "dns/alias_table.h"
#include "dns/answer_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace orrery::dns {

namespace {

AnswerSet answer_set_of(SelectionPolicy policy, std::vector<std::uint32_t> weights, std::size_t max_answers = 0) {
    AnswerSet out;
    out.policy = policy;
    out.max_answers = max_answers;
    for (std::size_t i = 0; i < weights.size(); ++i)
        out.candidates.push_back({.v4 = std::array<std::uint8_t, 4>{10, 0, 0, static_cast<std::uint8_t>(i + 1)},
                                  .weight = weights[i],
                                  .identity = 1000 + i});
    return out;
}

std::vector<int> select(const AnswerSet& answer_set, SelectionInput input) {
    std::array<std::uint16_t, 64> selected{};
    const auto count = select_candidates(answer_set, input, selected);
    return {selected.begin(), selected.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Counts how often each candidate was selected in a number of draws.
std::vector<int> tally(const AnswerSet& answer_set, int draws) {
    std::vector<int> out(answer_set.candidates.size());
    for (int i = 0; i < draws; ++i)
        for (const auto place : select(answer_set, {.random = mix_bits(static_cast<std::uint64_t>(i))}))
            ++out[static_cast<std::size_t>(place)];
    return out;
}

} // namespace

TEST(SelectCandidates, AllReturnsThemInOrderAndRoundRobinRotates) {
    EXPECT_EQ(select(answer_set_of(SelectionPolicy::all, {1, 1, 0}), {}), (std::vector{0, 1, 2}));
    EXPECT_EQ(select(answer_set_of(SelectionPolicy::all, {1, 1, 1}, 2), {}), (std::vector{0, 1}));
    const auto rotating = answer_set_of(SelectionPolicy::round_robin, {1, 1, 1});
    EXPECT_EQ(select(rotating, {.rotation = 0}), (std::vector{0, 1, 2}));
    EXPECT_EQ(select(rotating, {.rotation = 4}), (std::vector{1, 2, 0}));
    EXPECT_EQ(select(answer_set_of(SelectionPolicy::round_robin, {1, 1, 1}, 1), {.rotation = 2}), (std::vector{2}));
    EXPECT_TRUE(select(answer_set_of(SelectionPolicy::weighted, {}), {}).empty());
}

TEST(SelectCandidates, WeightedSelectsByShareOfTheWeights) {
    const auto counts = tally(answer_set_of(SelectionPolicy::weighted, {5, 3, 2, 0}), 100'000);
    EXPECT_NEAR(counts[0], 50'000, 800);
    EXPECT_NEAR(counts[1], 30'000, 800);
    EXPECT_NEAR(counts[2], 20'000, 800);
    EXPECT_EQ(counts[3], 0);
    for (const auto count : tally(answer_set_of(SelectionPolicy::weighted, {0, 0}), 10'000)) EXPECT_NEAR(count, 5'000, 300);
    // The highest weights do not overflow.
    const auto heavy = tally(answer_set_of(SelectionPolicy::weighted, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFE, 1}), 30'000);
    EXPECT_NEAR(heavy[0], 10'000, 500);
    EXPECT_NEAR(heavy[2], 10'000, 500);
    EXPECT_LE(heavy[3], 3);
}

TEST(SelectCandidates, WeightedManyAlwaysIncludesTheHeaviest) {
    const auto counts = tally(answer_set_of(SelectionPolicy::weighted_many, {4, 2, 4, 1, 0}), 40'000);
    EXPECT_EQ(counts[0], 40'000);
    EXPECT_NEAR(counts[1], 20'000, 600);
    EXPECT_EQ(counts[2], 40'000);
    EXPECT_NEAR(counts[3], 10'000, 500);
    EXPECT_EQ(counts[4], 0);
    EXPECT_EQ(select(answer_set_of(SelectionPolicy::weighted_many, {0, 0}), {}).size(), 2U);
    // With a limit, every candidate is selected eventually.
    for (const auto count : tally(answer_set_of(SelectionPolicy::weighted_many, {3, 3, 3, 3}, 1), 40'000))
        EXPECT_NEAR(count, 10'000, 500);
}

TEST(SelectCandidates, SubsetIsUniformAndSpreadOverFailureDomains) {
    for (const auto count : tally(answer_set_of(SelectionPolicy::subset, {1, 9, 1, 1}, 2), 40'000)) EXPECT_NEAR(count, 20'000, 600);
    auto spread = answer_set_of(SelectionPolicy::subset, {1, 1, 1, 1, 1, 1}, 3);
    for (std::size_t i = 0; i < 6; ++i) spread.candidates[i].domain = static_cast<std::uint32_t>(i / 2 + 1);
    for (std::uint64_t i = 0; i < 1000; ++i) {
        std::set<int> domains;
        for (const auto place : select(spread, {.random = mix_bits(i)})) domains.insert(place / 2);
        ASSERT_EQ(domains.size(), 3U);
    }
}

TEST(SelectCandidates, StickyClientsMoveOnlyFromALostMember) {
    auto whole = answer_set_of(SelectionPolicy::sticky, {1, 1, 2, 1}, 1);
    auto without = whole;
    without.candidates.erase(without.candidates.begin() + 1);
    std::vector<int> counts(4);
    for (std::uint64_t client = 0; client < 20'000; ++client) {
        const auto before = select(whole, {.random = client * 7, .client_hash = client}).at(0);
        const auto after = select(without, {.client_hash = client}).at(0);
        ++counts[static_cast<std::size_t>(before)];
        if (before != 1) {
            ASSERT_EQ(whole.candidates[static_cast<std::size_t>(before)].identity,
                      without.candidates[static_cast<std::size_t>(after)].identity);
        }
    }
    EXPECT_NEAR(counts[0], 4'000, 300);
    EXPECT_NEAR(counts[2], 8'000, 400);
}

TEST(SelectCandidates, StickyByNameDependsOnlyOnTheName) {
    const auto answer_set = answer_set_of(SelectionPolicy::sticky_by_name, {1, 1, 2, 1}, 1);
    const auto hash = [](std::string_view of) { return name_hash(*Name::from_text(of)); };
    EXPECT_EQ(hash("A.Shop.Example"), hash("a.shop.example"));
    EXPECT_NE(hash("a.shop.example"), hash("ashop.example"));
    std::vector<int> counts(4);
    for (int at = 0; at < 4'000; ++at) {
        const auto name = hash(std::to_string(at) + ".shop.example");
        const auto first = select(answer_set, {.random = 1, .rotation = 1, .client_hash = 1, .query_name_hash = name});
        ASSERT_EQ(select(answer_set, {.random = 2, .rotation = 2, .client_hash = 2, .query_name_hash = name}), first);
        ++counts[static_cast<std::size_t>(first.at(0))];
    }
    EXPECT_NEAR(counts[0], 800, 130);
    EXPECT_NEAR(counts[2], 1'600, 160);
}

TEST(SelectCandidates, TheSameInputGivesTheSameCandidates) {
    for (const auto policy : {SelectionPolicy::weighted, SelectionPolicy::weighted_many, SelectionPolicy::subset,
                              SelectionPolicy::sticky, SelectionPolicy::sticky_by_name}) {
        const auto answer_set = answer_set_of(policy, {3, 1, 2, 5, 1}, 3);
        for (std::uint64_t i = 0; i < 100; ++i) {
            const SelectionInput input{
                .random = mix_bits(i), .rotation = static_cast<std::uint32_t>(i), .client_hash = i, .query_name_hash = i};
            ASSERT_EQ(select(answer_set, input), select(answer_set, input));
        }
    }
}

} // namespace orrery::dns
