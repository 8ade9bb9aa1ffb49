#pragma once

#include "core/clock.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Private to the module: fields of JSON that may be absent or of another type, as if they were not there then.
namespace orrery::gslb {

namespace json = boost::json;

inline std::string text_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
inline double number_at(const json::object& object, std::string_view key, double otherwise) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || !value->is_number()) return otherwise;
    return value->is_double()  ? value->get_double()
           : value->is_int64() ? static_cast<double>(value->get_int64())
                               : static_cast<double>(value->get_uint64());
}
/// A whole number within [0, most].
inline std::uint32_t count_at(const json::object& object, std::string_view key, std::uint32_t otherwise,
                              std::uint32_t most = UINT32_MAX) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || !value->is_number()) return otherwise;
    const auto number = number_at(object, key, otherwise);
    return number < 0 ? 0 : number > most ? most : static_cast<std::uint32_t>(number);
}
inline bool flag_at(const json::object& object, std::string_view key, bool otherwise = false) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}
inline const json::object& object_at(const json::object& object, std::string_view key) {
    static const json::object none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_object() ? value->get_object() : none;
}
inline const json::array& array_at(const json::object& object, std::string_view key) {
    static const json::array none;
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_array() ? value->get_array() : none;
}
inline std::vector<std::string> texts_at(const json::object& object, std::string_view key) {
    std::vector<std::string> out;
    for (const auto& item : array_at(object, key))
        if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}
inline Duration duration_at(const json::object& object, std::string_view key, Duration otherwise) {
    const auto text = text_at(object, key);
    return text.empty() ? otherwise : parse_duration(text).value_or(otherwise);
}
inline std::optional<WallTime> time_at(const json::object& object, std::string_view key) {
    const auto text = text_at(object, key);
    if (text.empty()) return std::nullopt;
    const auto parsed = from_rfc3339(text);
    return parsed.ok() ? std::optional(*parsed) : std::nullopt;
}
inline json::array to_array(const std::vector<std::string>& texts) { return json::array(texts.begin(), texts.end()); }

} // namespace orrery::gslb
