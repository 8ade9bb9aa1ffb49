#pragma once

#include <array>
#include <cstdint>

namespace orrery::dns {

/// A network in CIDR notation.
struct Prefix {
    std::array<std::uint8_t, 16> address{}; ///< an IPv4 address occupies the first four bytes
    bool v6 = false;
    std::uint8_t length = 0;
    bool operator==(const Prefix&) const = default;
};

bool contains(const Prefix& prefix, const std::array<std::uint8_t, 16>& address, bool v6);

/// A hash of the first `bits` bits of an address. All addresses of one network have the same hash.
std::uint64_t network_hash(const std::array<std::uint8_t, 16>& address, bool v6, unsigned bits);

} // namespace orrery::dns
