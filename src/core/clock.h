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

/// A source of time. All code that waits or measures time takes a Clock, so that tests can use a VirtualClock.
class Clock {
public:
    virtual ~Clock() = default;
    /// Time of day, for people and records. It can step.
    virtual WallTime wall() const = 0;
    /// Monotonic time, for deadlines and intervals.
    virtual SteadyTime steady() const = 0;
    /// Sleeps until `when`. Returns `cancelled` when the coroutine is cancelled.
    virtual boost::asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) = 0;
    boost::asio::awaitable<Result<Unit>> sleep(Duration time) { return sleep_until(steady() + time); }
};

/// The clock of the operating system. One for the process; stateless; any thread.
Clock& real_clock();

/// A clock for tests: time passes only when the test advances it. Belongs to one event loop.
class VirtualClock final : public Clock {
public:
    VirtualClock();
    ~VirtualClock() override;
    WallTime wall() const override;
    SteadyTime steady() const override;
    boost::asio::awaitable<Result<Unit>> sleep_until(SteadyTime when) override;

    /// Advances time and wakes all sleepers that are due, in order of their times. They resume when the loop next runs.
    void advance(Duration by);
    /// Advances to the earliest time that a coroutine sleeps for and wakes it. Returns false when no coroutine sleeps.
    bool advance_to_next();
    /// The number of coroutines that sleep.
    std::size_t sleepers() const;
    /// Steps the wall clock only, as an administrator or NTP does.
    void step_wall(Duration by);

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Formats and parses "2026-11-16T04:42:52.123Z". Errors: `invalid`.
std::string to_rfc3339(WallTime time);
Result<WallTime> from_rfc3339(std::string_view text);

/// Formats and parses "90s", "15m", "2h30m", "7d", "250ms". A number without a unit is `invalid`, because it is ambiguous.
std::string to_text(Duration duration);
Result<Duration> parse_duration(std::string_view text);

} // namespace orrery
