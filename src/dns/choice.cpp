#include "dns/choice.h"

#include "dns/draw.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace orrery::dns {

namespace {

bool any_weight(const std::vector<Candidate>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(), [](const Candidate& one) { return one.weight > 0; });
}

/// Weighted rendezvous: larger wins, and a member's score depends on nobody but itself and the client, or the name.
double score(const Candidate& candidate, std::uint64_t key, bool weighted) {
    const auto hash = mixed(mixed(key) ^ mixed(candidate.identity + 0x5851F42D4C957F2DU));
    const double uniform = (static_cast<double>(hash >> 11) + 0.5) * 0x1.0p-53; // in (0, 1)
    return -(weighted ? static_cast<double>(candidate.weight) : 1.0) / std::log(uniform);
}

struct Ranked {
    std::uint32_t round = 0; ///< how many of its domain come before it
    std::uint16_t place = 0;
    double score = 0;
};

std::size_t pick_subset(const Choice& choice, const Draw& draw, std::span<std::uint16_t> picked, std::size_t most) {
    const auto& candidates = choice.candidates;
    const bool weighted = any_weight(candidates);
    thread_local std::vector<Ranked> order; // kept, so that a query allocates nothing
    order.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i)
        if (!weighted || candidates[i].weight > 0) order.push_back({0, static_cast<std::uint16_t>(i), 0});
    auto random = draw.random;
    for (std::size_t i = order.size(); i > 1; --i) {
        random = mixed(random);
        std::swap(order[i - 1], order[static_cast<std::size_t>((random >> 32) * i >> 32)]);
    }
    if (most < order.size()) {
        // One of each domain in turn, in the order chance gave.
        thread_local std::vector<std::pair<std::uint32_t, std::uint32_t>> seen; // domain, how many
        seen.clear();
        double turn = 0;
        for (auto& one : order) {
            one.score = turn++;
            const auto domain = candidates[one.place].domain;
            if (domain == 0) continue;
            auto at = std::find_if(seen.begin(), seen.end(), [&](const auto& pair) { return pair.first == domain; });
            if (at == seen.end()) at = seen.insert(seen.end(), {domain, 0});
            one.round = at->second++;
        }
        std::sort(order.begin(), order.end(),
                  [](const Ranked& a, const Ranked& b) { return a.round < b.round || (a.round == b.round && a.score < b.score); });
    }
    const auto count = std::min({most, order.size(), picked.size()});
    for (std::size_t i = 0; i < count; ++i) picked[i] = order[i].place;
    return count;
}

std::size_t pick_sticky(const Choice& choice, std::uint64_t key, std::span<std::uint16_t> picked, std::size_t most) {
    const auto& candidates = choice.candidates;
    const bool weighted = any_weight(candidates);
    thread_local std::vector<Ranked> order; // kept, so that a query allocates nothing
    order.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i)
        if (!weighted || candidates[i].weight > 0)
            order.push_back({0, static_cast<std::uint16_t>(i), score(candidates[i], key, weighted)});
    const auto count = std::min({most, order.size(), picked.size()});
    // Equal scores only for equal identities: then the first of them, on every server.
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
        [](const Ranked& a, const Ranked& b) { return a.score > b.score || (a.score == b.score && a.place < b.place); });
    for (std::size_t i = 0; i < count; ++i) picked[i] = order[i].place;
    return count;
}

} // namespace

std::uint64_t hash_of(const Name& name) {
    std::uint64_t hash = 0xcbf29ce484222325U; // FNV-1a
    for (const auto byte : name.wire()) {
        const auto low = byte >= 'A' && byte <= 'Z' ? byte + 32 : byte; // lengths are below the letters
        hash = (hash ^ static_cast<std::uint64_t>(low)) * 0x100000001b3U;
    }
    return hash;
}

AliasTable::AliasTable(const std::vector<Candidate>& candidates) : cells_(candidates.size()) {
    constexpr std::uint64_t whole = 1ULL << 32;
    const auto n = cells_.size();
    std::uint64_t sum = 0;
    for (const auto& one : candidates) sum += one.weight;
    const bool equal = sum == 0;
    if (equal) sum = n;
    // Shares in units in which the mean is `sum`; integers, so that every machine makes the same table.
    std::vector<std::uint64_t> share(n);
    std::vector<std::uint16_t> small, large;
    for (std::size_t i = 0; i < n; ++i) {
        share[i] = (equal ? 1 : candidates[i].weight) * n;
        (share[i] < sum ? small : large).push_back(static_cast<std::uint16_t>(i));
    }
    const auto part = [&](std::uint64_t of) {
        return static_cast<std::uint64_t>(static_cast<unsigned __int128>(of) * whole / sum);
    };
    while (!small.empty() && !large.empty()) {
        const auto low = small.back(), high = large.back();
        small.pop_back();
        cells_[low] = {part(share[low]), high};
        share[high] -= sum - share[low];
        if (share[high] < sum) {
            large.pop_back();
            small.push_back(high);
        }
    }
    for (const auto i : large) cells_[i] = {whole, i};
    for (const auto i : small) cells_[i] = {whole, i};
}

std::size_t pick(const Choice& choice, const Draw& draw, std::span<std::uint16_t> picked) {
    const auto& candidates = choice.candidates;
    const auto n = candidates.size();
    assert(n <= most_candidates);
    if (n == 0 || picked.empty()) return 0;
    const auto most = std::min(choice.most == 0 ? n : choice.most, picked.size());
    std::size_t count = 0;
    switch (choice.picking) {
    case Picking::all:
        for (; count < std::min(n, most); ++count) picked[count] = static_cast<std::uint16_t>(count);
        return count;
    case Picking::rotate:
        for (; count < std::min(n, most); ++count) picked[count] = static_cast<std::uint16_t>((draw.turn + count) % n);
        return count;
    case Picking::one: picked[0] = AliasTable(candidates).draw(draw.random); return 1;
    case Picking::many: {
        std::uint32_t greatest = 0;
        for (const auto& one : candidates) greatest = std::max(greatest, one.weight);
        auto random = draw.random;
        // Where not all can go in, chance says with whom it begins: else the last would never be seen.
        std::size_t at = most < n ? static_cast<std::size_t>((mixed(~random) >> 32) * n >> 32) : 0;
        for (std::size_t i = 0; i < n && count < most; ++i, at = at + 1 == n ? 0 : at + 1) {
            random = mixed(random);
            const auto weight = greatest == 0 ? 1 : candidates[at].weight;
            if ((random >> 32) * std::max<std::uint64_t>(greatest, 1) >> 32 < weight)
                picked[count++] = static_cast<std::uint16_t>(at);
        }
        return count;
    }
    case Picking::subset: return pick_subset(choice, draw, picked, most);
    case Picking::sticky: return pick_sticky(choice, draw.client_prefix, picked, most);
    case Picking::by_name: return pick_sticky(choice, draw.name, picked, most);
    }
    return 0;
}

} // namespace orrery::dns
