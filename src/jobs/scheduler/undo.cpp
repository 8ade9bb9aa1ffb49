#include "jobs/scheduler/scheduler.h"

#include <fmt/format.h>

/// Unwinding: a job that is cancelled while it runs, or undone when it has ended.
namespace orrery::jobs {

void Scheduler::clear_queues() {
    limits_.forget(this);
    dispatcher_.clear_queues();
    barriers_.clear_waiting();
    waves_.clear_postponed();
    rolling_.clear_waiting();
    reruns_.cancel_all();
    table_.job_state_stale = true;
}

Result<Unit> Scheduler::cancel(std::string message, bool undo, Moment now) {
    auto& job = table_.job;
    if (is_terminal(job.state))
        return Error{Code::conflict, fmt::format("job {} has ended: its state is {}", plan_.name, name_of(job.state)),
                     fmt::format("orrery job undo {} runs the `undo` of its tasks", plan_.name)};
    if (is_unwinding(job.state)) return Unit{};
    if (job.state == JobState::converged) {
        set_job(JobState::succeeded, std::move(message), now);
        return Unit{};
    }
    job.undo = undo;
    set_job(JobState::cancelling, std::move(message), now);
    for (std::uint32_t task = 0; task < table_.records.size(); ++task) {
        const auto state = table_.records[task].state;
        if (state == TaskState::running) {
            kills_.push_back({task, false});
        } else if (!is_terminal(state)) {
            table_.set_state(task, TaskState::cancelled, now);
            table_.touch(task);
        }
    }
    clear_queues();
    return Unit{};
}

Result<Unit> Scheduler::undo(std::string message, Moment now) {
    auto& job = table_.job;
    if (!is_terminal(job.state) && job.state != JobState::converged)
        return Error{Code::conflict,
                     fmt::format("job {} is {}: only a job that has ended can be undone", plan_.name, name_of(job.state)),
                     is_unwinding(job.state) ? fmt::format("orrery job wait {} returns when its tasks are undone", plan_.name)
                                             : fmt::format("orrery job cancel {} ends it and undoes what it did", plan_.name)};
    if (!undo_.has_candidates())
        return Error{Code::conflict, fmt::format("job {} has nothing to undo", plan_.name),
                     "only tasks that ran, have an `undo` and are not undone yet can be undone"};
    job.undo = true;
    set_job(JobState::undoing, std::move(message), now);
    for (std::uint32_t task = 0; task < table_.records.size(); ++task)
        if (table_.records[task].state == TaskState::undo_failed) {
            table_.set_state(task, TaskState::cancelled, now);
            table_.touch(task);
        }
    clear_queues();
    return Unit{};
}

void Scheduler::undo_next_level(Moment now) {
    const auto& job = table_.job;
    if (job.undo && undo_.queue_next_level(now)) return;
    if (auto failures = undo_.failure_message(); !failures.empty()) return set_job(JobState::undo_failed, std::move(failures), now);
    set_job(job.state == JobState::undoing ? JobState::undone : JobState::cancelled, job.message, now);
}

void Scheduler::dispatch_undo(Moment now) {
    while (!undo_.empty() && dispatcher_.can_start_more() && dispatcher_.has_free_slot()) {
        const auto next = undo_.pop();
        if (!next) return;
        const auto task = *next;
        auto& record = table_.records[task];
        const auto g = plan_.group_of(task);
        if (plan_.host_in(g, task) != Plan::none)
            if (const auto host = dispatcher_.busy_host(g, task); host != Plan::none) {
                dispatcher_.wait_for_host(host, task);
                continue;
            }
        record.archive_attempt(record.error == ErrorClass::none   ? Outcome::Ended::succeeded
                               : record.error == ErrorClass::lost ? Outcome::Ended::lost
                                                                  : Outcome::Ended::failed,
                               record.ended);
        const auto inputs = prepare_(task, Phase::undo);
        if (!inputs.ok()) {
            store_outcome(task, Outcome::failure(ErrorClass::refused, "undo: " + inputs.error().message), now);
            table_.set_state(task, TaskState::undo_failed, now);
            continue;
        }
        dispatcher_.start(g, task);
        ++record.attempt;
        record.started = now.wall;
        start_phase(task, Phase::undo, now);
    }
}

} // namespace orrery::jobs
