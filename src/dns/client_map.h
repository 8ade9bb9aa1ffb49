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
    /// Another way to make one: every prefix in order, without gaps, each with its choice.
    void append(const Address& from, std::uint8_t length, std::uint32_t choice);
    /// The same clients where choice i is choice_of[i]: what is now the same becomes one. In the time of a look at each leaf.
    ClientMap mapped(std::span<const std::uint32_t> choice_of) const;

    Found find(const Address& address) const;
    bool is_trivial() const { return leaves_.size() <= 1; }
    std::size_t size() const { return leaves_.size(); }
    std::uint32_t greatest() const { return greatest_; } ///< of the choices

private:
    struct Leaf {
        std::uint64_t high = 0, low = 0; ///< where it begins
        std::uint32_t choice = 0;
        std::uint8_t length = 0;
    };
    /// Two that make up their parent and say the same become one, again and again.
    void append(Leaf leaf);
    std::vector<Leaf> leaves_; ///< in order, without gaps
    std::uint32_t greatest_ = 0;
};

/// Which choice each client gets, of either family. Immutable once it is shared.
struct ClientTable {
    ClientMap v4, v6;
    bool is_trivial() const { return v4.is_trivial() && v6.is_trivial(); }
    std::size_t size() const { return v4.size() + v6.size(); }
};

} // namespace orrery::dns
