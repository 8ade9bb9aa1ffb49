#pragma once

#include "dns/dnssec.h"
#include "dns/zone_file.h"
#include "resource/resources.h"

#include <boost/json/object.hpp>

#include <memory>
#include <string>
#include <vector>

namespace orrery::gslb {

/// The records of a Zone: SOA and NS from its fields, the rest from `records`. `invalid` with the line of a syntax error.
Result<dns::Zone> zone_of(const boost::json::object& spec);
/// The signing key in the value "private_key" of a Secret. `not_found` without the Secret; other errors say why the key is
/// unusable.
Result<std::shared_ptr<const dns::SigningKey>> signing_key_of(const resource::Resources& resources, const std::string& secret);
/// Name servers within the zone that have no address record there: resolvers cannot find them.
std::vector<dns::Name> servers_without_address(const dns::Zone& zone);

} // namespace orrery::gslb
