#pragma once

#include "core/result.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Importers: configurations of other load balancers, read into our kinds. Pure functions from text to documents: no server, no
/// files, no network. A setting without an equivalent becomes a warning; its meaning is never guessed.
namespace orrery::importers {

namespace json = boost::json;

struct ImportResult {
    std::vector<json::object> documents; ///< `{kind, name, spec}`; a resource comes after those that it refers to
    std::vector<std::string> warnings;   ///< each names the object, what was not imported, and what to do about it
};

/// Amazon Route 53: the output of `aws route53 list-resource-record-sets` and, if health checks are in use, that of
/// `list-health-checks` (else null). `invalid` if there are no record sets.
Result<ImportResult> import_route53(const json::value& record_sets, const json::value& health_checks);

/// PowerDNS: the LUA records of a zone file that call ifportup, ifurlup, pickrandom, pickwrandom, pickhashed, pickwhashed,
/// pickchashed, picknamehashed or all with constants. Other records become those of a Zone. `invalid` if the zone file is malformed
/// or has no LUA records.
Result<ImportResult> import_powerdns(std::string_view zone_file, std::string_view zone);

/// gdnsd: its configuration, and zone files by zone for the DYNA records in them. `invalid` if a file is malformed or no plugin is
/// configured.
Result<ImportResult> import_gdnsd(std::string_view config, const std::map<std::string, std::string>& zone_files);

} // namespace orrery::importers
