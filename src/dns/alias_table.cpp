#include "dns/alias_table.h"

namespace orrery::dns {

AliasTable::AliasTable(const std::vector<Candidate>& candidates) : cells_(candidates.size()) {
    constexpr std::uint64_t whole = 1ULL << 32;
    const auto n = cells_.size();
    std::uint64_t sum = 0;
    for (const auto& one : candidates) sum += one.weight;
    const bool equal = sum == 0;
    if (equal) sum = n;
    // Shares in units in which the mean is `sum`. Integer arithmetic, so that every server builds the same table.
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

} // namespace orrery::dns
