#pragma once

#include <string_view>

namespace orrery::health {

/// The health of a target, a service or a member; one type for all modules. `unknown`: there is no evidence. `degraded`: up, but
/// the last good result was a warning.
enum class HealthState { unknown, up, degraded, down };
std::string_view name_of(HealthState state);
/// The state of that name; `unknown` for any other text.
HealthState health_state_from(std::string_view name);

} // namespace orrery::health
