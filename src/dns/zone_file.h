#pragma once

#include "core/result.h"
#include "dns/name.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

struct ZoneRecord {
    Name owner;
    std::uint16_t type = 0;
    std::uint32_t ttl = 0;
    std::vector<std::uint8_t> data; ///< as on the wire, names without compression
    int line = 0;                   ///< in the zone file, for messages; 0: from elsewhere
};

/// A zone's static records.
struct Zone {
    Name origin;
    std::vector<ZoneRecord> records;
};

/// Reads a zone file (RFC 1035 5.1, 2308 4, 3597 5): $ORIGIN, $TTL, times with units ("1h30m"), parentheses, strings, "@", owners
/// left out, any type as "\# length hex". $INCLUDE and $GENERATE are refused: a zone is one text. Only class IN; signatures and
/// NSEC are the server's to make. Every error names line and column. Then `check_zone`.
Result<Zone> parse_zone(std::string_view text, const Name& origin);

/// What must hold of any zone: one SOA and an NS at its origin, every record within it and well formed, a CNAME alone at its name
/// and not at the origin, equal TTLs in a set. Records that are there twice are there once.
Result<Unit> check_zone(Zone& zone);

/// "MX", "TYPE731".
std::string type_name(std::uint16_t type);
/// 0 for what is no type.
std::uint16_t type_named(std::string_view name);
/// Whether the data are what a record of this type holds. Types that are not known here hold anything.
bool is_well_formed(std::uint16_t type, Bytes data);

} // namespace orrery::dns
