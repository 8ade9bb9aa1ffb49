#include "drivers/externaldns/externaldns_messages.h"

#include "core/ascii.h"
#include "drivers/rest/rest.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::drivers {

namespace {

using gslb::RecordSet;
using gslb::RecordType;

std::string with_dot(std::string text) {
    text = ascii_lower(text);
    if (!text.ends_with('.')) text += '.';
    return text;
}
std::string without_dot(std::string_view text) {
    if (text.ends_with('.')) text.remove_suffix(1);
    return std::string(text);
}
std::string marks_at(std::string_view name) { return fmt::format("_orrery.{}", name); }

/// "A orrery owner=... set=... ttl=30". The mark has the TTL, because some adapters do not report the TTL of a record.
std::string mark_text(const RecordSet& set) { return fmt::format("\"{} {} ttl={}\"", name_of(set.type), set.mark, set.ttl); }

struct Mark {
    std::string mark;
    std::uint32_t ttl = 0;
};
std::map<RecordType, Mark> read_marks(const ExternaldnsEndpoints& all, const std::string& name) {
    std::map<RecordType, Mark> out;
    const auto found = all.find({marks_at(name), "TXT"});
    if (found == all.end()) return out;
    for (const auto& target : texts_at(found->second, "targets")) {
        std::string_view text(target);
        if (text.starts_with('"')) text.remove_prefix(1);
        if (text.ends_with('"')) text.remove_suffix(1);
        const auto ttl_at = text.rfind(" ttl=");
        if (ttl_at == std::string_view::npos) continue;
        for (const auto type : {RecordType::a, RecordType::aaaa, RecordType::cname}) {
            const auto begins = fmt::format("{} orrery owner=", name_of(type));
            if (!text.starts_with(begins)) continue;
            Mark mark{std::string(text.substr(name_of(type).size() + 1, ttl_at - name_of(type).size() - 1)), 0};
            std::from_chars(text.data() + ttl_at + 5, text.data() + text.size(), mark.ttl);
            out[type] = std::move(mark);
        }
    }
    return out;
}

json::object endpoint_of(const std::string& name, std::string_view type, std::uint32_t ttl, json::array targets) {
    return {{"dnsName", without_dot(name)}, {"recordType", type}, {"recordTTL", ttl}, {"targets", std::move(targets)}};
}
json::object endpoint_of(const std::string& name, const RecordSet& set) {
    json::array targets;
    for (const auto& value : set.values)
        targets.push_back(json::string(set.type == RecordType::cname ? without_dot(value) : value));
    return endpoint_of(name, name_of(set.type), set.ttl, std::move(targets));
}

} // namespace

Result<ExternaldnsEndpoints> read_externaldns_records(std::string_view body) {
    TRY(const auto document, read_answer("the ExternalDNS adapter", body));
    const Error bad{Code::unavailable, "the answer of the ExternalDNS adapter is not a list of records"};
    ExternaldnsEndpoints out;
    if (document.is_null()) return out; // Go serializes an empty list as null
    if (!document.is_array()) return bad;
    for (const auto& endpoint : document.get_array()) {
        const auto name = text_at(as_object(endpoint), "dnsName"), type = text_at(as_object(endpoint), "recordType");
        if (name.empty() || type.empty()) return bad;
        const auto [known, is_new] = out.try_emplace({with_dot(name), type}, endpoint.get_object());
        // Several endpoints of one name and type have set identifiers. Only one is kept, as a foreign one.
        if (!is_new && text_at(as_object(endpoint), "setIdentifier").empty() == false) known->second = endpoint.get_object();
    }
    return out;
}

gslb::ProviderRecords externaldns_records(const ExternaldnsEndpoints& all, const std::string& name) {
    gslb::ProviderRecords out{name, {}, true, {}};
    const auto marks = read_marks(all, name);
    for (const auto type : {RecordType::a, RecordType::aaaa, RecordType::cname}) {
        const auto found = all.find({name, std::string(name_of(type))});
        if (found == all.end()) continue;
        const auto& endpoint = found->second;
        auto values = texts_at(endpoint, "targets");
        if (values.empty()) continue;
        const auto mark = marks.find(type);
        auto ttl = count_at(endpoint, "recordTTL", 0, 0x7FFFFFFF);
        if (ttl == 0 && mark != marks.end()) ttl = mark->second.ttl;
        const auto identifier = text_at(endpoint, "setIdentifier");
        out.sets.push_back(gslb::foreign_record_set(type, ttl, std::move(values),
                                                    !identifier.empty()   ? "the set identifier " + one_line(identifier, 60)
                                                    : mark != marks.end() ? mark->second.mark
                                                                          : std::string()));
    }
    return out;
}

std::string externaldns_changes(const ExternaldnsEndpoints& all, std::span<const gslb::Change> changes) {
    json::array create, update_old, update_new, remove;
    const auto set_to = [&](const std::string& name, std::string_view type, json::object wanted) {
        const auto found = all.find({name, std::string(type)});
        if (found == all.end()) {
            create.push_back(std::move(wanted));
            return;
        }
        update_old.push_back(found->second);
        auto merged = found->second; // keeps the endpoint's labels and what the provider added
        for (auto& [key, value] : wanted) merged[key] = value;
        update_new.push_back(std::move(merged));
    };
    const auto remove_endpoint = [&](const std::string& name, std::string_view type) {
        if (const auto found = all.find({name, std::string(type)}); found != all.end()) remove.push_back(found->second);
    };
    for (const auto& change : changes) {
        json::array marks;
        for (const auto& set : change.before)
            if (gslb::find(change.after, set.type) == nullptr) remove_endpoint(change.name, name_of(set.type));
        for (const auto& set : change.after) {
            const auto* before = gslb::find(change.before, set.type);
            if (before == nullptr || !before->same_data(set)) set_to(change.name, name_of(set.type), endpoint_of(change.name, set));
            marks.push_back(json::string(mark_text(set)));
        }
        if (marks.empty())
            remove_endpoint(marks_at(change.name), "TXT");
        else
            set_to(marks_at(change.name), "TXT",
                   endpoint_of(marks_at(change.name), "TXT", change.after.front().ttl, std::move(marks)));
    }
    return json::serialize(json::object{{"create", std::move(create)},
                                        {"updateOld", std::move(update_old)},
                                        {"updateNew", std::move(update_new)},
                                        {"delete", std::move(remove)}});
}

std::string externaldns_wanted(const std::vector<gslb::ProviderRecords>& wanted) {
    json::array out;
    for (const auto& records : wanted)
        for (const auto& set : records.sets) out.push_back(endpoint_of(records.name, set));
    return json::serialize(out);
}

Result<std::vector<gslb::ProviderRecords>> read_externaldns_adjusted(std::string_view body,
                                                                     std::vector<gslb::ProviderRecords> wanted) {
    TRY(const auto adjusted, read_externaldns_records(body));
    for (auto& records : wanted)
        for (auto& set : records.sets) {
            const auto made = externaldns_records(adjusted, records.name);
            const auto* now = gslb::find(made.sets, set.type);
            if (now == nullptr) continue; // left out by the adapter: it will refuse the set, or does not handle it
            set.values = now->values;
            if (now->ttl != 0) set.ttl = now->ttl;
        }
    return wanted;
}

Result<std::vector<std::string>> read_externaldns_filters(std::string_view body) {
    TRY(const auto document, read_answer("the ExternalDNS adapter", body));
    if (!document.is_object())
        return Error{Code::unavailable, "the answer of the ExternalDNS adapter has no list of domains that it serves"};
    std::vector<std::string> out;
    for (const auto* key : {"filters", "include"})
        for (auto& filter : texts_at(as_object(document), key))
            if (!filter.empty()) out.push_back(with_dot(std::move(filter)));
    return out;
}

bool externaldns_serves(const std::vector<std::string>& filters, std::string_view zone) {
    return filters.empty() || std::any_of(filters.begin(), filters.end(), [&](const std::string& filter) {
               std::string_view domain(filter);
               if (domain.starts_with('.')) domain.remove_prefix(1);
               return zone == domain || zone.ends_with("." + std::string(domain));
           });
}

} // namespace orrery::drivers
