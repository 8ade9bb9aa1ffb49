#pragma once

#include "gslb/publish/dns_provider.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// The RRsets of types A, AAAA and CNAME in a zone, by name. Disabled records are not served and do not count. Returns
/// `unavailable` where the body is not a zone.
Result<std::map<std::string, gslb::RecordSets>> read_powerdns_zone(std::string_view body);

/// The body of a PATCH with these changes.
std::string powerdns_patch(std::span<const gslb::Change> changes);

} // namespace orrery::drivers
