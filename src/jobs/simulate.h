#pragma once

#include "core/clock.h"
#include "jobs/limits.h"
#include "jobs/membership.h"
#include "jobs/plan.h"
#include "jobs/records.h"

#include <map>
#include <string>
#include <vector>

namespace orrery::jobs {

/// The assumptions of a simulation.
struct SimulateOptions {
    std::vector<Duration> takes; ///< duration of the tasks of each group
    Duration latency{};          ///< from the end of a task until its service is seen as passing
    int slots = 1000;
    std::map<std::string, RollingRule> rules;
};

struct Simulation {
    Duration makespan{};
    JobState end = JobState::running; ///< running: it would never end; `stuck` has the tasks that block it
    std::vector<std::string> stuck;
    std::size_t max_running = 0, attempts = 0;
    struct Span {
        Duration start{}, end{};
    };
    std::vector<Span> groups; ///< first start and last end of each group
    struct Step {
        std::uint32_t task = 0;
        Span span;
        std::string message; ///< why it starts then: "after base@n-1", "mysql passing", "n-1 was busy with base@n-1"
    };
    std::vector<Step> critical_path; ///< from the start to the task that ends last
};

/// Runs a plan with the real scheduler in simulated time: services pass when the tasks that provide them have succeeded. `now`: the
/// current catalog, or null.
Simulation simulate(const Plan& plan, const SimulateOptions& options, const Membership* now);

} // namespace orrery::jobs
