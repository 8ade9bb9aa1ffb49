#pragma once

#include <boost/json/value.hpp>

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

/// JSON and YAML as text. Both readers are for foreign bytes: bounded in size, depth and expansion; errors name line and column.
namespace orrery::resource {

namespace json = boost::json;

struct Document {
    json::value value;
    int line = 1; ///< where it begins, for messages
};

Result<json::value> parse_json(std::string_view text);
/// One or more YAML documents (JSON is YAML). Scalars are typed as YAML's core schema says, except that anchors and aliases are refused, as are tags and duplicate keys.
Result<std::vector<Document>> parse_yaml(std::string_view text);
/// Block style, keys in the order they have, strings quoted only where they must be.
std::string to_yaml(const json::value& value);
/// Two spaces an indent, keys in the order they have.
std::string to_pretty_json(const json::value& value);

} // namespace orrery::resource
