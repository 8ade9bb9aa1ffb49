#pragma once

#include "core/result.h"

#include <string>
#include <string_view>

namespace orrery::api {

/// Encodes and decodes the "continue" value of a list. It has a checksum over the list, so that the token of another list is
/// refused.
std::string continue_token(std::string_view list, std::string_view name);
Result<std::string> read_continue_token(std::string_view list, std::string_view token);

} // namespace orrery::api
