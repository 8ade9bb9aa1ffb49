#pragma once

#include "jobs/live_job.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace orrery::jobs {

/// Registers what tasks provide: when the job starts, an Instance with the node's address and the service's port, so that other
/// tasks can be configured for it. Whether the instance passes is decided by its checks; without checks, by the success of the
/// task. Private to the engine.
class InstanceRegistrar {
public:
    explicit InstanceRegistrar(EngineContext& engine) : engine_(engine), wake_(engine.executor) {}

    /// Examines all tasks of the job that provide something: their instances are registered, marked as started, or removed.
    void enqueue_all(const std::shared_ptr<JobRun>& run);
    void enqueue(const std::shared_ptr<JobRun>& run, std::uint32_t task);
    void clear() { queue_.clear(); }
    /// Works off the queue until it is cancelled.
    asio::awaitable<void> run(Context ctx, store::Fence fence);
    /// Removes the instances that a deleted job registered and never started.
    Task<Unit> remove_planned(Context ctx, store::Fence fence, std::string job);

private:
    Task<Unit> register_task(Context ctx, store::Fence fence, const JobRun& run, std::uint32_t task);
    Task<Unit> register_instance(Context ctx, store::Fence fence, const JobRun& run, std::uint32_t task, const ServiceRef& service,
                                 std::string node);

    EngineContext& engine_;
    Notifier wake_;
    std::deque<std::pair<std::shared_ptr<JobRun>, std::uint32_t>> queue_;
};

} // namespace orrery::jobs
