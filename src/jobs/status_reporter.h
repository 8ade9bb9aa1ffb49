#pragma once

#include "jobs/live_job.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace orrery::jobs {

/// Writes the status of Jobs: at once when a job's state changes, and at most every `Options::report` when only counters do.
/// Unloads jobs that have ended and are clean. Private to the engine.
class StatusReporter {
public:
    explicit StatusReporter(EngineContext& engine) : engine_(engine), wake_(engine.executor) {}

    void wake() { wake_.notify_all(); }
    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx, store::Fence fence);

private:
    /// The jobs whose status is to be written now; `next`: when the next one is due.
    std::vector<std::shared_ptr<JobRun>> due_jobs(std::optional<SteadyTime>& next) const;
    /// False: this server stops.
    asio::awaitable<bool> report(std::shared_ptr<JobRun> run, const store::Fence& fence);

    EngineContext& engine_;
    Notifier wake_;
    std::map<std::string, SteadyTime> written_at_; ///< by job
};

} // namespace orrery::jobs
