#include "gslb/publish/record_set.h"

#include "core/truncate.h"

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
        const auto address = boost::asio::ip::make_address_v4(value, error);
        return error ? std::nullopt : std::optional(address.to_string());
    }
    if (type == RecordType::aaaa) {
        const auto address = boost::asio::ip::make_address_v6(value, error);
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
                         fmt::format("\"{}\" is not a valid value of a record of type {}", truncate(value, 300), name_of(type))};
        value = std::move(*text);
    }
    order(values);
    if (type == RecordType::cname && values.size() > 1)
        return Error{Code::invalid, fmt::format("a CNAME has one target only, not {}", fmt::join(values, " and "))};
    if (ttl > 0x7FFFFFFF) return Error{Code::invalid, fmt::format("a TTL of {} s is more than DNS allows", ttl)};
    return RecordSet{type, ttl, std::move(values), {}};
}

RecordSet foreign_record_set(RecordType type, std::uint32_t ttl, std::vector<std::string> values, std::string mark) {
    for (auto& value : values)
        if (auto text = canonical(type, value)) value = std::move(*text);
    order(values);
    return {type, ttl, std::move(values), std::move(mark)};
}

} // namespace orrery::gslb
