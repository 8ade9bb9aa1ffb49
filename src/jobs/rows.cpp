#include "jobs/rows.h"

namespace orrery::jobs {

std::string_view name_of(TaskState state) {
    constexpr std::string_view names[] = {"pending", "waiting", "ready",     "running", "succeeded",
                                          "failed",  "lost",    "cancelled", "skipped"};
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
    constexpr std::string_view names[] = {"planned", "running", "converged", "succeeded", "failed", "cancelled", "cancelling"};
    return names[static_cast<std::size_t>(state)];
}

} // namespace orrery::jobs
