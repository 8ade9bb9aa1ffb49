#pragma once

#include "core/clock.h"

#include <cstdint>
#include <string_view>

/// When probes are due. Pure.
namespace orrery::health {

/// The times between probes of a target. Zero: the usual interval.
struct Intervals {
    Duration interval = std::chrono::seconds(10);
    Duration fast_interval{};                       ///< while results point to a change
    Duration down_interval{};                       ///< after `down_after` in state down
    Duration down_after = std::chrono::minutes(10); ///< applies to `down_interval`
    bool varies() const { return fast_interval > Duration{} || down_interval > Duration{}; }
};

/// The part of a target's health that decides which interval applies.
struct Trend {
    bool in_transition = false;
    Duration down_for{}; ///< zero: the target is not down
};
/// The interval that applies now: fast in transition, long when down for long, otherwise the usual one. At least 100 ms.
Duration interval_now(const Intervals& intervals, const Trend& trend);

/// Equal for equal texts over restarts, builds and architectures.
std::uint64_t stable_hash(std::string_view text);

/// The time from `now` to the next moment of the phase that `hash` selects within the interval, in (0, interval]. Based on the wall
/// clock, so that a restart does not shift the phase.
Duration until_phase(std::uint64_t hash, Duration interval, WallTime now);

/// A shift of at most `percent` of the interval in either direction. `random` is any number.
Duration jitter(Duration interval, int percent, std::uint64_t random);

} // namespace orrery::health
