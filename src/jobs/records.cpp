#include "jobs/records.h"

#include <iterator>

namespace orrery::jobs {

std::string_view name_of(TaskState state) {
    constexpr std::string_view names[] = {"pending", "waiting",   "ready",   "running", "succeeded",  "failed",
                                          "lost",    "cancelled", "skipped", "undone",  "undo_failed"};
    static_assert(std::size(names) == task_states);
    return names[static_cast<std::size_t>(state)];
}

std::string_view name_of(Phase phase) {
    constexpr std::string_view names[] = {"check", "run", "verify", "undo"};
    return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Waits waits) {
    constexpr std::string_view names[] = {"nothing", "barrier", "approval", "decision", "backoff", "evidence"};
    return names[static_cast<std::size_t>(waits)];
}

std::string_view name_of(JobState state) {
    constexpr std::string_view names[] = {"planned",   "running",    "converged", "succeeded", "failed",
                                          "cancelled", "cancelling", "undoing",   "undone",    "undo_failed"};
    static_assert(std::size(names) == job_states);
    return names[static_cast<std::size_t>(state)];
}

std::optional<JobState> job_state_named(std::string_view name) {
    for (std::size_t i = 0; i < job_states; ++i)
        if (name_of(static_cast<JobState>(i)) == name) return static_cast<JobState>(i);
    return {};
}

} // namespace orrery::jobs
