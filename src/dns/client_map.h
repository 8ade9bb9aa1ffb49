#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace orrery::dns {

/// Maps client addresses of one family to the index of an answer set (longest-prefix match). Adjacent prefixes with the same answer
/// set are merged, so the length of the matching leaf is the shortest correct ECS scope (RFC 7871).
class ClientMap {
public:
    using Address = std::array<std::uint8_t, 16>;
    struct Rule {
        Address address{};
        std::uint8_t length = 0;
        std::uint32_t answer_set = 0;
    };
    struct Match {
        std::uint32_t answer_set = 0;
        std::uint8_t scope = 0; ///< prefix length; 0: all clients get this answer set
    };

    ClientMap() = default;
    /// `bits`: 32 or 128. The last of several rules for one prefix wins. Clients without a rule get answer set 0.
    ClientMap(std::span<const Rule> rules, unsigned bits);
    /// Builds a map incrementally: the caller appends all prefixes in address order, without gaps.
    void append(const Address& from, std::uint8_t length, std::uint32_t answer_set);
    /// A copy in which answer set i is replaced by answer_set_of[i]; leaves that become equal are merged. Linear in `size()`.
    ClientMap mapped(std::span<const std::uint32_t> answer_set_of) const;

    Match find(const Address& address) const;
    bool is_trivial() const { return leaves_.size() <= 1; } ///< all clients get the same answer set
    std::size_t size() const { return leaves_.size(); }
    std::uint32_t max_answer_set() const { return max_answer_set_; } ///< the highest index in the map

private:
    struct Leaf {
        std::uint64_t high = 0, low = 0; ///< first address
        std::uint32_t answer_set = 0;
        std::uint8_t length = 0;
    };
    /// Appends a leaf and merges sibling leaves with the same answer set.
    void append(Leaf leaf);
    std::vector<Leaf> leaves_; ///< in address order, without gaps
    std::uint32_t max_answer_set_ = 0;
};

/// The client maps of both address families. Immutable once shared.
struct ClientTable {
    ClientMap v4, v6;
    bool is_trivial() const { return v4.is_trivial() && v6.is_trivial(); }
    std::size_t size() const { return v4.size() + v6.size(); }
};

} // namespace orrery::dns
