#pragma once

#include "core/text.h"

#include <cstdint>
#include <string>
#include <string_view>

/// Reads fields of JSON from other processes: bounded, with a default instead of an error where one will do. Private to the module.
namespace orrery::health {

/// `invalid`, with the field.
Error wire_error(std::string_view field, std::string_view message);
std::int64_t wire_number(const json::object& from, std::string_view key, std::int64_t default_value, std::int64_t max);

/// One line of up to 128 printable characters without quotes.
bool is_vantage_name(std::string_view name);

} // namespace orrery::health
