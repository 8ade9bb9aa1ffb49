#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// What people tell the scheduler to do.
namespace orrery::jobs {

Result<Unit> Scheduler::approve(std::optional<std::uint32_t> task, Moment now) {
    if (!task) {
        if (head_.state != JobState::planned)
            return Error{Code::conflict, fmt::format("job {} is {}, and waits for no approval", plan_.name, name_of(head_.state)),
                         "name the task that waits for one"};
        head_.approved = true;
        set_job(JobState::running, "", now);
        rebuild(now);
        return Unit{};
    }
    auto& row = rows_[*task];
    if (row.state != TaskState::waiting || (row.waits != Waits::approval && row.waits != Waits::decision))
        return Error{Code::conflict,
                     fmt::format("{} is {}, and waits for no approval", plan_.task_name(*task), name_of(row.state))};
    if (row.waits == Waits::decision)
        row.lapsed = true;
    else
        row.approved = true;
    touch(*task);
    consider(*task, now);
    return Unit{};
}

Result<Unit> Scheduler::pause(std::string words, Moment now) {
    if (is_over(head_.state)) return Error{Code::conflict, fmt::format("job {} is over: it {}", plan_.name, name_of(head_.state))};
    if (head_.paused) return Unit{};
    head_.paused = true;
    head_.words = std::move(words);
    head_dirty_ = true;
    return Unit{};
}

Result<Unit> Scheduler::unpause(Moment now) {
    if (!head_.paused) return Error{Code::conflict, fmt::format("job {} is not paused", plan_.name)};
    head_.paused = false;
    head_.words.clear();
    head_dirty_ = true;
    return Unit{};
}

Result<Unit> Scheduler::cancel(std::string words, bool undo, Moment now) {
    if (is_over(head_.state)) return Error{Code::conflict, fmt::format("job {} is over: it {}", plan_.name, name_of(head_.state))};
    if (head_.state == JobState::cancelling) return Unit{};
    if (head_.state == JobState::converged) {
        set_job(JobState::succeeded, words, now);
        return Unit{};
    }
    head_.undo = undo;
    set_job(JobState::cancelling, std::move(words), now);
    limits_.forget(this);
    for (std::uint32_t task = 0; task < rows_.size(); ++task) {
        if (rows_[task].state == TaskState::running) {
            kills_.push_back({task, false});
        } else if (!is_over(rows_[task].state)) {
            set_state(task, TaskState::cancelled, now);
            touch(task);
        }
    }
    for (auto& group : groups_) {
        group.ready.clear();
        group.waiting.clear();
        group.held.clear();
        group.rerun_at.reset();
    }
    active_.clear();
    rolling_waiting_.clear();
    role_waiting_.clear();
    evidence_waiting_.clear();
    unsettled_ = true;
    return Unit{};
}

Result<Unit> Scheduler::retry(std::optional<std::uint32_t> task, Moment now) {
    if (head_.state == JobState::cancelling || head_.state == JobState::planned)
        return Error{Code::conflict, fmt::format("job {} is {}", plan_.name, name_of(head_.state))};
    const auto again = [&](const Row& row) {
        return row.state == TaskState::failed || row.state == TaskState::lost || (row.state == TaskState::cancelled && !row.undone);
    };
    if (task && !again(rows_[*task]))
        return Error{Code::conflict,
                     fmt::format("{} is {}: there is nothing to retry", plan_.task_name(*task), name_of(rows_[*task].state))};
    if (!task && std::none_of(rows_.begin(), rows_.end(), again))
        return Error{Code::conflict, fmt::format("no task of job {} has failed", plan_.name)};
    for (std::uint32_t i = 0; i < rows_.size(); ++i) {
        auto& row = rows_[i];
        const bool chosen = task ? i == *task : again(row);
        if (!chosen && row.state != TaskState::skipped) continue;
        row.state = TaskState::pending;
        row.waits = Waits::nothing;
        row.phase = Phase::run;
        row.error = ErrorClass::none;
        row.tries = 0;
        row.lapsed = false;
        row.blocked_by = Plan::none;
        row.since = now.wall;
        touch(i);
    }
    set_job(JobState::running, "", now);
    rebuild(now);
    return Unit{};
}

} // namespace orrery::jobs
