#include "health/wire_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

Error wire_error(std::string_view field, std::string_view message) {
    Error out{Code::invalid, fmt::format("{} {}", field, message)};
    out.fields.push_back({std::string(field), std::string(message)});
    return out;
}

std::int64_t wire_number(const json::object& from, std::string_view key, std::int64_t default_value, std::int64_t max) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_number()) return default_value;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? default_value : std::clamp<std::int64_t>(number, 0, max);
}

bool is_vantage_name(std::string_view name) {
    return !name.empty() && name.size() <= 128 &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
}

} // namespace orrery::health
