#pragma once

#include "core/result.h"

#include <boost/json/value.hpp>

#include <string>
#include <string_view>
#include <vector>

/// JSON and YAML as text. Both readers are for foreign bytes: bounded in size, depth and expansion; errors name line and column.
namespace orrery {

namespace json = boost::json;

struct Document {
    json::value value;
    int line = 1; ///< where it begins, for messages
};

/// Limits of both readers.
constexpr std::size_t max_text_size = 4u << 20;
constexpr std::size_t max_depth = 64;
constexpr std::size_t max_nodes = 500'000; ///< YAML only: its shortest node is one character

/// `invalid` with line and column. Integers that would lose digits and keys that occur twice are refused.
Result<json::value> parse_json(std::string_view text, std::size_t depth = max_depth);
/// Any number of YAML documents (JSON is YAML); empty ones are left out. Scalars are typed as YAML's core schema says, except that
/// digits with a leading zero stay text, because they are modes and codes more often than numbers. Anchors, aliases, tags and
/// duplicate keys are refused.
Result<std::vector<Document>> parse_yaml(std::string_view text);
/// Block style, keys in the order they have, strings quoted only where they must be.
std::string to_yaml(const json::value& value);
/// One line, no spaces; numbers as people write them (1.5, not 1.5E0), so that they read back as what they were.
void append_json(const json::value& value, std::string& out);
std::string to_json_text(const json::value& value);
/// Two spaces an indent, keys in the order they have.
std::string to_pretty_json(const json::value& value);

} // namespace orrery
