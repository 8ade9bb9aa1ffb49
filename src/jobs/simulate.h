#pragma once

#include "core/clock.h"
#include "jobs/limits.h"
#include "jobs/membership.h"
#include "jobs/plan.h"
#include "jobs/rows.h"

#include <map>
#include <string>
#include <vector>

namespace orrery::jobs {

/// What a plan is imagined to meet.
struct SimulateOptions {
    std::vector<Duration> takes; ///< of each group's tasks
    Duration latency{};          ///< from the end of a task to its service being seen as passing
    int slots = 1000;
    std::map<std::string, RollingRule> rules;
};

struct Simulation {
    Duration makespan{};
    JobState end = JobState::running; ///< running: it would never end; `stuck` says where it stands
    std::vector<std::string> stuck;
    std::size_t most_running = 0, attempts = 0;
    struct Span {
        Duration start{}, end{};
    };
    std::vector<Span> groups; ///< first start and last end of each
    struct Step {
        std::uint32_t task = 0;
        Span span;
        std::string because; ///< "after base@n-1", "mysql passing", "n-1 was busy with base@n-1"
    };
    std::vector<Step> critical_path; ///< from the beginning to what ends last
};

/// Plays a plan through with the real scheduler, in imagined time: services pass when the tasks that provide them are done.
/// `now`: who is in the catalog already.
Simulation simulate(const Plan& plan, const SimulateOptions& options, const Membership* now);

} // namespace orrery::jobs
