#pragma once

#include "dns/zone_file.h"

#include <boost/json/object.hpp>

#include <string>

namespace orrery::gslb {

/// The records of a Zone as its spec has them: SOA and NS from its fields, the rest from its text. `invalid` says what is wrong, in
/// the text with its line.
Result<dns::Zone> zone_of(const boost::json::object& spec);

} // namespace orrery::gslb
