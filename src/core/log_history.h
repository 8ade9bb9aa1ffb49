#pragma once

#include "core/log.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::log {

/// The parts of one log line.
struct Line {
    std::uint64_t number = 0; ///< 1, 2, ... in the order in which this process wrote them
    WallTime time{};
    Level level = Level::info;
    std::string context, actor, message;
};

/// The most recent lines that `log::write` wrote, in memory. Bounded by lines and by bytes; the oldest are dropped first. Empty
/// after a restart; the log itself is complete. Any thread.
class History {
public:
    static constexpr std::size_t max_lines = 20'000;
    static constexpr std::size_t max_bytes = 8 << 20;
    static constexpr std::size_t max_message = 4 << 10; ///< longer messages are truncated

    struct Query {
        std::string context = {}; ///< empty: all contexts
        Level level = Level::debug;
        WallTime since{};
        std::size_t limit = 1000; ///< the newest lines are returned
    };

    void add(Level level, WallTime time, std::string_view context, std::string_view actor, std::string_view message);
    /// In the order in which they were written.
    std::vector<Line> find(const Query& query) const;
    /// The time of the oldest line in memory; nullopt when no line was dropped yet.
    std::optional<WallTime> complete_since() const;

private:
    mutable std::mutex mutex_;
    std::deque<Line> lines_;
    std::size_t bytes_ = 0;
    std::uint64_t written_ = 0;
    bool dropped_ = false;
};

/// The history of this process.
History& history();

std::string_view name_of(Level level);

} // namespace orrery::log
