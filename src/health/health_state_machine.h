#pragma once

#include "health/health_state.h"
#include "health/observation.h"

namespace orrery::health {

/// The results that a change of state needs. While up, `forgive` good results in a row erase earlier bad ones.
struct Thresholds {
    int rise = 2;
    int fall = 3;
    int forgive = 1;
    bool operator==(const Thresholds&) const = default;
};

/// Turns the observations of one target into a health state, with hysteresis. The first evidence decides at once. After that,
/// `fall` bad results (not separated by `forgive` good ones) take the target down, and `rise` good results in a row bring it up. A
/// local error changes nothing. Pure: no clock, no side effects.
class HealthStateMachine {
public:
    explicit HealthStateMachine(Thresholds thresholds = {}) : thresholds_(thresholds) {}
    /// Starts in a state from before a restart. The state is stale until the first evidence, which counts like any other.
    static HealthStateMachine remembered(Thresholds thresholds, HealthState state);

    /// Applies an observation; true if the state changed.
    bool update(const Observation& observation);

    HealthState state() const { return state_; }
    bool is_up() const { return state_ == HealthState::up || state_ == HealthState::degraded; }
    bool stale() const { return stale_; }
    /// The number of contrary results that would change the state. For TTLs, and for intervals in transition.
    int until_change() const;
    bool in_transition() const { return is_up() ? failures_ > 0 : successes_ > 0; }
    int failures() const { return failures_; }   ///< while up: bad results that are not forgiven
    int successes() const { return successes_; } ///< in a row, towards the next change
    void set_thresholds(Thresholds thresholds) { thresholds_ = thresholds; }

private:
    Thresholds thresholds_;
    HealthState state_ = HealthState::unknown;
    int failures_ = 0, successes_ = 0;
    bool stale_ = false;
};

} // namespace orrery::health
