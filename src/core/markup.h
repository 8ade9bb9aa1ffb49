#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// Escapes text for HTML and SVG, between tags and in attribute values.
std::string escape_markup(std::string_view text);

} // namespace orrery
