#pragma once

#include "core/clock.h"

#include <string>
#include <string_view>

/// Text for people: its width on a terminal, its colour, its safety.
namespace orrery::cli {

/// Columns a UTF-8 text takes on a terminal: wide characters count two, combining ones none.
int display_width(std::string_view text);
/// At most `width` columns; what is cut off leaves an "…".
std::string fit(std::string_view text, int width);
/// What a server sent, without the power to move the cursor: control characters become "\x1b", newlines "\n". Bytes that are not
/// UTF-8 become "�".
std::string printable(std::string_view text);

enum class Style { plain, bold, dim, green, yellow, red, cyan };
/// The text in that style, or as it is where there is no colour.
std::string paint(std::string_view text, Style style, bool colour);

/// "45s", "3m", "2h", "5d", "2y"; never negative.
std::string short_age(Duration time);
/// "3m ago", "in 11h", "now".
std::string relative_time(WallTime time, WallTime now);

} // namespace orrery::cli
