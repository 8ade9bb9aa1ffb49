#pragma once

#include "dns/answer_set.h"

#include <cstdint>
#include <vector>

namespace orrery::dns {

/// Weighted random choice in constant time (alias method of Walker and Vose). The table is built once for a list of candidates and
/// read by every query. Immutable after construction.
class AliasTable {
public:
    AliasTable() = default;
    explicit AliasTable(const std::vector<Candidate>& candidates);
    /// The index of the drawn candidate. The table must not be empty.
    std::uint16_t draw(std::uint64_t random) const {
        const auto at = static_cast<std::uint32_t>((random >> 32) * cells_.size() >> 32);
        const auto& cell = cells_[at];
        return static_cast<std::uint32_t>(random) < cell.keep ? static_cast<std::uint16_t>(at) : cell.other;
    }

    struct Cell {
        std::uint64_t keep = 0; ///< probability of the cell's own candidate, in units of 2^-32
        std::uint16_t other = 0;
    };
    const std::vector<Cell>& cells() const { return cells_; }

private:
    std::vector<Cell> cells_;
};

} // namespace orrery::dns
