#pragma once

#include "core/clock.h"

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Readers for fields of a JSON object that may be missing or have an unexpected type; in both cases they return the default value.
/// For stored objects and responses of external systems. The resource module validates user input.
namespace orrery {

namespace json = boost::json;

std::string text_at(const json::object& object, std::string_view key, std::string_view default_value = {});
/// Integers only; a number that does not fit counts as missing.
std::int64_t integer_at(const json::object& object, std::string_view key, std::int64_t default_value = 0);
/// Any number.
double number_at(const json::object& object, std::string_view key, double default_value = 0);
/// An integer, clamped to [0, max].
std::uint32_t count_at(const json::object& object, std::string_view key, std::uint32_t default_value,
                       std::uint32_t max = UINT32_MAX);
bool flag_at(const json::object& object, std::string_view key, bool default_value = false);
/// A reference to a static empty object or array when the field is missing.
const json::object& object_at(const json::object& object, std::string_view key);
const json::array& array_at(const json::object& object, std::string_view key);
/// The texts of a list; items of other types are ignored.
std::vector<std::string> texts_at(const json::object& object, std::string_view key);
/// The texts of a map; values of other types are ignored.
std::map<std::string, std::string> text_map_at(const json::object& object, std::string_view key);
/// A duration such as "30s".
Duration duration_at(const json::object& object, std::string_view key, Duration default_value);
/// A time in RFC 3339.
std::optional<WallTime> time_at(const json::object& object, std::string_view key);

json::array to_array(const std::vector<std::string>& texts);

} // namespace orrery
