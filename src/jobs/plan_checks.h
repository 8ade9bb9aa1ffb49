#pragma once

#include "core/result.h"
#include "jobs/plan.h"

#include <vector>

/// Private to the planner.
namespace orrery::jobs {

/// Finds errors that would otherwise show only at run time: references to missing secrets, tasks and values, services without a
/// provider, limits for roles and canaries that the plan does not have.
std::vector<FieldError> check_submission(const Plan& plan, const Executors& executors, const Membership* membership,
                                         const SecretKeys& secret_keys);

} // namespace orrery::jobs
