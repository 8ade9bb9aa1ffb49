#include "drivers/designate/designate_messages.h"

#include "core/ascii.h"
#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::drivers {

namespace {

using gslb::RecordType;

constexpr std::size_t max_description = 160;

std::optional<RecordType> type_named(std::string_view text) {
    for (const auto type : {RecordType::a, RecordType::aaaa, RecordType::cname})
        if (name_of(type) == text) return type;
    return std::nullopt;
}

std::uint32_t ttl_of(const json::object& object, std::uint32_t default_value) {
    return count_at(object, "ttl", default_value, 0x7FFFFFFF);
}

/// The mark, and after it the reason: "orrery owner=site-1 set=0123456789abcdef; member m2 is down".
std::string description_of(const gslb::RecordSet& set, std::string_view reason) {
    return one_line(reason.empty() ? set.mark : fmt::format("{}; {}", set.mark, reason), max_description);
}

std::optional<DesignateRecordset> recordset_of(const json::object& object, std::uint32_t zone_ttl) {
    const auto type = type_named(text_at(object, "type"));
    if (!type) return std::nullopt;
    DesignateRecordset out;
    out.id = text_at(object, "id");
    out.name = ascii_lower(text_at(object, "name"));
    out.status = text_at(object, "status");
    out.action = text_at(object, "action");
    out.version = integer_at(object, "version", 0);
    auto mark = text_at(object, "description");
    if (mark.starts_with("orrery owner=")) mark = mark.substr(0, mark.find(';'));
    out.set = gslb::foreign_record_set(*type, ttl_of(object, zone_ttl), texts_at(object, "records"), std::move(mark));
    return out;
}

json::object body_of(const gslb::RecordSet& set, std::string_view reason) {
    return {{"ttl", set.ttl}, {"records", to_array(set.values)}, {"description", description_of(set, reason)}};
}

} // namespace

Result<std::vector<DesignateZone>> read_designate_zones(std::string_view body) {
    TRY(const auto document, read_answer("Designate", body));
    const auto* zones = as_object(document).if_contains("zones");
    if (zones == nullptr || !zones->is_array()) return Error{Code::unavailable, "the answer of Designate is not a list of zones"};
    std::vector<DesignateZone> out;
    for (const auto& item : zones->get_array()) {
        const auto& zone = as_object(item);
        DesignateZone one{text_at(zone, "id"), ascii_lower(text_at(zone, "name")), text_at(zone, "status"), ttl_of(zone, 3600)};
        if (!one.id.empty() && !one.name.empty()) out.push_back(std::move(one));
    }
    return out;
}

Result<DesignatePage> read_designate_recordsets(std::string_view body, std::uint32_t zone_ttl) {
    TRY(const auto document, read_answer("Designate", body));
    const auto* list = as_object(document).if_contains("recordsets");
    if (list == nullptr || !list->is_array())
        return Error{Code::unavailable, "the answer of Designate is not a list of recordsets"};
    DesignatePage out;
    for (const auto& item : list->get_array()) {
        ++out.size;
        out.last_id = text_at(as_object(item), "id");
        if (auto one = recordset_of(as_object(item), zone_ttl); one && !one->id.empty()) out.recordsets.push_back(std::move(*one));
    }
    return out;
}

Result<DesignateRecordset> read_designate_recordset(std::string_view body, std::uint32_t zone_ttl) {
    TRY(const auto document, read_answer("Designate", body));
    auto one = recordset_of(as_object(document), zone_ttl);
    if (!one || one->id.empty()) return Error{Code::unavailable, "the answer of Designate is not a recordset"};
    return std::move(*one);
}

gslb::ProviderRecords designate_records(std::string name, const std::vector<DesignateRecordset>& all) {
    gslb::ProviderRecords out{std::move(name), {}, true, {}};
    for (const auto& one : all) {
        if (one.name != out.name) continue;
        if (one.status != "ACTIVE") out.propagated = false;
        if (one.status == "ERROR") out.error = fmt::format("the {} recordset has the status ERROR", name_of(one.set.type));
        // A recordset without records exists, but answers nothing.
        if (one.action == "DELETE" || one.status == "DELETED" || one.set.values.empty()) continue;
        out.sets.push_back(one.set);
    }
    std::sort(out.sets.begin(), out.sets.end(), [](const auto& a, const auto& b) { return a.type < b.type; });
    return out;
}

std::string designate_create(const std::string& name, const gslb::RecordSet& set, std::string_view reason) {
    auto body = body_of(set, reason);
    body["name"] = name;
    body["type"] = name_of(set.type);
    return json::serialize(body);
}

std::string designate_update(const gslb::RecordSet& set, std::string_view reason) { return json::serialize(body_of(set, reason)); }

Error designate_refusal(int status, std::string_view body) {
    std::string message(body), type;
    if (const auto document = read_answer("Designate", body); document.ok()) {
        const auto& answer = as_object(*document);
        type = text_at(answer, "type");
        message = text_at(answer, "message");
        for (const auto& one : array_at(object_at(answer, "errors"), "errors"))
            if (const auto more = text_at(as_object(one), "message"); !more.empty())
                message += (message.empty() ? "" : "; ") + more;
        if (message.empty()) message = type;
    }
    auto error = refusal("Designate", status, message);
    if (type == "over_quota") {
        error.code = Code::too_large;
        error.remedy = "raise the project's quota (openstack dns quota set), or answer with fewer addresses";
    }
    if (status == 403) error.remedy = "give the publisher's user a role in the project that owns the zone";
    if (status == 401) error.remedy = "check that Designate uses the same Keystone as the publisher";
    return error;
}

} // namespace orrery::drivers
