#pragma once

#include "jobs/limits.h"
#include "jobs/scheduler/task_table.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::jobs {

/// The rolling tasks of one job: which nodes hold a rolling slot of their role, which tasks wait for one, and which roles can never
/// get one because nodes whose change failed keep theirs. The slots themselves are in `Limits`, for all jobs. Private to the
/// scheduler.
class RollingTracker {
public:
    /// A task that will never get a slot.
    struct Blocked {
        std::uint32_t task = 0;
        std::uint32_t cause = 0; ///< the task that failed
        std::string message;
    };

    RollingTracker(TaskTable& table, Limits& limits);

    /// Resets the counts and the waiting tasks.
    void reset();
    void clear_waiting() { waiting_.clear(); }
    /// Counts a task that has not succeeded yet, after `reset`.
    void count_unfinished(std::uint32_t group, std::uint32_t task);
    /// After a replay: nodes whose change was started and is not complete hold their slots again.
    void restore_rolling_slots();

    /// Whether the node of the task may be changed: it holds a slot, or its role has a free one, is not paused, and comes after no
    /// role with nodes left.
    bool can_start_rolling(std::uint32_t group, std::uint32_t task) const;
    /// The change of the task's node starts: takes a slot, unless the node holds one.
    void start_rolling(std::uint32_t group, std::uint32_t task);
    void add_waiting(const std::string& role, std::uint32_t task) { waiting_[role].push_back(task); }
    /// Where slots may have become free since the last call: the tasks to try again, as many of each role as there is room for.
    std::vector<std::uint32_t> take_admitted();
    bool has_failures() const { return !failed_.empty(); }

    /// The task succeeded for the first time: where it completes the change of its node, the node's slot is free.
    void on_success(std::uint32_t group, std::uint32_t task);
    /// The first end of a task, whatever its state.
    void on_end(std::uint32_t group, std::uint32_t task);
    /// Removes and returns the tasks that wait for a slot which failures of this job hold.
    std::vector<Blocked> take_blocked();

    /// Why the task has no slot; empty where it has one or needs none.
    std::string blocked_reason(std::uint32_t group, std::uint32_t task) const;

private:
    void take_rolling_slot(std::uint32_t host);
    /// The role that must be complete before the rule's role and is not; null: none.
    const std::string* unfinished_role_before(const RollingRule& rule, const std::string& role) const;
    /// Why no node of the role can start any more, and the task that caused it; nothing: one may.
    std::optional<std::pair<std::uint32_t, std::string>> blocked_role(const std::string& role) const;

    TaskTable& table_;
    Limits& limits_;
    std::vector<bool> completes_node_;                         ///< by group: its task completes the change of a node
    std::map<std::string, int> left_;                          ///< by role: nodes whose change is not complete
    std::map<std::string, std::vector<std::uint32_t>> failed_; ///< by role: tasks that would have completed a node
    std::map<std::string, std::deque<std::uint32_t>> waiting_; ///< by role
    std::uint64_t seen_changes_ = 0;
};

} // namespace orrery::jobs
