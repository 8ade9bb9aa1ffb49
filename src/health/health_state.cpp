#include "health/health_state.h"

namespace orrery::health {

std::string_view name_of(HealthState state) {
    switch (state) {
    case HealthState::unknown: return "unknown";
    case HealthState::up: return "up";
    case HealthState::degraded: return "degraded";
    case HealthState::down: return "down";
    }
    return "unknown";
}

HealthState health_state_from(std::string_view name) {
    for (const auto one : {HealthState::up, HealthState::degraded, HealthState::down})
        if (name_of(one) == name) return one;
    return HealthState::unknown;
}

} // namespace orrery::health
