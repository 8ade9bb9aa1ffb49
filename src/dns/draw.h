#pragma once

#include "dns/choice.h"

#include <cstdint>
#include <vector>

namespace orrery::dns {

/// A well mixed number from another (splitmix64).
constexpr std::uint64_t mixed(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return x ^ x >> 31;
}

/// A weighted draw in constant time (Walker, Vose): made once for a set of candidates, drawn from for each query.
class AliasTable {
public:
    AliasTable() = default;
    explicit AliasTable(const std::vector<Candidate>& candidates);
    /// Where there are no candidates this may not be asked.
    std::uint16_t draw(std::uint64_t random) const {
        const auto at = static_cast<std::uint32_t>((random >> 32) * cells_.size() >> 32);
        const auto& cell = cells_[at];
        return static_cast<std::uint32_t>(random) < cell.keep ? static_cast<std::uint16_t>(at) : cell.other;
    }

    struct Cell {
        std::uint64_t keep = 0; ///< of 2^32
        std::uint16_t other = 0;
    };
    const std::vector<Cell>& cells() const { return cells_; }

private:
    std::vector<Cell> cells_;
};

} // namespace orrery::dns
