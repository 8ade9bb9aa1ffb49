#pragma once

#include "gslb/publisher.h"

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
/// `unavailable` for what is no list of zones.
Result<std::vector<DesignateZone>> read_designate_zones(std::string_view body);

/// A recordset of addresses or an alias.
struct DesignateRecordset {
    std::string id, name, status, action;
    gslb::RecordSet set;
    std::int64_t version = 0;
};
struct DesignatePage {
    std::vector<DesignateRecordset> recordsets;
    std::size_t size = 0; ///< of the page, with recordsets of other types
    std::string last_id;
};
/// Sets without a TTL of their own have the zone's. `unavailable` for what is no list of recordsets.
Result<DesignatePage> read_designate_recordsets(std::string_view body, std::uint32_t zone_ttl);
/// One recordset, as writes answer.
Result<DesignateRecordset> read_designate_recordset(std::string_view body, std::uint32_t zone_ttl);

/// What stands at a name. What is being deleted does not stand any more.
gslb::Standing designate_standing(std::string name, const std::vector<DesignateRecordset>& all);

/// Bodies of POST (with name and type) and PUT (without: it refuses them).
std::string designate_create(const std::string& name, const gslb::RecordSet& set, std::string_view reason);
std::string designate_update(const gslb::RecordSet& set, std::string_view reason);

/// A refusal, with Designate's own words.
Error designate_refusal(int status, std::string_view body);

} // namespace orrery::drivers
