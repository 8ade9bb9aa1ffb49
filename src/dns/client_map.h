#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace orrery::dns {

/// Which choice a client gets, by the longest prefix that holds it; and how much of the client's address that depends on: each leaf
/// is the largest prefix all of whose clients get the same.
class ClientMap {
public:
    using Address = std::array<std::uint8_t, 16>;
    struct Rule {
        Address address{};
        std::uint8_t length = 0;
        std::uint32_t choice = 0;
    };
    struct Found {
        std::uint32_t choice = 0;
        std::uint8_t scope = 0; ///< 0: every client gets this
    };

    ClientMap() = default;
    /// `bits`: 32 or 128. Of two rules for one prefix the later holds. Clients of no rule get choice 0.
    ClientMap(std::span<const Rule> rules, unsigned bits);
    Found find(const Address& address) const;
    bool is_trivial() const { return leaves_.size() <= 1; }
    std::size_t size() const { return leaves_.size(); }

private:
    struct Leaf {
        std::uint64_t high = 0, low = 0; ///< where it begins
        std::uint32_t choice = 0;
        std::uint8_t length = 0;
    };
    std::vector<Leaf> leaves_; ///< in order, without gaps
};

} // namespace orrery::dns
