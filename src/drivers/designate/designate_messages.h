#pragma once

#include "gslb/publish/dns_provider.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

struct DesignateZone {
    std::string id, name, status;
    std::uint32_t ttl = 3600;
};
/// Returns `unavailable` where the body is not a list of zones.
Result<std::vector<DesignateZone>> read_designate_zones(std::string_view body);

/// A recordset of type A, AAAA or CNAME.
struct DesignateRecordset {
    std::string id, name, status, action;
    gslb::RecordSet set;
    std::int64_t version = 0;
};
struct DesignatePage {
    std::vector<DesignateRecordset> recordsets;
    std::size_t size = 0; ///< number of recordsets on the page, of all types
    std::string last_id;
};
/// Recordsets without a TTL have the zone's. Returns `unavailable` where the body is not a list of recordsets.
Result<DesignatePage> read_designate_recordsets(std::string_view body, std::uint32_t zone_ttl);
/// One recordset: the answer to a write.
Result<DesignateRecordset> read_designate_recordset(std::string_view body, std::uint32_t zone_ttl);

/// The current RRsets of a name. Recordsets that are being deleted do not count.
gslb::ProviderRecords designate_records(std::string name, const std::vector<DesignateRecordset>& all);

/// Bodies of POST, which has name and type, and of PUT, where Designate refuses them.
std::string designate_create(const std::string& name, const gslb::RecordSet& set, std::string_view reason);
std::string designate_update(const gslb::RecordSet& set, std::string_view reason);

/// A refusal as an error with Designate's message.
Error designate_refusal(int status, std::string_view body);

} // namespace orrery::drivers
