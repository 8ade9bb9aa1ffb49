#include "gslb/publisher.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace orrery::gslb {

namespace {

std::optional<std::string> canonical(RecordType type, std::string_view value) {
    boost::system::error_code error;
    if (type == RecordType::a) {
        const auto address = asio::ip::make_address_v4(value, error);
        return error ? std::nullopt : std::optional(address.to_string());
    }
    if (type == RecordType::aaaa) {
        const auto address = asio::ip::make_address_v6(value, error);
        return error || address.scope_id() != 0 ? std::nullopt : std::optional(address.to_string());
    }
    if (value.empty() || value == "." || value.size() > 254) return std::nullopt;
    std::string out(value);
    for (char& c : out) {
        if (c <= ' ' || c >= 0x7f || c == '"') return std::nullopt;
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    if (!out.ends_with('.')) out += '.';
    return out;
}

void order(std::vector<std::string>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
}

/// FNV-1a: a fingerprint against accidents, not against forgers, who could write the record just as well.
std::uint64_t digest_of(const RecordSet& set) {
    std::uint64_t out = 0xcbf29ce484222325ULL;
    const auto add = [&](std::string_view text) {
        for (const char c : text) out = (out ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
        out = (out ^ 0xFFU) * 0x100000001b3ULL;
    };
    add(name_of(set.type));
    add(std::to_string(set.ttl));
    for (const auto& value : set.values) add(value);
    return out;
}

constexpr std::string_view mark_begins = "orrery owner=";

} // namespace

std::string_view name_of(RecordType type) {
    switch (type) {
    case RecordType::a: return "A";
    case RecordType::aaaa: return "AAAA";
    case RecordType::cname: return "CNAME";
    }
    return "?";
}

std::string RecordSet::text() const { return fmt::format("{} {} (ttl {})", name_of(type), fmt::join(values, " "), ttl); }

bool same_data(const RecordSets& left, const RecordSets& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](const RecordSet& a, const RecordSet& b) { return a.same_data(b); });
}

const RecordSet* find(const RecordSets& sets, RecordType type) {
    const auto found = std::find_if(sets.begin(), sets.end(), [&](const RecordSet& set) { return set.type == type; });
    return found == sets.end() ? nullptr : &*found;
}

std::string text_of(const RecordSets& sets) {
    if (sets.empty()) return "nothing";
    std::string out;
    for (const auto& set : sets) out += (out.empty() ? "" : ", ") + set.text();
    return out;
}

Result<RecordSet> record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values) {
    if (values.empty()) return Error{Code::invalid, fmt::format("a set of {} records needs at least one", name_of(type))};
    for (auto& value : values) {
        auto text = canonical(type, value);
        if (!text)
            return Error{Code::invalid,
                         fmt::format("\"{}\" cannot stand in a record of type {}", value.substr(0, 300), name_of(type))};
        value = std::move(*text);
    }
    order(values);
    if (type == RecordType::cname && values.size() > 1)
        return Error{Code::invalid, fmt::format("a name can be an alias of one other only, not of {}", fmt::join(values, " and "))};
    if (ttl > 0x7FFFFFFF) return Error{Code::invalid, fmt::format("a TTL of {} s is more than DNS allows", ttl)};
    return RecordSet{type, ttl, std::move(values), {}};
}

RecordSet foreign_record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values, std::string mark) {
    for (auto& value : values)
        if (auto text = canonical(type, value)) value = std::move(*text);
    order(values);
    return {type, ttl, std::move(values), std::move(mark)};
}

std::string mark_of(std::string_view owner, const RecordSet& set) {
    return fmt::format("{}{} set={:016x}", mark_begins, owner, digest_of(set));
}

Ownership ownership(const RecordSet& set, std::string_view owner) {
    if (!set.mark.starts_with(mark_begins)) return set.mark.empty() ? Ownership::unmarked : Ownership::anothers;
    if (set.mark == mark_of(owner, set)) return Ownership::ours;
    return set.mark.starts_with(fmt::format("{}{} set=", mark_begins, owner)) ? Ownership::altered : Ownership::anothers;
}

bool is_owner(std::string_view text) {
    return !text.empty() && text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    });
}

Result<Unit> guard_against_emptying(const Change& change) {
    if (change.after.empty() && !change.empties)
        return Error{Code::invalid, fmt::format("{} would be left without any answer, and nobody said so", change.name)};
    return Unit{};
}

} // namespace orrery::gslb
