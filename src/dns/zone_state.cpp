#include "dns/zone_state.h"

namespace orrery::dns {

std::uint32_t read32(Bytes bytes, std::size_t at) {
    return std::uint32_t{bytes[at]} << 24 | std::uint32_t{bytes[at + 1]} << 16 | std::uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

void write32(std::span<std::uint8_t> bytes, std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> 8 * (3 - i));
}

const StaticRrset* find_rrset(const StaticRrsets& rrsets, std::uint16_t type) {
    for (const auto& rrset : rrsets)
        if (rrset.type == type) return &rrset;
    return nullptr;
}

Name name_from_key(std::string_view key) {
    Name out;
    std::size_t at = 0;
    out.read(bytes_of(key), at, Name::Pointers::no);
    return out;
}

bool is_at_or_below(std::string_view key, std::string_view zone) {
    while (key.size() > zone.size()) key = parent_key(key);
    return key == zone;
}

} // namespace orrery::dns
