#pragma once

#include "jobs/engine.h"
#include "jobs/simulate.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <string>

/// Jobs as JSON for the API, and as pictures. waiting_reason.h explains the state of a task.
namespace orrery::jobs {

/// One task. `full`: with inputs, values and earlier attempts.
json::object task_view(const JobRun& run, std::uint32_t task, bool full);
/// The progress of a job: status, counters, tasks that run, wait or failed (at most `max` each), and the chain of tasks that
/// decides when it ends.
json::object progress(const JobRun& run, std::size_t max = 40);
/// The plan: tasks with nodes, edges and barriers.
json::object plan_view(const Plan& plan);
json::object simulation_view(const Plan& plan, const Simulation& simulation);

/// The graph of tasks in the language of Graphviz, and as a picture; with the states of `run`, where it is not null.
std::string graph_dot(const Plan& plan, const JobRun* run);
std::string graph_svg(const Plan& plan, const JobRun* run);

} // namespace orrery::jobs
