#pragma once

#include "resource/kind.h"

#include <vector>

namespace orrery::jobs {

/// The fields of a job's spec as a kind declares them, for OpenAPI and `explain`. `read_job` (job_file.h) validates.
resource::Field tasks_field();
resource::Field limits_field();
resource::Field done_field();
/// The forms of `approve`, of a job and of a task.
std::vector<resource::Field> approve_forms();
/// The fields of a task.
resource::Field task_fields();

} // namespace orrery::jobs
