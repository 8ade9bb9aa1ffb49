#pragma once

#include "dns/message.h"
#include "gslb/publisher.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// Where the marks of a name stand: TXT records at "_orrery.<name>", one for each set: "A orrery owner=... set=...".
Result<dns::Name> mark_name(const dns::Name& name);
std::string mark_text(const gslb::RecordSet& set);
/// The mark that a TXT record holds for sets of that type; empty where it is not one.
std::string mark_for(gslb::RecordType type, std::string_view text);

/// The update that makes `after` of `before`, unsigned (RFC 2136). Prerequisites are that every set, of all three types, is still
/// as in `before`; marks are written, and what they were does not matter. `invalid` where the name is not within the zone, or a
/// value is no value.
Result<std::vector<std::uint8_t>> update_message(std::uint16_t id, const dns::Name& zone, const gslb::Change& change);

/// What the answer to an update amounts to: conflict (a prerequisite did not hold), denied, not_found, invalid, unavailable.
Result<Unit> update_outcome(dns::Rcode rcode, std::string_view who, const dns::Name& zone);

/// For tests: an update of just these replacements, without prerequisites.
struct Replacement {
    dns::Name name;
    gslb::RecordSet set;
};
Result<std::vector<std::uint8_t>> replacement_message(std::uint16_t id, const dns::Name& zone, const std::vector<Replacement>& all);

} // namespace orrery::drivers
