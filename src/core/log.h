#pragma once

#include "core/context.h"
#include "core/result.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

/// Log lines: state changes for operators (info and above), details for developers (debug). Each line has the id and the actor of
/// its context, so that one id finds the lines of all layers. Log an error once, where it is handled. Any thread.
namespace orrery::log {

enum class Level { debug, info, warn, error };
enum class Format { human, logfmt, json };

struct Settings {
    Level level = Level::info;
    Format format = Format::logfmt;
    bool colour = false; ///< human format only
    int fd = 2;
};

/// Sets destination, level and format. Initially lines go to standard error: human on a terminal, else logfmt.
void configure(Settings settings);
bool enabled(Level level);
/// Writes one line. Control characters in `message` are escaped, so that one call is always one line.
void write(Level level, const Context& ctx, std::string_view message);
/// The formatted line without the newline.
std::string render(const Settings& settings, Level level, WallTime time, std::string_view context_id, std::string_view actor,
                   std::string_view message);

Result<Level> parse_level(std::string_view text);
Result<Format> parse_format(std::string_view text);

template <class... Args> void debug(const Context& ctx, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::debug)) write(Level::debug, ctx, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args> void info(const Context& ctx, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::info)) write(Level::info, ctx, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args> void warn(const Context& ctx, fmt::format_string<Args...> format, Args&&... args) {
    if (enabled(Level::warn)) write(Level::warn, ctx, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args> void error(const Context& ctx, fmt::format_string<Args...> format, Args&&... args) {
    write(Level::error, ctx, fmt::format(format, std::forward<Args>(args)...));
}

} // namespace orrery::log
