#pragma once

#include "jobs/engine.h"
#include "jobs/simulate.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Jobs for people: as JSON for the API, as pictures, in words.
namespace orrery::jobs {

/// One task. `full`: inputs, values, earlier attempts too.
json::object task_view(const JobRun& run, std::uint32_t task, bool full);
/// What a task waits for, in one sentence; empty where it does not wait.
std::string waits_for(const JobRun& run, std::uint32_t task);
/// All that is known about why a task is as it is: the predicate, who was seen, who holds what it wants, who blocks it.
json::object why(const JobRun& run, std::uint32_t task, const Membership& membership);
/// Exactly what is missing for the job to be done; empty: it is done.
json::array missing(const JobRun& run, std::size_t most = 100);
/// The live picture: head, counts, what runs, what waits and for what, the chain that decides when it ends.
json::object progress(const JobRun& run, std::size_t most = 40);
/// The plan: groups with machines, edges and barriers.
json::object plan_view(const Plan& plan);
json::object simulation_view(const Plan& plan, const Simulation& simulation);

/// The graph of groups, with their states where `run` is given.
std::string graph_dot(const Plan& plan, const JobRun* run);
std::string graph_svg(const Plan& plan, const JobRun* run);

} // namespace orrery::jobs
