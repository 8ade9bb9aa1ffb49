#pragma once

#include "core/clock.h"

#include <cstdint>
#include <string_view>

namespace orrery::health {

/// How often a target is looked at. Zero: as usual.
struct Pace {
    Duration interval = std::chrono::seconds(10);
    Duration fast{};                                ///< while results point to a change
    Duration slow{};                                ///< once it has been down for `slow_after`
    Duration slow_after = std::chrono::minutes(10); ///< of which only `slow` takes notice
    bool varies() const { return fast > Duration{} || slow > Duration{}; }
};

/// What of a target's verdict matters to its pace.
struct Course {
    bool in_transition = false;
    Duration down_for{}; ///< zero: it is not down
};
/// The interval that holds now: fast in transition, slow when long down, else the usual one. None is shorter than 100 ms.
Duration interval_now(const Pace& pace, const Course& course);

/// The same over restarts, builds and machines.
std::uint64_t stable_hash(std::string_view text);

/// From `now` to the next moment of the phase that `hash` gives within the interval, which lies in (0, interval]. Counted on the
/// time of day, so that a restart changes nothing.
Duration until_phase(std::uint64_t hash, Duration interval, WallTime now);

/// A shift of at most `percent` of the interval either way; `random` is any number.
Duration jitter(Duration interval, int percent, std::uint64_t random);

} // namespace orrery::health
