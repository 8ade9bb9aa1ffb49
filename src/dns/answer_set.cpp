#include "dns/answer_set.h"

#include "core/digest.h"
#include "dns/alias_table.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery::dns {

namespace {

bool any_weight(const std::vector<Candidate>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(), [](const Candidate& one) { return one.weight > 0; });
}

/// Weighted rendezvous hashing: the highest score wins. The score of a member depends only on the member and the key.
double score(const Candidate& candidate, std::uint64_t key, bool weighted) {
    const auto hash = mix_bits(mix_bits(key) ^ mix_bits(candidate.identity + 0x5851F42D4C957F2DU));
    const double uniform = (static_cast<double>(hash >> 11) + 0.5) * 0x1.0p-53; // in (0, 1)
    return -(weighted ? static_cast<double>(candidate.weight) : 1.0) / std::log(uniform);
}

struct Ranked {
    std::uint32_t round = 0; ///< number of earlier candidates of the same failure domain
    std::uint16_t index = 0;
    double score = 0;
};

std::size_t select_subset(const AnswerSet& answer_set, const SelectionInput& input, std::span<std::uint16_t> selected,
                          std::size_t max_answers) {
    const auto& candidates = answer_set.candidates;
    const bool weighted = any_weight(candidates);
    thread_local std::vector<Ranked> order; // reused, so that a query allocates nothing
    order.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i)
        if (!weighted || candidates[i].weight > 0) order.push_back({0, static_cast<std::uint16_t>(i), 0});
    auto random = input.random;
    for (std::size_t i = order.size(); i > 1; --i) {
        random = mix_bits(random);
        std::swap(order[i - 1], order[static_cast<std::size_t>((random >> 32) * i >> 32)]);
    }
    if (max_answers < order.size()) {
        // Take one candidate of each failure domain per round, in random order.
        thread_local std::vector<std::pair<std::uint32_t, std::uint32_t>> seen; // domain, count
        seen.clear();
        double position = 0;
        for (auto& one : order) {
            one.score = position++;
            const auto domain = candidates[one.index].domain;
            if (domain == 0) continue;
            auto at = std::find_if(seen.begin(), seen.end(), [&](const auto& pair) { return pair.first == domain; });
            if (at == seen.end()) at = seen.insert(seen.end(), {domain, 0});
            one.round = at->second++;
        }
        std::sort(order.begin(), order.end(),
                  [](const Ranked& a, const Ranked& b) { return a.round < b.round || (a.round == b.round && a.score < b.score); });
    }
    const auto count = std::min({max_answers, order.size(), selected.size()});
    for (std::size_t i = 0; i < count; ++i) selected[i] = order[i].index;
    return count;
}

std::size_t select_sticky(const AnswerSet& answer_set, std::uint64_t key, std::span<std::uint16_t> selected,
                          std::size_t max_answers) {
    const auto& candidates = answer_set.candidates;
    const bool weighted = any_weight(candidates);
    thread_local std::vector<Ranked> order; // reused, so that a query allocates nothing
    order.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i)
        if (!weighted || candidates[i].weight > 0)
            order.push_back({0, static_cast<std::uint16_t>(i), score(candidates[i], key, weighted)});
    const auto count = std::min({max_answers, order.size(), selected.size()});
    // Scores are equal only for equal identities; the first one wins on every server.
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
        [](const Ranked& a, const Ranked& b) { return a.score > b.score || (a.score == b.score && a.index < b.index); });
    for (std::size_t i = 0; i < count; ++i) selected[i] = order[i].index;
    return count;
}

} // namespace

std::uint64_t name_hash(const Name& name) {
    Fnv1a hash;
    for (const auto byte : name.wire()) {
        const auto low = static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte); // label lengths are below 'A'
        hash.add({&low, 1});
    }
    return hash.value();
}

namespace {

bool has_address(const Candidate& candidate, AddressFamily family) {
    return family == AddressFamily::ipv4 ? candidate.v4.has_value() : candidate.v6.has_value();
}

} // namespace

bool needs_family_filter(const AnswerSet& answer_set, AddressFamily family) {
    if (answer_set.policy == SelectionPolicy::sticky || answer_set.policy == SelectionPolicy::sticky_by_name) return false;
    return std::any_of(answer_set.candidates.begin(), answer_set.candidates.end(),
                       [&](const Candidate& one) { return !has_address(one, family); });
}

AnswerSet filter_by_family(const AnswerSet& answer_set, AddressFamily family) {
    auto out = answer_set;
    if (needs_family_filter(answer_set, family))
        std::erase_if(out.candidates, [&](const Candidate& one) { return !has_address(one, family); });
    return out;
}

std::size_t select_candidates(const AnswerSet& answer_set, const SelectionInput& input, std::span<std::uint16_t> selected) {
    const auto& candidates = answer_set.candidates;
    const auto n = candidates.size();
    assert(n <= max_selectable);
    if (n == 0 || selected.empty()) return 0;
    const auto max_answers = std::min(answer_set.max_answers == 0 ? n : answer_set.max_answers, selected.size());
    std::size_t count = 0;
    switch (answer_set.policy) {
    case SelectionPolicy::all:
        for (; count < std::min(n, max_answers); ++count) selected[count] = static_cast<std::uint16_t>(count);
        return count;
    case SelectionPolicy::round_robin:
        for (; count < std::min(n, max_answers); ++count)
            selected[count] = static_cast<std::uint16_t>((input.rotation + count) % n);
        return count;
    case SelectionPolicy::weighted: selected[0] = AliasTable(candidates).draw(input.random); return 1;
    case SelectionPolicy::weighted_many: {
        std::uint32_t max_weight = 0;
        for (const auto& one : candidates) max_weight = std::max(max_weight, one.weight);
        auto random = input.random;
        // If not all candidates fit, start at a random one: otherwise the last ones would never be selected.
        std::size_t at = max_answers < n ? static_cast<std::size_t>((mix_bits(~random) >> 32) * n >> 32) : 0;
        for (std::size_t i = 0; i < n && count < max_answers; ++i, at = at + 1 == n ? 0 : at + 1) {
            random = mix_bits(random);
            const auto weight = max_weight == 0 ? 1 : candidates[at].weight;
            if ((random >> 32) * std::max<std::uint64_t>(max_weight, 1) >> 32 < weight)
                selected[count++] = static_cast<std::uint16_t>(at);
        }
        return count;
    }
    case SelectionPolicy::subset: return select_subset(answer_set, input, selected, max_answers);
    case SelectionPolicy::sticky: return select_sticky(answer_set, input.client_hash, selected, max_answers);
    case SelectionPolicy::sticky_by_name: return select_sticky(answer_set, input.query_name_hash, selected, max_answers);
    }
    return 0;
}

} // namespace orrery::dns
