#pragma once

#include "jobs/limits.h"
#include "jobs/scheduler/rolling_tracker.h"
#include "jobs/scheduler/task_table.h"
#include "jobs/scheduler/undo_queue.h"
#include "jobs/scheduler/wave_tracker.h"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// The ready tasks of one job and the resources that they need to start: slots of the server, the job, the task and the role,
/// nodes, locks and rolling slots. A task that finds one taken is kept with it and queued again by `wake` when it is free. Private
/// to the scheduler.
class Dispatcher {
public:
    enum class Admission {
        granted,
        blocked,    ///< a resource is taken: the task waits there
        group_full, ///< all slots of the task's group are taken
        full        ///< all slots are taken, or the cycle has started enough
    };

    /// `owner`: the scheduler that `Limits` wakes.
    Dispatcher(Scheduler& owner, TaskTable& table, Limits& limits, WaveTracker& waves, RollingTracker& rolling, UndoQueue& undo);

    /// Forgets queues and counters of running tasks: `count_running` counts again.
    void reset();
    void clear_queues();

    /// Queues a ready task, or holds it until its wave opens.
    void enqueue(std::uint32_t task);
    /// Something that a task waited for is free.
    void wake(std::uint32_t task);
    /// Calls `try_start(task)` for each ready task, groups with the longest chain behind them first, until it returns `full`. Goes
    /// on as long as tasks are queued meanwhile.
    template <class F> void for_each_ready(F&& try_start) {
        do queued_ = false;
        while (walk_ready(try_start) && queued_);
    }

    void set_max_starts(std::size_t max_starts) { starts_left_ = max_starts; }
    bool can_start_more() const { return starts_left_ > 0; }
    void count_start() {
        if (starts_left_ > 0) --starts_left_;
    }

    /// Checks all that the task needs. Takes nothing.
    Admission admit(std::uint32_t task);
    /// A task that was woken cannot use its role's slot or its lock after all: the next one may.
    void pass_on(std::uint32_t group, std::uint32_t task);
    bool has_free_slot() const { return limits_.slot_free() && running_ < table_.plan.spec.slots; }
    /// The node on which the limit of tasks is reached; `Plan::none`: no node of the task.
    std::uint32_t busy_host(std::uint32_t group, std::uint32_t task) const;
    void wait_for_host(std::uint32_t host, std::uint32_t task);

    /// Takes slot, node and lock of a task that starts.
    void start(std::uint32_t group, std::uint32_t task) {
        hold(group, task);
        count_running(group, task);
    }
    /// Only in `Limits`, or only in the counters of this job: after a replay.
    void hold(std::uint32_t group, std::uint32_t task);
    void count_running(std::uint32_t group, std::uint32_t task) {
        ++running_;
        ++running_in_group_[group];
        ++running_by_role_[table_.role_of(group, task)];
    }
    void release(std::uint32_t group, std::uint32_t task);

    int running() const { return running_; }
    /// Why a ready task has not started: "db-1 is used by job upgrade". Never empty.
    std::string blocked_reason(std::uint32_t task) const;

private:
    template <class F> bool walk_ready(F&& try_start) {
        for (auto at = active_.begin(); at != active_.end();) {
            auto& ready = ready_[at->second];
            bool group_full = false;
            while (!ready.empty() && !group_full) {
                const auto task = ready.front();
                if (table_.records[task].state != TaskState::ready) {
                    ready.pop_front();
                    continue;
                }
                const Admission admission = try_start(task);
                if (admission == Admission::full) return false;
                group_full = admission == Admission::group_full;
                if (!group_full) ready.pop_front();
            }
            at = ready.empty() ? active_.erase(at) : std::next(at);
        }
        return true;
    }
    bool has_role_limit(const std::string& role, int& limit) const;
    void release_role_slot(const std::string& role);
    bool is_host_busy(std::uint32_t host) const { return limits_.on_host(host_numbers_[host]) >= table_.plan.spec.per_host; }
    std::string host_blocked_reason(std::uint32_t host) const;
    std::string role_blocked_reason(const std::string& role) const;

    Scheduler& owner_;
    TaskTable& table_;
    Limits& limits_;
    WaveTracker& waves_;
    RollingTracker& rolling_;
    UndoQueue& undo_;
    std::vector<std::uint32_t> host_numbers_;      ///< of the plan's hosts, in Limits
    std::vector<std::deque<std::uint32_t>> ready_; ///< by group
    /// Groups with ready tasks; those with the longest chain behind them first.
    std::set<std::pair<std::int64_t, std::uint32_t>> active_;
    std::vector<std::uint32_t> running_in_group_;
    std::map<std::string, int> running_by_role_;
    std::map<std::string, std::vector<std::uint32_t>> waiting_for_role_; ///< for this job's limit of the role
    int running_ = 0;
    std::size_t starts_left_ = 0; ///< in this cycle
    bool queued_ = false;         ///< a task was queued while the ready tasks were walked
};

} // namespace orrery::jobs
