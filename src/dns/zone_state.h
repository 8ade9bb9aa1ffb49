#pragma once

#include "dns/dynamic_name.h"
#include "dns/signature_cache.h"
#include "dns/thread_state.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace orrery::dns {

/// Static records of one type at one name.
struct StaticRrset {
    std::uint16_t type = 0;
    std::uint32_t ttl = 0;
    std::vector<std::vector<std::uint8_t>> data;
    bool operator==(const StaticRrset&) const = default;
};
using StaticRrsets = std::vector<StaticRrset>;
using StaticRecords = std::unordered_map<std::string, StaticRrsets>; ///< by name

/// The writer's copy of a zone, from which it builds entries. Map keys are names in lower case, wire format.
struct ZoneState {
    Name name;
    std::string origin;
    std::uint32_t number = 0; ///< index in Snapshot::zones
    std::uint32_t serial = 0;
    std::uint32_t serial_offset = 0;
    std::uint32_t serial_set_at = 0; ///< Unix time in seconds
    StaticRecords static_records;
    std::unordered_map<std::string, std::shared_ptr<const DynamicName>> dynamic_names;
    /// A name that exists in the zone, including empty non-terminals.
    struct ExistingName {
        std::uint32_t children = 0;
        bool has_data = false;
        std::uint32_t signed_at = 0; ///< when the oldest signature of its entry was made; 0: not signed
    };
    std::unordered_map<std::string, ExistingName> existing_names;
    std::unordered_set<std::string> cuts; ///< delegation points
    std::shared_ptr<const SigningKey> key;
    std::shared_ptr<ZoneCounters> counters;
    std::shared_ptr<TransferSignatureCache> transfer_signatures = std::make_shared<TransferSignatureCache>();
};

inline Bytes bytes_of(std::string_view key) { return {reinterpret_cast<const std::uint8_t*>(key.data()), key.size()}; }
/// The key without its first label.
inline std::string_view parent_key(std::string_view key) { return key.substr(1U + static_cast<std::uint8_t>(key[0])); }
Name name_from_key(std::string_view key);
bool is_at_or_below(std::string_view key, std::string_view zone);
inline bool is_wildcard_key(std::string_view key) { return key.size() > 2 && key[0] == 1 && key[1] == '*'; }
const StaticRrset* find_rrset(const StaticRrsets& rrsets, std::uint16_t type);
/// Big-endian 32-bit integers.
std::uint32_t read32(Bytes bytes, std::size_t at);
void write32(std::span<std::uint8_t> bytes, std::size_t at, std::uint32_t value);
/// Offset of the serial within SOA RDATA, counted from its end.
constexpr std::size_t soa_serial_from_end = 20;

} // namespace orrery::dns
