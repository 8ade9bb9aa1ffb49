#include "core/log_history.h"

#include <algorithm>

namespace orrery::log {

namespace {

std::size_t size_of(const Line& line) { return sizeof(Line) + line.context.size() + line.actor.size() + line.message.size(); }

/// Text within a limit, never half a character.
std::string_view cut_message(std::string_view text) {
    if (text.size() <= History::max_message) return text;
    auto end = History::max_message;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
    return text.substr(0, end);
}

} // namespace

void History::add(Level level, WallTime time, std::string_view context, std::string_view actor, std::string_view message) {
    Line line{0, time, level, std::string(context), std::string(actor), std::string(cut_message(message))};
    const std::lock_guard lock(mutex_);
    line.number = ++written_;
    bytes_ += size_of(line);
    lines_.push_back(std::move(line));
    while (lines_.size() > max_lines || bytes_ > max_bytes) {
        bytes_ -= size_of(lines_.front());
        lines_.pop_front();
        dropped_ = true;
    }
}

std::vector<Line> History::find(const Query& query) const {
    std::vector<Line> out;
    const std::lock_guard lock(mutex_);
    for (auto line = lines_.rbegin(); line != lines_.rend() && out.size() < query.limit; ++line)
        if (line->level >= query.level && line->time >= query.since && (query.context.empty() || line->context == query.context))
            out.push_back(*line);
    std::reverse(out.begin(), out.end());
    return out;
}

std::optional<WallTime> History::complete_since() const {
    const std::lock_guard lock(mutex_);
    if (!dropped_ || lines_.empty()) return {};
    return lines_.front().time;
}

History& history() {
    static History instance;
    return instance;
}

} // namespace orrery::log
