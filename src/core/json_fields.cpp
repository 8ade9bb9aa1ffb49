#include "core/json_fields.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <limits>

namespace orrery {

std::string text_at(const json::object& object, std::string_view key, std::string_view default_value) {
    const auto* value = object.if_contains(key);
    return std::string(value != nullptr && value->is_string() ? std::string_view(value->get_string()) : default_value);
}

std::int64_t integer_at(const json::object& object, std::string_view key, std::int64_t default_value) {
    const auto* value = object.if_contains(key);
    if (value == nullptr) return default_value;
    if (value->is_int64()) return value->get_int64();
    constexpr auto max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return value->is_uint64() && value->get_uint64() <= max ? static_cast<std::int64_t>(value->get_uint64()) : default_value;
}

double number_at(const json::object& object, std::string_view key, double default_value) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || !value->is_number()) return default_value;
    if (value->is_double()) return value->get_double();
    return value->is_int64() ? static_cast<double>(value->get_int64()) : static_cast<double>(value->get_uint64());
}

std::uint32_t count_at(const json::object& object, std::string_view key, std::uint32_t default_value, std::uint32_t max) {
    const auto number = number_at(object, key, default_value);
    return static_cast<std::uint32_t>(std::clamp(number, 0.0, static_cast<double>(max)));
}

bool flag_at(const json::object& object, std::string_view key, bool default_value) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : default_value;
}

const json::object& object_at(const json::object& object, std::string_view key) {
    static const json::object none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}

const json::array& array_at(const json::object& object, std::string_view key) {
    static const json::array none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_array() ? value->get_array() : none;
}

std::vector<std::string> texts_at(const json::object& object, std::string_view key) {
    std::vector<std::string> out;
    for (const auto& item : array_at(object, key))
        if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}

std::map<std::string, std::string> text_map_at(const json::object& object, std::string_view key) {
    std::map<std::string, std::string> out;
    for (const auto& [name, value] : object_at(object, key))
        if (value.is_string()) out.emplace(std::string_view(name), std::string_view(value.get_string()));
    return out;
}

Duration duration_at(const json::object& object, std::string_view key, Duration default_value) {
    const auto text = text_at(object, key);
    return text.empty() ? default_value : parse_duration(text).value_or(default_value);
}

std::optional<WallTime> time_at(const json::object& object, std::string_view key) {
    const auto text = text_at(object, key);
    if (text.empty()) return std::nullopt;
    const auto parsed = from_rfc3339(text);
    return parsed.ok() ? std::optional(*parsed) : std::nullopt;
}

json::array to_array(const std::vector<std::string>& texts) { return json::array(texts.begin(), texts.end()); }

} // namespace orrery
