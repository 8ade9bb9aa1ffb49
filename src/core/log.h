#pragma once

#include "core/context.h"
#include "core/result.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

/// Log lines: what changed, for operators (info and up), and why, for developers (debug). Each carries its context's id and actor,
/// so that one id finds every layer. Log once, where an error is handled. Safe from any thread.
namespace orrery::log {

enum class Level { debug, info, warn, error };
enum class Format { human, logfmt, json };

struct Settings {
    Level level = Level::info;
    Format format = Format::logfmt;
    bool colour = false; ///< human format only
    int fd = 2;
};

/// Sets where lines go. Before it is called they go to standard error: human on a terminal, logfmt otherwise.
void configure(Settings settings);
bool enabled(Level level);
/// Writes one line. `message` may hold anything: control characters are escaped, so that one call is one line.
void write(Level level, const Context& ctx, std::string_view message);
/// The line as it would be written, without the newline.
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
