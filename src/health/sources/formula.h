#pragma once

#include "health/health_state.h"
#include "health/observation.h"

#include <cstddef>
#include <span>

namespace orrery::health {

/// How the health of a calculated check follows from the health of other checks.
struct Formula {
    enum class Kind { at_least, all, any, none };
    Kind kind = Kind::all;
    std::size_t count = 1; ///< of `at_least`
};
/// Good or bad; no evidence if the result depends on a part whose health is unknown. Degraded parts count as up, and make the
/// result a warning if it would not be good without them. Pure.
Observation calculate(const Formula& formula, std::span<const HealthState> parts);

} // namespace orrery::health
