#pragma once

#include "core/result.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Load balancing as others write it down, read into our kinds. What has no counterpart here is told, never guessed.
namespace orrery::cli {

namespace json = boost::json;

struct Imported {
    std::vector<json::object> documents; ///< resources, what others refer to first
    std::vector<std::string> left_out;   ///< each: where, what, and what to do about it
};

/// Amazon Route 53: the answer of list-resource-record-sets and, where health checks are used, that of list-health-checks.
Result<Imported> import_route53(const json::value& record_sets, const json::value& health_checks);

/// LUA records of PowerDNS in a zone file: ifportup, ifurlup, pickrandom, pickwrandom, pickwhashed, pickchashed, picknamehashed,
/// all of them with constants.
Result<Imported> import_powerdns(std::string_view zone_file, std::string_view origin);

/// gdnsd: its configuration, and zone files by their zone for the DYNA names in them.
Result<Imported> import_gdnsd(std::string_view config, const std::map<std::string, std::string>& zones);

} // namespace orrery::cli
