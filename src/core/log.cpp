#include "core/log.h"

#include "core/log_history.h"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <unistd.h>

namespace orrery::log {

namespace {

constexpr std::array<std::string_view, 4> level_names = {"debug", "info", "warn", "error"};

struct Sink {
    std::atomic<Level> level{Level::info};
    std::atomic<Format> format{::isatty(2) != 0 ? Format::human : Format::logfmt};
    std::atomic<bool> colour{::isatty(2) != 0};
    std::atomic<int> fd{2};
};

Sink& sink() {
    static Sink instance;
    return instance;
}

/// Escapes what would break a line or a terminal.
std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            out += c;
    }
    return out;
}

/// Quoted where it has to be, with the escapes of a JSON string, which is what readers of logfmt undo.
std::string logfmt_value(std::string_view text) {
    const auto is_plain = [](char c) {
        return static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '=' && c != '"' && c != '\\';
    };
    if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
    std::string out = "\"";
    for (const char c : text) {
        if (c == '\n')
            out += "\\n";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
        }
    }
    return out + '"';
}

} // namespace

void configure(Settings settings) {
    sink().level = settings.level;
    sink().format = settings.format;
    sink().colour = settings.colour;
    sink().fd = settings.fd;
}

std::string_view name_of(Level level) { return level_names[static_cast<std::size_t>(level)]; }

bool enabled(Level level) { return level >= sink().level.load(std::memory_order_relaxed); }

std::string render(const Settings& settings, Level level, WallTime time, std::string_view context_id, std::string_view actor,
                   std::string_view message) {
    const auto level_name = name_of(level);
    switch (settings.format) {
    case Format::json: {
        boost::json::object line{
            {"time", to_rfc3339(time)}, {"level", level_name}, {"context", context_id}, {"actor", actor}, {"message", message}};
        return boost::json::serialize(line);
    }
    case Format::logfmt:
        return fmt::format("time={} level={} context={} actor={} message={}", to_rfc3339(time), level_name,
                           logfmt_value(context_id), logfmt_value(actor), logfmt_value(message));
    case Format::human: break;
    }
    constexpr std::array<std::string_view, 4> colours = {"\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};
    const auto clock = to_rfc3339(time).substr(11, 12);
    if (!settings.colour)
        return fmt::format("{} {:5} {}  [{} {}]", clock, level_name, printable(message), printable(actor), printable(context_id));
    return fmt::format("\x1b[2m{}\x1b[0m {}{:5}\x1b[0m {}  \x1b[2m[{} {}]\x1b[0m", clock, colours[static_cast<std::size_t>(level)],
                       level_name, printable(message), printable(actor), printable(context_id));
}

void write(Level level, const Context& ctx, std::string_view message) {
    if (!enabled(level)) return;
    const Settings settings{sink().level, sink().format, sink().colour, sink().fd};
    const auto now = real_clock().wall();
    history().add(level, now, ctx.id(), ctx.actor(), message);
    auto line = render(settings, level, now, ctx.id(), ctx.actor(), message);
    line += '\n';
    // One write per line keeps lines of different threads intact. Write errors must not stop the server.
    [[maybe_unused]] const auto written = ::write(settings.fd, line.data(), line.size());
}

Result<Level> parse_level(std::string_view text) {
    for (std::size_t i = 0; i < level_names.size(); ++i)
        if (level_names[i] == text) return static_cast<Level>(i);
    return Error{Code::invalid, fmt::format("\"{}\" is not a log level", text), "use debug, info, warn or error"};
}

Result<Format> parse_format(std::string_view text) {
    if (text == "human") return Format::human;
    if (text == "logfmt") return Format::logfmt;
    if (text == "json") return Format::json;
    return Error{Code::invalid, fmt::format("\"{}\" is not a log format", text), "use human, logfmt or json"};
}

} // namespace orrery::log
