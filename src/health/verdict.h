#pragma once

#include "health/observation.h"

#include <cstdint>
#include <string_view>

namespace orrery::health {

/// How many results it takes. After a bad result in good times, `forgive` good ones in a row make it forgotten.
struct Thresholds {
    int rise = 2;
    int fall = 3;
    int forgive = 1;
};

enum class Standing { unknown, up, degraded, down }; ///< degraded: up, but the last good result warned
std::string_view name_of(Standing standing);

/// What many looks at one target amount to, with hysteresis. Pure: no clock, no side effects. The first evidence decides at once;
/// then `fall` bad results (not separated by `forgive` good ones) take it down and `rise` good ones in a row bring it up. What is
/// no evidence changes nothing.
class Verdict {
public:
    explicit Verdict(Thresholds thresholds = {}) : thresholds_(thresholds) {}
    /// One that stood so before, by hearsay: stale until the first evidence, which counts like any other.
    static Verdict remembered(Thresholds thresholds, Standing standing);

    /// True if the standing changed.
    bool take(const Observation& observation);

    Standing standing() const { return standing_; }
    bool is_up() const { return standing_ == Standing::up || standing_ == Standing::degraded; }
    bool stale() const { return stale_; }
    /// Results that are missing until it could change, if all went against it: for TTLs and for intervals in transition.
    int until_change() const;
    bool in_transition() const { return is_up() ? failures_ > 0 : successes_ > 0; }
    int failures() const { return failures_; }   ///< while up: bad results that are not forgiven yet
    int successes() const { return successes_; } ///< in a row, towards the next change
    void set_thresholds(Thresholds thresholds) { thresholds_ = thresholds; }

private:
    Thresholds thresholds_;
    Standing standing_ = Standing::unknown;
    int failures_ = 0, successes_ = 0;
    bool stale_ = false;
};

} // namespace orrery::health
