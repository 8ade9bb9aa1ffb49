#pragma once

#include "jobs/scheduler/task_table.h"
#include "jobs/scheduler/timer_queue.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace orrery::jobs {

/// The re-runs of groups with `rerun_on`: when the inputs of their tasks are compared again after a service changed. Changes within
/// the debounce time count as one. Private to the scheduler.
class RerunTracker {
public:
    RerunTracker(TaskTable& table, TimerQueue& timers) : table_(table), timers_(timers), groups_(table.plan.groups.size()) {}

    void cancel_all() {
        for (auto& group : groups_) group.due.reset();
    }
    bool is_pending(std::uint32_t group) const { return groups_[group].due.has_value(); }
    bool any_pending() const {
        return std::any_of(groups_.begin(), groups_.end(), [](const Rerun& group) { return group.due.has_value(); });
    }
    /// A service of the group changed. A group of which no task ran yet reads the current values when it starts.
    void schedule(std::uint32_t g, Moment now) {
        auto& group = groups_[g];
        if (group.due) return;
        const auto& of = table_.plan.groups[g];
        const auto first = table_.records.begin() + of.first;
        if (std::none_of(first, first + of.count,
                         [](const TaskRecord& record) { return record.done_once || record.state == TaskState::running; }))
            return;
        Duration debounce{}, interval{};
        for (const auto& rerun : table_.spec(g).rerun_on) {
            debounce = std::max(debounce, rerun.debounce);
            interval = std::max(interval, rerun.min_interval);
        }
        group.due = now.steady + debounce;
        if (group.last_run != SteadyTime{}) group.due = std::max(*group.due, group.last_run + interval);
        timers_.set(*group.due, TimerType::rerun, g);
        table_.job_state_stale = true;
    }
    /// True where the re-run is due; it is then no longer pending.
    bool take_due(std::uint32_t group, Moment now) {
        if (!groups_[group].due || *groups_[group].due > now.steady) return false;
        groups_[group].due.reset();
        table_.job_state_stale = true;
        return true;
    }
    void note_run(std::uint32_t group, Moment now) { groups_[group].last_run = now.steady; }

private:
    struct Rerun {
        std::optional<SteadyTime> due;
        SteadyTime last_run{};
    };
    TaskTable& table_;
    TimerQueue& timers_;
    std::vector<Rerun> groups_;
};

} // namespace orrery::jobs
