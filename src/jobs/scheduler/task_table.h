#pragma once

#include "core/clock.h"
#include "jobs/plan.h"
#include "jobs/records.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// One moment on both clocks. The scheduler reads no clock itself.
struct Moment {
    SteadyTime steady{};
    std::int64_t wall = 0; ///< milliseconds
};

/// The state that all parts of one Scheduler share: the record of the job, the records of its tasks, and the counters that follow
/// from them. Every change of a task's state goes through `set_state`, so that the counters stay right. Private to the scheduler.
struct TaskTable {
    /// How many tasks are in each state.
    struct Counts {
        std::uint32_t by_state[task_states] = {};
        std::uint32_t of(TaskState state) const { return by_state[static_cast<std::size_t>(state)]; }
    };
    struct GroupProgress {
        std::uint32_t remaining = 0; ///< tasks that have not succeeded yet
        bool skipped = false;        ///< a task that the whole group depends on did not succeed
    };

    explicit TaskTable(const Plan& of) : plan(of), records(of.tasks), groups(of.groups.size()) { counts.by_state[0] = of.tasks; }

    const Plan& plan;
    std::vector<TaskRecord> records;
    std::vector<GroupProgress> groups;
    JobRecord job;
    Counts counts;
    bool job_dirty = false;       ///< the job's record differs from the journal
    bool job_state_stale = false; ///< the job's state must be derived again

    const TaskSpec& spec(std::uint32_t group) const { return plan.spec.tasks[group]; }
    Phase first_phase(std::uint32_t group) const { return spec(group).check.given() ? Phase::check : Phase::run; }
    /// The role of the task's node; empty where the task has no node of its own.
    const std::string& role_of(std::uint32_t group, std::uint32_t task) const {
        static const std::string no_role;
        const auto host = plan.host_in(group, task);
        return host == Plan::none ? no_role : plan.roles[host];
    }
    bool is_active() const { return job.state == JobState::running || job.state == JobState::converged; }

    void set_state(std::uint32_t task, TaskState state, Moment now) {
        auto& record = records[task];
        --counts.by_state[static_cast<std::size_t>(record.state)];
        ++counts.by_state[static_cast<std::size_t>(state)];
        record.state = state;
        record.since = now.wall;
        if (state != TaskState::waiting) record.waits = Waits::nothing;
        if (is_terminal(state)) job_state_stale = true;
    }
    void set_waiting(std::uint32_t task, Waits waits, Moment now) {
        set_state(task, TaskState::waiting, now);
        records[task].waits = waits;
    }
    /// Marks the record as to be journalled.
    void touch(std::uint32_t task) {
        if (!std::exchange(records[task].dirty, true)) dirty_.push_back(task);
    }
    /// The records that changed since the last call in a way that must be journalled.
    std::vector<std::uint32_t> take_dirty() {
        for (const auto task : dirty_) records[task].dirty = false;
        return std::exchange(dirty_, {});
    }

private:
    std::vector<std::uint32_t> dirty_;
};

} // namespace orrery::jobs
