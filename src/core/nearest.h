#pragma once

#include <string_view>

namespace orrery {

/// The candidate with the smallest edit distance to `text`, for "did you mean"; empty when no candidate is close.
std::string_view nearest(std::string_view text, const std::string_view* begin, const std::string_view* end);

} // namespace orrery
