#pragma once

#include "core/result.h"

#include <boost/json/value.hpp>

#include <string>
#include <string_view>
#include <vector>

/// Parsers and writers for JSON and YAML. The parsers accept untrusted input: size, depth and expansion are bounded, and errors
/// have line and column.
namespace orrery {

namespace json = boost::json;

struct Document {
    json::value value;
    int line = 1; ///< the line on which it begins, for messages
};

/// Limits of both parsers.
constexpr std::size_t max_text_size = 4u << 20;
constexpr std::size_t max_depth = 64;
constexpr std::size_t max_nodes = 500'000; ///< YAML only: its shortest node is one character

/// Errors: `invalid` with line and column. Rejects integers that would lose digits, and duplicate keys.
Result<json::value> parse_json(std::string_view text, std::size_t depth = max_depth);
/// Parses any number of YAML documents (JSON is YAML); skips empty ones. Scalars have the types of the YAML core schema, except
/// that digits with a leading zero stay text, because they are usually file modes or codes. Rejects anchors, aliases, tags and
/// duplicate keys.
Result<std::vector<Document>> parse_yaml(std::string_view text);
/// Block style; keeps the order of keys; quotes strings only where necessary.
std::string to_yaml(const json::value& value);
/// One line without spaces. Writes 1.5, not 1.5E0, so that integers and decimals keep their type when parsed again.
void append_json(const json::value& value, std::string& out);
std::string to_json_text(const json::value& value);
/// Indents by two spaces; keeps the order of keys.
std::string to_pretty_json(const json::value& value);

} // namespace orrery
