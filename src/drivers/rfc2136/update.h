#pragma once

#include "dns/message.h"
#include "gslb/publish/dns_provider.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// The name of the owner marks of a name: TXT records at "_orrery.<name>", one for each RRset: "A orrery owner=... set=...".
Result<dns::Name> mark_name(const dns::Name& name);
std::string mark_text(const gslb::RecordSet& set);
/// The mark in a TXT record for RRsets of that type; empty where the text is not such a mark.
std::string mark_for(gslb::RecordType type, std::string_view text);

/// The update that replaces `before` by `after`, unsigned (RFC 2136). Its prerequisites are that the RRsets of all three types are
/// still those of `before`. Marks are written whatever they were. Returns `invalid` where the name is not within the zone, or a
/// value is not valid for its type.
Result<std::vector<std::uint8_t>> update_message(std::uint16_t id, const dns::Name& zone, const gslb::Change& change);

/// The outcome of an update by the rcode of its answer: conflict (a prerequisite did not hold), denied, not_found, invalid,
/// unavailable. `server` is for the message.
Result<Unit> update_outcome(dns::Rcode rcode, std::string_view server, const dns::Name& zone);

/// For tests: an update with these replacements and without prerequisites.
struct Replacement {
    dns::Name name;
    gslb::RecordSet set;
};
Result<std::vector<std::uint8_t>> replacement_message(std::uint16_t id, const dns::Name& zone, const std::vector<Replacement>& all);

} // namespace orrery::drivers
