#include "dns/prefix.h"

#include "core/digest.h"

#include <cstddef>
#include <cstring>

namespace orrery::dns {

bool contains(const Prefix& prefix, const std::array<std::uint8_t, 16>& address, bool v6) {
    if (prefix.v6 != v6) return false;
    const auto whole_bytes = static_cast<std::size_t>(prefix.length / 8), rest_bits = static_cast<std::size_t>(prefix.length % 8);
    if (whole_bytes > 16 || std::memcmp(prefix.address.data(), address.data(), whole_bytes) != 0) return false;
    return rest_bits == 0 || whole_bytes >= 16 || ((prefix.address[whole_bytes] ^ address[whole_bytes]) >> (8 - rest_bits)) == 0;
}

std::uint64_t network_hash(const std::array<std::uint8_t, 16>& address, bool v6, unsigned bits) {
    std::uint64_t high = 0, low = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        high = high << 8 | address[i];
        low = low << 8 | address[i + 8];
    }
    if (bits < 64) {
        high = bits == 0 ? 0 : high >> (64 - bits);
        low = 0;
    } else if (bits < 128) {
        low = bits == 64 ? 0 : low >> (128 - bits);
    }
    return mix_bits(mix_bits(high) ^ low ^ (v6 ? 0x6666000000000000U : 0));
}

} // namespace orrery::dns
