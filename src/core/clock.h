#pragma once

#include "core/result.h"

#include <boost/asio/awaitable.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

namespace orrery {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;
using Duration = std::chrono::steady_clock::duration;

/// Where time comes from. Everything that waits or measures asks a Clock, so that a test can turn the hands itself.
class Clock {
public:
    virtual ~Clock() = default;
    /// Time of day, for people and records. May step.
    virtual WallTime wall() const = 0;
    /// Never goes back; for deadlines and intervals.
    virtual SteadyTime steady() const = 0;
    /// Sleeps; `cancelled` if the coroutine is cancelled meanwhile.
    virtual boost::asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) = 0;
    boost::asio::awaitable<Result<Unit>> sleep(Duration time) { return sleep_until(steady() + time); }
};

/// The machine's clock. One for the process; stateless and safe from any thread.
Clock& real_clock();

/// A clock that stands still until a test moves it. Belongs to one event loop.
class VirtualClock final : public Clock {
public:
    VirtualClock();
    ~VirtualClock() override;
    WallTime wall() const override;
    SteadyTime steady() const override;
    boost::asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) override;

    /// Moves time on and wakes, in order of their time, all whose moment has come. They run when the loop next runs.
    void advance(Duration by);
    /// Moves to the earliest moment somebody sleeps for and wakes them; false if nobody sleeps.
    bool advance_to_next();
    /// How many sleep now.
    std::size_t sleepers() const;
    /// Steps the time of day only, as an administrator or NTP would.
    void step_wall(Duration by);

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// "2026-11-16T04:42:52.123Z", and back. `invalid` where the text is not such a time.
std::string to_rfc3339(WallTime time);
Result<WallTime> from_rfc3339(std::string_view text);

/// "90s", "15m", "2h30m", "7d", "250ms", and back; a plain number is refused, because nobody knows its unit.
std::string to_text(Duration duration);
Result<Duration> parse_duration(std::string_view text);

} // namespace orrery
