#pragma once

#include "core/result.h"
#include "dns/name.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

/// A token of a zone file.
struct ZoneToken {
    std::string text; ///< escapes are not decoded
    bool quoted = false;
    int line = 1, column = 1;
};

/// Parses the RDATA of a record from its tokens. `invalid` or `unsupported`; on error, `at` is the index of the offending token, so
/// that the caller can add line and column.
Result<std::vector<std::uint8_t>> parse_rdata(std::uint16_t type, const std::vector<ZoneToken>& tokens, const Name& origin,
                                              std::size_t& at);

/// Decodes the escapes of a character string.
Result<std::string> unescape(const ZoneToken& token);
/// Appends a big-endian integer of `bytes` bytes.
void append_integer(std::vector<std::uint8_t>& out, std::uint64_t value, int bytes);
/// Decodes base64; false if `text` is empty or not base64.
bool append_base64(std::vector<std::uint8_t>& out, std::string_view text);
std::string to_base64(Bytes data);

/// SVCB and HTTPS (RFC 9460, with the keys of RFC 9461 and RFC 9540); see `parse_rdata`.
Result<std::vector<std::uint8_t>> parse_svcb(const std::vector<ZoneToken>& tokens, const Name& origin, std::size_t& at);
bool is_svcb(Bytes data);
/// Presentation format. `is_svcb(data)` must be true.
std::string svcb_text(Bytes data);

/// A name in a zone file: relative to the origin unless it ends with a dot; "@" is the origin.
Result<Name> parse_zone_name(const ZoneToken& token, const Name& origin);
/// A TTL or timer in seconds: "3600", "1h30m", "2d".
Result<std::uint32_t> parse_ttl(std::string_view text);

} // namespace orrery::dns
