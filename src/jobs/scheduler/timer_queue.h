#pragma once

#include "core/clock.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace orrery::jobs {

enum class TimerType : std::uint8_t {
    barrier,  ///< index: group; a barrier's hold time ends
    deadline, ///< index: task; a barrier's deadline passes
    backoff,  ///< index: task; its next attempt is due
    wave,     ///< index: group; its next wave opens
    rerun,    ///< index: group; its inputs are compared again
    timeout,  ///< index: task; its attempt has run for too long
    done      ///< the hold time of the job's `done` may have ended
};

struct Timer {
    SteadyTime at;
    TimerType type;
    std::uint32_t index;
    std::uint32_t number; ///< identifies the attempt or the wait: a timer of an earlier one is stale
    bool operator>(const Timer& other) const { return at > other.at; }
};

/// The timers of one job. Timers are never cancelled: the scheduler ignores a stale one when it fires. Private to the scheduler.
class TimerQueue {
public:
    void set(SteadyTime at, TimerType type, std::uint32_t index, std::uint32_t number = 0) {
        timers_.push({at, type, index, number});
        if (type == TimerType::deadline) ++deadlines_;
    }
    /// The earliest timer that is due; nothing where none is.
    std::optional<Timer> pop_due(SteadyTime now) {
        if (timers_.empty() || timers_.top().at > now) return {};
        const auto timer = timers_.top();
        timers_.pop();
        if (timer.type == TimerType::deadline && deadlines_ > 0) --deadlines_;
        return timer;
    }
    std::optional<SteadyTime> next() const { return timers_.empty() ? std::nullopt : std::optional(timers_.top().at); }
    /// Whether the deadline of a barrier may be running.
    bool has_deadlines() const { return deadlines_ > 0; }
    /// Drops all timers but the timeouts of attempts, which run on.
    void keep_timeouts() {
        std::vector<Timer> timeouts;
        for (; !timers_.empty(); timers_.pop())
            if (timers_.top().type == TimerType::timeout) timeouts.push_back(timers_.top());
        for (const auto& timer : timeouts) timers_.push(timer);
        deadlines_ = 0;
    }

private:
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::size_t deadlines_ = 0;
};

} // namespace orrery::jobs
