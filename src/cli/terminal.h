#pragma once

#include "core/clock.h"

#include <string>
#include <string_view>

/// Text on a terminal: width, colour, escaping.
namespace orrery::cli {

/// The number of columns of a UTF-8 text on a terminal: wide characters count two, combining characters none.
int display_width(std::string_view text);
/// The text cut to `width` columns, with "…" at the end if it was longer.
std::string fit(std::string_view text, int width);
/// Escapes text from a server so that it cannot control the terminal: control characters become "\x1b", newlines "\n". Bytes that
/// are not UTF-8 become "�".
std::string printable(std::string_view text);

enum class Style { plain, bold, dim, green, yellow, red, cyan };
/// The text in a style; unchanged without colour.
std::string paint(std::string_view text, Style style, bool colour);

/// "45s", "3m", "2h", "5d", "2y"; negative times become "0s".
std::string short_age(Duration time);
/// "3m ago", "in 11h", "now".
std::string relative_time(WallTime time, WallTime now);

} // namespace orrery::cli
