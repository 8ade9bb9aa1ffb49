#include "health/health_state_machine.h"

#include <algorithm>

namespace orrery::health {

HealthStateMachine HealthStateMachine::remembered(Thresholds thresholds, HealthState state) {
    HealthStateMachine out(thresholds);
    out.state_ = state;
    out.stale_ = state != HealthState::unknown;
    return out;
}

bool HealthStateMachine::update(const Observation& observation) {
    if (!is_evidence(observation.outcome)) return false;
    const auto before = state_;
    const bool good = is_good(observation.outcome);
    const auto good_state = observation.outcome == Outcome::warning ? HealthState::degraded : HealthState::up;
    stale_ = false;
    if (state_ == HealthState::unknown) {
        state_ = good ? good_state : HealthState::down;
    } else if (is_up()) {
        if (!good) {
            successes_ = 0;
            if (++failures_ >= thresholds_.fall) {
                state_ = HealthState::down;
                failures_ = 0;
            }
        } else {
            if (failures_ > 0 && ++successes_ >= thresholds_.forgive) failures_ = successes_ = 0;
            state_ = good_state;
        }
    } else if (!good) {
        successes_ = 0;
    } else if (++successes_ >= thresholds_.rise) {
        state_ = good_state;
        successes_ = 0;
    }
    return state_ != before;
}

int HealthStateMachine::until_change() const {
    switch (state_) {
    case HealthState::unknown: return 1;
    case HealthState::up:
    case HealthState::degraded: return std::max(1, thresholds_.fall - failures_);
    case HealthState::down: return std::max(1, thresholds_.rise - successes_);
    }
    return 1;
}

} // namespace orrery::health
