#pragma once

#include "dns/zone_entries.h"
#include "importers/resource_set.h"

#include <functional>

/// Private to the importers.
namespace orrery::importers {

/// Called for each record of a zone file; true if the record becomes part of a load balancer and not of the Zone.
using TakeRecord = std::function<bool(const dns::ZoneEntry&)>;

/// Adds the Zone of a zone file: all records except the SOA, the NS records at the apex, which become the name servers, and those
/// that `take_record` returns true for. Directives other than $ORIGIN and $TTL become warnings. `invalid` names zone, line and
/// column.
Result<Unit> import_zone(ResourceSet& out, std::string_view text, std::string_view zone, dns::ZoneEntryReader::Options options,
                         const TakeRecord& take_record);

} // namespace orrery::importers
