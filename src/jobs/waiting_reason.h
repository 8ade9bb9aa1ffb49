#pragma once

#include "jobs/engine.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <string>

/// Why a task is in its state, and what is missing until a job is done. Start reading here when a task does not start: the switch
/// in `waits_for` leads to the part of the scheduler that decides.
namespace orrery::jobs {

/// What a task waits for, in one sentence; empty where it does not wait.
std::string waits_for(const JobRun& run, std::uint32_t task);
/// How a task came to its state, in one sentence; may be empty.
std::string task_message(const TaskRecord& record);
/// All that is known about why a task is in its state: the unmet predicate, the instances that count, the tasks that block it.
json::object why(const JobRun& run, std::uint32_t task, const Membership& membership);
/// What is missing for the job to be done, as {name, message}, at most `max`; empty: it is done.
json::array missing(const JobRun& run, std::size_t max = 100);

} // namespace orrery::jobs
