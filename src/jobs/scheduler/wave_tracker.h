#pragma once

#include "jobs/scheduler/task_table.h"
#include "jobs/scheduler/timer_queue.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orrery::jobs {

/// The waves of groups with a `batch`: which wave is open, when the next one opens, and whether failures have stopped the rest. A
/// wave ends when the task `batch.through` has ended on all its nodes. Private to the scheduler.
class WaveTracker {
public:
    WaveTracker(TaskTable& table, TimerQueue& timers);

    /// Forgets all waves: `restore` derives them again from the records.
    void reset();
    void restore(std::uint32_t group, Moment now);
    void clear_postponed();

    bool has_waves(std::uint32_t group) const { return !table_.plan.groups[group].waves.empty(); }
    /// Whether the task may be queued now. A task that ran before, and is run again, belongs to no wave.
    bool admits(std::uint32_t group, std::uint32_t task) const {
        const auto& waves = table_.plan.groups[group].waves;
        if (waves.empty() || table_.records[task].done_once) return true;
        return !groups_[group].stopped && task - table_.plan.groups[group].first < waves[groups_[group].wave];
    }
    /// Keeps a ready task until its wave opens.
    void postpone(std::uint32_t group, std::uint32_t task) { groups_[group].postponed.push_back(task); }

    /// The groups whose waves end with tasks of this group.
    const std::vector<std::uint32_t>& counted_in(std::uint32_t group) const { return counted_in_[group]; }
    /// Counts the end of a task. True where the batch must stop: a canary failed, or more tasks than `max_fail`.
    bool count_end(std::uint32_t group, std::uint32_t task, Moment now);
    bool opens_by(std::uint32_t group, SteadyTime now) const { return groups_[group].opens && *groups_[group].opens <= now; }
    /// Opens the next wave. Returns the postponed tasks; nothing where there is no next wave, or the batch was stopped.
    std::optional<std::vector<std::uint32_t>> open_next(std::uint32_t group);
    /// Tasks of the open wave that ended before it opened.
    std::vector<std::uint32_t> ended_early(std::uint32_t group) const;

    void stop(std::uint32_t group);
    bool is_stopped(std::uint32_t group) const { return groups_[group].stopped; }
    std::string stop_message(std::uint32_t group) const;
    /// Why the task's wave is not open; empty where it is.
    std::string blocked_reason(std::uint32_t group, std::uint32_t task) const;

private:
    struct Waves {
        std::uint32_t wave = 0;   ///< the one that is open
        std::uint32_t ended = 0;  ///< tasks of it that have ended
        std::uint32_t failed = 0; ///< tasks of all waves
        std::optional<SteadyTime> opens;
        std::vector<std::uint32_t> postponed; ///< ready tasks of later waves
        bool stopped = false;
        bool canary_failed = false;
    };
    /// The task whose end counts for the group's task number `i`.
    std::uint32_t end_of(const Group& group, std::uint32_t i) const {
        return group.through ? table_.plan.task_on(*group.through, group.hosts[i]) : group.first + i;
    }
    bool must_stop(std::uint32_t group) const;
    void open_after_hold(std::uint32_t group, Moment now);

    TaskTable& table_;
    TimerQueue& timers_;
    std::vector<Waves> groups_;
    std::vector<std::vector<std::uint32_t>> counted_in_;
};

} // namespace orrery::jobs
