#include "jobs/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// Commands of operators: approve, pause, unpause and retry. undo.cpp has cancel and undo.
namespace orrery::jobs {

Result<Unit> Scheduler::approve(std::optional<std::uint32_t> task, Moment now) {
    if (!task) {
        if (table_.job.state != JobState::planned)
            return Error{Code::conflict,
                         fmt::format("job {} is {}, and waits for no approval", plan_.name, name_of(table_.job.state)),
                         "name the task that waits for one"};
        table_.job.approved = true;
        set_job(JobState::running, "", now);
        rebuild(now);
        return Unit{};
    }
    auto& record = table_.records[*task];
    if (record.state != TaskState::waiting || (record.waits != Waits::approval && record.waits != Waits::decision))
        return Error{Code::conflict,
                     fmt::format("{} is {}, and waits for no approval", plan_.task_name(*task), name_of(record.state))};
    if (record.waits == Waits::decision)
        record.lapsed = true;
    else
        record.approved = true;
    table_.touch(*task);
    consider(*task, now);
    return Unit{};
}

Result<Unit> Scheduler::pause(std::string message, Moment) {
    auto& job = table_.job;
    if (is_terminal(job.state))
        return Error{Code::conflict, fmt::format("job {} has ended: its state is {}", plan_.name, name_of(job.state))};
    if (job.paused) return Unit{};
    job.paused = true;
    job.message = std::move(message);
    table_.job_dirty = true;
    return Unit{};
}

Result<Unit> Scheduler::unpause(Moment) {
    auto& job = table_.job;
    if (!job.paused) return Error{Code::conflict, fmt::format("job {} is not paused", plan_.name)};
    job.paused = false;
    job.message.clear();
    table_.job_dirty = true;
    return Unit{};
}

Result<Unit> Scheduler::retry(std::optional<std::uint32_t> task, Moment now) {
    auto& records = table_.records;
    if (is_unwinding(table_.job.state) || table_.job.state == JobState::planned)
        return Error{Code::conflict, fmt::format("job {} is {}", plan_.name, name_of(table_.job.state))};
    const auto can_retry = [](const TaskRecord& record) {
        return record.state == TaskState::failed || record.state == TaskState::lost || record.state == TaskState::cancelled ||
               record.state == TaskState::undone || record.state == TaskState::undo_failed;
    };
    if (task && !can_retry(records[*task]))
        return Error{Code::conflict,
                     fmt::format("{} is {}: there is nothing to retry", plan_.task_name(*task), name_of(records[*task].state))};
    if (!task && std::none_of(records.begin(), records.end(), can_retry))
        return Error{Code::conflict, fmt::format("no task of job {} has failed", plan_.name)};
    for (std::uint32_t i = 0; i < records.size(); ++i) {
        auto& record = records[i];
        const bool chosen = task ? i == *task : can_retry(record);
        if (!chosen && record.state != TaskState::skipped) continue;
        if (record.state == TaskState::undone) record.done_once = false; // its effect is undone: tasks after it wait for it again
        record.undone = false;
        record.state = TaskState::pending;
        record.waits = Waits::nothing;
        record.phase = Phase::run;
        record.error = ErrorClass::none;
        record.tries = 0;
        record.lapsed = false;
        record.blocked_by = Plan::none;
        record.since = now.wall;
        table_.touch(i);
    }
    set_job(JobState::running, "", now);
    rebuild(now);
    return Unit{};
}

} // namespace orrery::jobs
