#pragma once

#include "jobs/engine.h"

#include <string>
#include <vector>

/// The history of a job in the order of time, for logs that merge all layers.
namespace orrery::jobs {

struct TimelineEntry {
    std::string id; ///< stable: the same entry always has the same id
    WallTime time{};
    std::string task;
    int attempt = 0; ///< 0: before the first attempt
    bool failed = false;
    std::string message;
};
/// The recorded transitions of its tasks (the last attempts and the current state) from `since` on. Not sorted.
std::vector<TimelineEntry> timeline(const JobRun& run, WallTime since);

/// The output of one attempt, to be read from an OutputLog.
struct TaskOutput {
    OutputLog::Name name;
    std::string task;
    WallTime started{};
    bool complete = false; ///< no more output will come
};
/// The outputs of the last attempts that ended after `since`, at most `max`, the latest first; `more` is set where there are
/// others.
std::vector<TaskOutput> outputs(const JobRun& run, WallTime since, std::size_t max, bool& more);

} // namespace orrery::jobs
