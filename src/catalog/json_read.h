#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Reading fields of JSON that may be absent or of another type: then they are as if they were not there.
namespace orrery::catalog {

namespace json = boost::json;

std::string text_at(const json::object& object, std::string_view key);
std::int64_t number_at(const json::object& object, std::string_view key, std::int64_t otherwise);
std::vector<std::string> texts_at(const json::object& object, std::string_view key);
std::map<std::string, std::string> texts_by_name(const json::object& object, std::string_view key);
const json::object& object_at(const json::object& object, std::string_view key);
/// ASCII letters in lower case: names of services and nodes compare so.
std::string lowered(std::string_view text);

} // namespace orrery::catalog
