#pragma once

#include <string>
#include <string_view>

namespace orrery {

/// A text as it stands in HTML and SVG, between tags and in attributes.
std::string escape_markup(std::string_view text);

} // namespace orrery
