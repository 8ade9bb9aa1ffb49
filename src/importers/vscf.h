#pragma once

#include "core/result.h"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Private to the importers: gdnsd's configuration language (vscf), with scalars, [ arrays ] and { key => value } tables.
namespace orrery::importers {

/// Parses a vscf file. Scalars become strings. `invalid` with the line, also for $include and for more than 16 levels.
Result<boost::json::object> parse_vscf(std::string_view text);

/// An integer member, or `default_value`.
int vscf_number(const boost::json::object& table, std::string_view key, int default_value);
/// The scalars of an array, or one scalar as a list of one.
std::vector<std::string> vscf_list(const boost::json::object& table, std::string_view key);

} // namespace orrery::importers
