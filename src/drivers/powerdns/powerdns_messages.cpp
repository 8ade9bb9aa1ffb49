#include "drivers/powerdns/powerdns_messages.h"

#include "core/ascii.h"
#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>

namespace orrery::drivers {

namespace {

using gslb::RecordSets;
using gslb::RecordType;

constexpr std::array record_types{RecordType::a, RecordType::aaaa, RecordType::cname};
constexpr std::string_view account = "orrery";

} // namespace

Result<std::map<std::string, RecordSets>> read_powerdns_zone(std::string_view body) {
    TRY(const auto zone, read_answer("PowerDNS", body));
    if (text_at(as_object(zone), "name").empty() || !as_object(zone).contains("rrsets"))
        return Error{Code::unavailable, "the answer of PowerDNS is not a zone"};
    std::map<std::string, RecordSets> out;
    for (const auto& item : array_at(as_object(zone), "rrsets")) {
        const auto& rrset = as_object(item);
        const auto type_text = text_at(rrset, "type");
        const auto type =
            std::find_if(record_types.begin(), record_types.end(), [&](auto one) { return name_of(one) == type_text; });
        if (type == record_types.end()) continue;
        const auto name = ascii_lower(text_at(rrset, "name"));
        std::vector<std::string> values;
        for (const auto& record : array_at(rrset, "records"))
            if (!flag_at(as_object(record), "disabled", false)) values.push_back(text_at(as_object(record), "content"));
        if (values.empty()) continue;
        std::string mark;
        for (const auto& comment : array_at(rrset, "comments"))
            if (auto content = text_at(as_object(comment), "content"); content.starts_with("orrery owner="))
                mark = std::move(content);
        out[name].push_back(
            gslb::foreign_record_set(*type, count_at(rrset, "ttl", 0, 0x7FFFFFFF), std::move(values), std::move(mark)));
    }
    for (auto& [name, sets] : out)
        std::sort(sets.begin(), sets.end(), [](const auto& a, const auto& b) { return a.type < b.type; });
    return out;
}

std::string powerdns_patch(std::span<const gslb::Change> changes) {
    json::array removals, rrsets;
    for (const auto& change : changes) {
        // Removals come first, because an alias cannot exist beside addresses.
        for (const auto& set : change.before)
            if (gslb::find(change.after, set.type) == nullptr)
                removals.push_back(json::object{{"name", change.name}, {"type", name_of(set.type)}, {"changetype", "DELETE"}});
        for (const auto& set : change.after) {
            json::array records, comments;
            for (const auto& value : set.values) records.push_back(json::object{{"content", value}, {"disabled", false}});
            comments.push_back(json::object{{"content", set.mark}, {"account", account}});
            if (!change.reason.empty())
                comments.push_back(json::object{{"content", one_line(change.reason, 200)}, {"account", account}});
            rrsets.push_back(json::object{{"name", change.name},
                                          {"type", name_of(set.type)},
                                          {"ttl", set.ttl},
                                          {"changetype", "REPLACE"},
                                          {"records", std::move(records)},
                                          {"comments", std::move(comments)}});
        }
    }
    for (auto& rrset : rrsets) removals.push_back(std::move(rrset));
    return json::serialize(json::object{{"rrsets", std::move(removals)}});
}

} // namespace orrery::drivers
