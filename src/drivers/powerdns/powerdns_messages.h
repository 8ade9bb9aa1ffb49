#pragma once

#include "gslb/publisher.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// The sets of addresses and aliases in a zone as the API gives it, by name. Records that are disabled are not served and do not
/// count. `unavailable` for what is not a zone.
Result<std::map<std::string, gslb::RecordSets>> read_powerdns_zone(std::string_view body);

/// The body of a PATCH with these changes.
std::string powerdns_patch(std::span<const gslb::Change> changes);

} // namespace orrery::drivers
