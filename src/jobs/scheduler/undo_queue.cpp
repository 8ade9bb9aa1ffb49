#include "jobs/scheduler/undo_queue.h"

#include <fmt/format.h>

namespace orrery::jobs {

bool UndoQueue::has_candidates() const {
    for (std::uint32_t task = 0; task < table_.records.size(); ++task)
        if (const auto& record = table_.records[task];
            record.attempt > 0 && !record.undone && table_.spec(table_.plan.group_of(task)).undo.given())
            return true;
    return false;
}

bool UndoQueue::queue_next_level(Moment now) {
    const auto& groups = table_.plan.groups;
    std::uint32_t level = Plan::none;
    std::vector<std::uint32_t> tasks;
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
        if (!table_.spec(g).undo.given() || groups[g].depth > level) continue;
        for (std::uint32_t i = 0; i < groups[g].count; ++i) {
            const auto task = groups[g].first + i;
            const auto& record = table_.records[task];
            if (record.attempt == 0 || record.undone || record.state == TaskState::undo_failed) continue;
            if (groups[g].depth < level) {
                level = groups[g].depth;
                tasks.clear();
            }
            tasks.push_back(task);
        }
    }
    for (const auto task : tasks) {
        table_.records[task].phase = Phase::undo;
        table_.set_state(task, TaskState::ready, now);
        ready_.push_back(task);
    }
    return !tasks.empty();
}

std::optional<std::uint32_t> UndoQueue::pop() {
    while (!ready_.empty()) {
        const auto task = ready_.front();
        ready_.pop_front();
        if (table_.records[task].state == TaskState::ready) return task;
    }
    return {};
}

std::string UndoQueue::failure_message() const {
    constexpr std::size_t max_named = 3;
    const auto count = table_.counts.of(TaskState::undo_failed);
    if (count == 0) return {};
    std::string named;
    std::size_t shown = 0;
    for (std::uint32_t task = 0; task < table_.records.size() && shown < max_named; ++task) {
        if (table_.records[task].state != TaskState::undo_failed) continue;
        named += fmt::format("{}{} ({})", shown++ == 0 ? "" : ", ", table_.plan.task_name(task), table_.records[task].message());
    }
    return fmt::format("the undo of {} task{} failed: {}{}", count, count == 1 ? "" : "s", named, count > shown ? ", ..." : "");
}

} // namespace orrery::jobs
