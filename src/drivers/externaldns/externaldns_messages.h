#pragma once

#include "gslb/publish/dns_provider.h"

#include <boost/json/object.hpp>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::drivers {

constexpr std::string_view externaldns_media_type = "application/external.dns.webhook+json;version=1";

/// Endpoints as the adapter returned them, by name (lower case, with the last dot) and type. Updates and deletions repeat them.
using ExternaldnsEndpoints = std::map<std::pair<std::string, std::string>, boost::json::object>;
/// Returns `unavailable` where the body is not an array of endpoints.
Result<ExternaldnsEndpoints> read_externaldns_records(std::string_view body);
/// The current RRsets of a name. An endpoint with a set identifier is one of several for the name and type, and never ours.
gslb::ProviderRecords externaldns_records(const ExternaldnsEndpoints& all, const std::string& name);

/// The body of `POST /records` with these changes.
std::string externaldns_changes(const ExternaldnsEndpoints& all, std::span<const gslb::Change> changes);
/// The body of `POST /adjustendpoints`, and the wanted RRsets as its answer adjusts them.
std::string externaldns_wanted(const std::vector<gslb::ProviderRecords>& wanted);
Result<std::vector<gslb::ProviderRecords>> read_externaldns_adjusted(std::string_view body,
                                                                     std::vector<gslb::ProviderRecords> wanted);

/// The domains that an adapter serves, from its answer to `GET /`. An empty list means all domains.
Result<std::vector<std::string>> read_externaldns_filters(std::string_view body);
bool externaldns_serves(const std::vector<std::string>& filters, std::string_view zone);

} // namespace orrery::drivers
