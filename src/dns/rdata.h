#pragma once

#include "core/result.h"
#include "dns/name.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

/// A word of a zone file.
struct ZoneToken {
    std::string text; ///< with its escapes, unless quoted or not
    bool quoted = false;
    int line = 1, column = 1;
};

/// The data of a record from its words. `invalid` or `unsupported`; where in the file is put before it by the caller, at the word
/// `at` says.
Result<std::vector<std::uint8_t>> parse_rdata(std::uint16_t type, const std::vector<ZoneToken>& words, const Name& origin,
                                              std::size_t& at);

/// A name in a zone file: relative to the origin unless it ends in a dot; "@" is the origin.
Result<Name> zone_name(const ZoneToken& word, const Name& origin);
/// "3600", "1h30m", "2d".
Result<std::uint32_t> zone_time(std::string_view text);

} // namespace orrery::dns
