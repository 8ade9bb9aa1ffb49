#pragma once

#include "core/result.h"
#include "dns/name.h"
#include "dns/rdata.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::dns {

/// One record or directive of a zone file. Type and data of a record are tokens, so that a caller can read types that are not in
/// the DNS protocol, such as LUA of PowerDNS and DYNA of gdnsd.
struct ZoneEntry {
    bool is_directive = false;
    std::vector<ZoneToken> tokens;        ///< of a record: type, then data; of a directive: its name, then arguments; never empty
    Name origin;                          ///< the origin in effect: relative names in the data belong to it
    Name owner;                           ///< of a record
    std::optional<std::uint32_t> ttl;     ///< of a record: its own TTL, or that of $TTL
    std::optional<std::uint32_t> min_ttl; ///< see `ZoneEntryReader::Options::ttl_with_minimum`
};

/// Splits a zone file into entries: lines, parentheses, comments, strings, omitted owners, "@", relative names, TTLs and classes
/// (RFC 1035 section 5.1, RFC 2308 section 4). This is the only reader of zone files: `parse_zone` and the importers use it.
/// `text` must outlive the reader.
class ZoneEntryReader {
public:
    struct Options {
        bool ttl_with_minimum = false; ///< accept "300/30", a TTL and its minimum, as gdnsd does
    };
    ZoneEntryReader(std::string_view text, const Name& origin) : ZoneEntryReader(text, origin, Options{}) {}
    ZoneEntryReader(std::string_view text, const Name& origin, Options options) : text_(text), options_(options), origin_(origin) {}

    /// The next entry; nullopt at the end of the file. $ORIGIN and $TTL are applied, not returned. Errors name line and column;
    /// after an error the reader must not be used.
    Result<std::optional<ZoneEntry>> next();

private:
    Result<bool> read_tokens(std::vector<ZoneToken>& tokens, bool& indented);
    Result<ZoneToken> read_token();
    void advance();
    Result<bool> apply_directive(const std::vector<ZoneToken>& tokens);
    Result<ZoneEntry> read_record(std::vector<ZoneToken> tokens, bool indented);
    Result<std::size_t> read_ttl_and_class(const std::vector<ZoneToken>& tokens, std::size_t at, ZoneEntry& out) const;

    std::string_view text_;
    Options options_;
    std::size_t at_ = 0;
    int line_ = 1, column_ = 1;
    Name origin_; ///< current $ORIGIN
    std::optional<Name> owner_;
    std::optional<std::uint32_t> default_ttl_; ///< current $TTL
};

/// Adds "line L, column C: " to the message of an error.
Error with_position(Error error, const ZoneToken& token);
/// An `invalid` error at a token.
Error bad_zone(const ZoneToken& token, std::string message, std::string remedy = {});

} // namespace orrery::dns
