#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// The line of each path ("spec.tasks[2].name") in a YAML document, for error messages; for a path that does not exist, the line of
/// its deepest existing parent. `document_line` is Document::line of parse_yaml. nullopt when the text cannot be parsed.
std::vector<std::optional<int>> yaml_lines(std::string_view text, int document_line, const std::vector<std::string>& paths);

} // namespace orrery
