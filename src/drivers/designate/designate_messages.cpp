#include "drivers/designate/designate_messages.h"

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

constexpr std::size_t longest_description = 160;

std::optional<RecordType> type_named(std::string_view text) {
    for (const auto type : {RecordType::a, RecordType::aaaa, RecordType::cname})
        if (name_of(type) == text) return type;
    return std::nullopt;
}

std::string small(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return text;
}

std::uint32_t ttl_at(const json::value* of, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(number_at(of, "ttl", otherwise), 0, 0x7FFFFFFF));
}

/// The mark, and after it the reason: "orrery owner=site-1 set=0123456789abcdef; member m2 is down".
std::string description_of(const gslb::RecordSet& set, std::string_view reason) {
    return one_line(reason.empty() ? set.mark : fmt::format("{}; {}", set.mark, reason), longest_description);
}

std::optional<DesignateRecordset> recordset_of(const json::value& value, std::uint32_t zone_ttl) {
    const auto type = type_named(text_at(&value, "type"));
    if (!type) return std::nullopt;
    DesignateRecordset out;
    out.id = text_at(&value, "id");
    out.name = small(text_at(&value, "name"));
    out.status = text_at(&value, "status");
    out.action = text_at(&value, "action");
    out.version = number_at(&value, "version", 0);
    auto mark = text_at(&value, "description");
    if (mark.starts_with("orrery owner=")) mark = mark.substr(0, mark.find(';'));
    std::vector<std::string> values;
    for (const auto& record : list_at(&value, "records"))
        if (record.is_string()) values.emplace_back(record.get_string());
    out.set = gslb::foreign_record_set(*type, ttl_at(&value, zone_ttl), std::move(values), std::move(mark));
    return out;
}

json::object body_of(const gslb::RecordSet& set, std::string_view reason) {
    json::array records;
    for (const auto& value : set.values) records.push_back(json::string(value));
    return {{"ttl", set.ttl}, {"records", std::move(records)}, {"description", description_of(set, reason)}};
}

} // namespace

Result<std::vector<DesignateZone>> read_designate_zones(std::string_view body) {
    TRY(const auto document, read_answer("Designate", body));
    if (const auto* zones = at(&document, "zones"); zones == nullptr || !zones->is_array())
        return Error{Code::unavailable, "what Designate answers is no list of zones"};
    std::vector<DesignateZone> out;
    for (const auto& zone : list_at(&document, "zones")) {
        DesignateZone one{text_at(&zone, "id"), small(text_at(&zone, "name")), text_at(&zone, "status"), ttl_at(&zone, 3600)};
        if (!one.id.empty() && !one.name.empty()) out.push_back(std::move(one));
    }
    return out;
}

Result<DesignatePage> read_designate_recordsets(std::string_view body, std::uint32_t zone_ttl) {
    TRY(const auto document, read_answer("Designate", body));
    if (const auto* list = at(&document, "recordsets"); list == nullptr || !list->is_array())
        return Error{Code::unavailable, "what Designate answers is no list of recordsets"};
    DesignatePage out;
    for (const auto& item : list_at(&document, "recordsets")) {
        ++out.size;
        out.last_id = text_at(&item, "id");
        if (auto one = recordset_of(item, zone_ttl); one && !one->id.empty()) out.recordsets.push_back(std::move(*one));
    }
    return out;
}

Result<DesignateRecordset> read_designate_recordset(std::string_view body, std::uint32_t zone_ttl) {
    TRY(const auto document, read_answer("Designate", body));
    auto one = recordset_of(document, zone_ttl);
    if (!one || one->id.empty()) return Error{Code::unavailable, "what Designate answers is no recordset"};
    return std::move(*one);
}

gslb::Standing designate_standing(std::string name, const std::vector<DesignateRecordset>& all) {
    gslb::Standing out{std::move(name), {}, true, {}};
    for (const auto& one : all) {
        if (one.name != out.name) continue;
        if (one.status != "ACTIVE") out.settled = false;
        if (one.status == "ERROR") out.trouble = fmt::format("the {} recordset has the status ERROR", name_of(one.set.type));
        // Without records it is there, and answers nothing.
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
    std::string words(body), type;
    if (const auto document = read_answer("Designate", body); document.ok()) {
        type = text_at(&*document, "type");
        words = text_at(&*document, "message");
        for (const auto& one : list_at(at(&*document, "errors"), "errors"))
            if (const auto message = text_at(&one, "message"); !message.empty()) words += (words.empty() ? "" : "; ") + message;
        if (words.empty()) words = type;
    }
    auto error = refusal("Designate", status, words);
    if (type == "over_quota") {
        error.code = Code::too_large;
        error.remedy = "raise the project's quota (openstack dns quota set), or answer with fewer addresses";
    }
    if (status == 403) error.remedy = "give our user a role in the project that owns the zone";
    if (status == 401) error.remedy = "check that Designate and we ask the same Keystone";
    return error;
}

} // namespace orrery::drivers
