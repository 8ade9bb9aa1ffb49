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
    std::vector<std::uint8_t> data; ///< RDATA in wire format, names without compression
    int line = 0;                   ///< line in the zone file, for error messages; 0: not from a file
};

/// The static records of a zone.
struct Zone {
    Name origin;
    std::vector<ZoneRecord> records;
    std::uint32_t serial_offset = 0; ///< added to the serial
};

/// Parses a zone file (RFC 1035 section 5.1, RFC 2308 section 4, RFC 3597 section 5): $ORIGIN, $TTL, times with units ("1h30m"),
/// parentheses, strings, "@", omitted owners, and any type as "\# length hex". $INCLUDE and $GENERATE are not supported. Only class
/// IN. RRSIG and NSEC records are rejected: the server makes them. Errors name line and column. Calls `check_zone`.
Result<Zone> parse_zone(std::string_view text, const Name& origin);

/// Checks a zone: one SOA and at least one NS at the origin; every record within the zone and well-formed; no other records beside
/// a CNAME, and no CNAME at the origin; equal TTLs within an RRset. Removes duplicate records.
Result<Unit> check_zone(Zone& zone);

/// "MX", "TYPE731".
std::string type_name(std::uint16_t type);
/// The type with this name, ignoring case; 0 if the name is unknown.
std::uint16_t type_from_name(std::string_view name);
/// Is `data` valid RDATA of this type? RDATA of an unknown type is always valid.
bool is_well_formed(std::uint16_t type, Bytes data);

} // namespace orrery::dns
