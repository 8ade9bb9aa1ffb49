#pragma once

#include "core/result.h"
#include "jobs/membership.h"
#include "jobs/plan.h"

#include <vector>

/// Private to the planner.
namespace orrery::jobs {

/// Computes the number of members that each barrier of the plan wants, and validates that it can open: with the instances that the
/// plan provides, that are registered, or that others may register. Sets the numbers and warnings of the plan. `ordered`: the edges
/// are valid and without cycles, so that barriers whose providers wait for them can be found.
std::vector<FieldError> check_barriers(Plan& plan, const Membership* membership, bool ordered);

} // namespace orrery::jobs
