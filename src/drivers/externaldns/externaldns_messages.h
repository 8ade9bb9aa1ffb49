#pragma once

#include "gslb/publisher.h"

#include <boost/json/object.hpp>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::drivers {

constexpr std::string_view externaldns_media_type = "application/external.dns.webhook+json;version=1";

/// Endpoints as an adapter gave them, by name (lower case, last dot) and type: updates and deletions must repeat them.
using ExternaldnsEndpoints = std::map<std::pair<std::string, std::string>, boost::json::object>;
/// `unavailable` for what is no array of endpoints.
Result<ExternaldnsEndpoints> read_externaldns_records(std::string_view body);
/// What stands at a name. An endpoint with a set identifier is one of several of its kind, and never ours.
gslb::Standing externaldns_standing(const ExternaldnsEndpoints& all, const std::string& name);

/// The body of `POST /records` with these changes.
std::string externaldns_changes(const ExternaldnsEndpoints& all, std::span<const gslb::Change> changes);
/// The body of `POST /adjustendpoints`, and what its answer makes of these sets.
std::string externaldns_wanted(const std::vector<gslb::Standing>& wanted);
Result<std::vector<gslb::Standing>> read_externaldns_adjusted(std::string_view body, std::vector<gslb::Standing> wanted);

/// The domains that an adapter serves, from its answer to `GET /`; none: all.
Result<std::vector<std::string>> read_externaldns_filters(std::string_view body);
bool externaldns_serves(const std::vector<std::string>& filters, std::string_view zone);

} // namespace orrery::drivers
