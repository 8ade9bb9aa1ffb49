#pragma once

#include "jobs/engine.h"
#include "resource/explain.h"

namespace orrery::jobs {

/// Registers explanations of the state of jobs and tasks, of the tasks that wait for a service or provide it, and of the tasks that
/// run or wait on a node. `resources` and `engine` must outlive `explainers`.
void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Engine& engine);

} // namespace orrery::jobs
