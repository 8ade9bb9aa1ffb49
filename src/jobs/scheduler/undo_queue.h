#pragma once

#include "jobs/scheduler/task_table.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace orrery::jobs {

/// The tasks whose `undo` runs, level by level from the end of the graph to its beginning. Private to the scheduler.
class UndoQueue {
public:
    explicit UndoQueue(TaskTable& table) : table_(table) {}

    /// Whether any task ran, has an `undo`, and is not undone.
    bool has_candidates() const;
    /// Queues the next level: the tasks that are farthest from the beginning. False where none is left.
    bool queue_next_level(Moment now);
    void push(std::uint32_t task) { ready_.push_back(task); }
    /// The next task that is ready; nothing where the queue is empty.
    std::optional<std::uint32_t> pop();
    bool empty() const { return ready_.empty(); }
    void clear() { ready_.clear(); }
    /// "the undo of 2 tasks failed: ..."; empty where none failed.
    std::string failure_message() const;

private:
    TaskTable& table_;
    std::deque<std::uint32_t> ready_;
};

} // namespace orrery::jobs
