#include "jobs/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// The end of attempts: what follows for their tasks, for the tasks that depend on them, and for the waves that they belong to.
namespace orrery::jobs {

void Scheduler::store_outcome(std::uint32_t task, const Outcome& outcome, Moment now) {
    auto& record = table_.records[task];
    record.change = outcome.change;
    record.error = outcome.error;
    record.exit_code = outcome.exit_code;
    record.ended = now.wall;
    if (!outcome.message.empty() || record.detail) record.more().message = outcome.message;
    if (!outcome.values.empty()) {
        record.more().values = outcome.values;
        record.more().values_new = true;
    }
    table_.touch(task);
}

void Scheduler::finished(std::uint32_t task, Outcome outcome, Moment now) {
    auto& record = table_.records[task];
    if (record.state != TaskState::running) return;
    if (record.phase == Phase::undo || is_unwinding(table_.job.state)) return finish_unwinding_task(task, outcome, now);
    const bool succeeded = outcome.ended == Outcome::Ended::succeeded;
    switch (record.phase) {
    case Phase::check:
        if (succeeded) { // there is nothing to do
            outcome.change = Outcome::Change::unchanged;
            store_outcome(task, outcome, now);
            return succeed(task, now);
        }
        if (outcome.error == ErrorClass::failed) return start_phase(task, Phase::run, now);
        return retry_or_fail(task, outcome, now);
    case Phase::run:
        if (!succeeded) return retry_or_fail(task, outcome, now);
        store_outcome(task, outcome, now);
        if (table_.spec(plan_.group_of(task)).verify.given()) return start_phase(task, Phase::verify, now);
        return succeed(task, now);
    case Phase::verify:
        if (!succeeded) {
            outcome.message = fmt::format("verify: {}", outcome.message.empty() ? "the result is wrong" : outcome.message);
            return retry_or_fail(task, outcome, now);
        }
        record.ended = now.wall;
        return succeed(task, now);
    case Phase::undo: return;
    }
}

/// The end of an `undo`, or of another attempt while the job is unwound.
void Scheduler::finish_unwinding_task(std::uint32_t task, const Outcome& outcome, Moment now) {
    auto& record = table_.records[task];
    const bool succeeded = outcome.ended == Outcome::Ended::succeeded;
    if (record.phase == Phase::undo) {
        auto undone = outcome;
        if (!succeeded) undone.message = fmt::format("undo: {}", outcome.message.empty() ? "it failed" : outcome.message);
        store_outcome(task, undone, now);
        record.undone = succeeded;
        dispatcher_.release(plan_.group_of(task), task);
        return table_.set_state(task, succeeded ? TaskState::undone : TaskState::undo_failed, now);
    }
    store_outcome(task, outcome, now);
    dispatcher_.release(plan_.group_of(task), task);
    const bool done = succeeded && record.phase != Phase::check;
    record.done_once = record.done_once || done;
    table_.set_state(task, done ? TaskState::succeeded : TaskState::cancelled, now);
}

void Scheduler::not_started(std::uint32_t task, Moment now) {
    auto& record = table_.records[task];
    if (record.state != TaskState::running) return;
    dispatcher_.release(plan_.group_of(task), task);
    if (is_unwinding(table_.job.state)) {
        table_.set_state(task, TaskState::cancelled, now);
        table_.touch(task);
        return;
    }
    if (record.tries > 0) --record.tries;
    make_ready(task, now);
}

void Scheduler::succeed(std::uint32_t task, Moment now) {
    auto& record = table_.records[task];
    const auto g = plan_.group_of(task);
    dispatcher_.release(g, task);
    record.tries = 0;
    record.error = ErrorClass::none;
    table_.set_state(task, TaskState::succeeded, now);
    table_.touch(task);
    if (std::exchange(record.done_once, true)) return;
    --table_.groups[g].remaining;
    rolling_.on_success(g, task);
    release_dependants(g, plan_.host_in(g, task), now);
    on_first_end(task, now);
    const auto& provides = table_.spec(g).provides;
    if (provides.empty()) return;
    provided_.push_back(task);
    for (const auto& service : provides) membership_changed(service.service, now);
}

/// A task of the group succeeded on `host`: tasks that depended on it alone go on.
void Scheduler::release_dependants(std::uint32_t g, std::uint32_t host, Moment now) {
    const auto release = [&](std::uint32_t task) {
        auto& unmet = table_.records[task].unmet;
        if (unmet == 0) return;
        --unmet;
        if (unmet == 0) consider(task, now);
    };
    for (const auto& edge : plan_.groups[g].before) {
        if (edge.same_host) {
            if (const auto task = plan_.task_on(edge.group, host); task != Plan::none) release(task);
        } else if (table_.groups[g].remaining == 0) {
            const auto& of = plan_.groups[edge.group];
            for (std::uint32_t i = 0; i < of.count; ++i) release(of.first + i);
        }
    }
}

void Scheduler::retry_or_fail(std::uint32_t task, const Outcome& outcome, Moment now) {
    auto& record = table_.records[task];
    const auto g = plan_.group_of(task);
    const auto& spec = table_.spec(g);
    const auto& retries = spec.retries;
    store_outcome(task, outcome, now);
    const bool listed = std::find(retries.on.begin(), retries.on.end(), outcome.error) != retries.on.end();
    // An attempt that may have had an effect is repeated only where a second effect does no harm.
    const bool harmless = outcome.error == ErrorClass::connect || outcome.error == ErrorClass::failed ||
                          outcome.error == ErrorClass::no_space || spec.idempotent || record.phase == Phase::check;
    if (record.tries > retries.times || !listed || !harmless)
        return fail_task(task, outcome.ended == Outcome::Ended::lost ? TaskState::lost : TaskState::failed, now);
    dispatcher_.release(g, task);
    record.archive_attempt(outcome.ended, now.wall);
    Duration wait = retries.delay;
    for (int i = 1; i < record.tries && wait < retries.max_delay; ++i) wait *= 2;
    wait = std::min(wait, retries.max_delay);
    // Jitter of up to a quarter, deterministic for an attempt: tasks that failed together do not come back together.
    wait += wait / 4 * ((task * 2654435761u + record.attempt * 40503u) >> 8 & 0xff) / 256;
    table_.set_waiting(task, Waits::backoff, now);
    timers_.set(now.steady + wait, TimerType::backoff, task, record.attempt);
}

void Scheduler::fail_task(std::uint32_t task, TaskState state, Moment now) {
    if (table_.records[task].state == TaskState::running) dispatcher_.release(plan_.group_of(task), task);
    table_.set_state(task, state, now);
    table_.touch(task);
    if (table_.records[task].done_once) return; // it ran again: the tasks after it have what they needed
    skip_dependants(task, now);
    on_first_end(task, now);
}

void Scheduler::skip(std::uint32_t task, std::uint32_t cause, std::string message, Moment now) {
    auto& record = table_.records[task];
    record.blocked_by = cause;
    record.more().message = std::move(message);
    table_.set_state(task, TaskState::skipped, now);
    table_.touch(task);
}

void Scheduler::skip_dependants(std::uint32_t task, Moment now) {
    std::vector<std::uint32_t> work{task}, skipped;
    while (!work.empty()) {
        const auto cause = work.back();
        work.pop_back();
        const auto g = plan_.group_of(cause);
        const auto skip_one = [&](std::uint32_t other) {
            const auto state = table_.records[other].state;
            if (is_terminal(state) || state == TaskState::running) return;
            skip(other, cause, fmt::format("{} {}", plan_.task_name(cause), name_of(table_.records[cause].state)), now);
            work.push_back(other);
            skipped.push_back(other);
        };
        for (const auto& edge : plan_.groups[g].before) {
            if (edge.same_host) {
                const auto other = plan_.task_on(edge.group, plan_.host_in(g, cause));
                if (other != Plan::none) skip_one(other);
            } else if (!std::exchange(table_.groups[edge.group].skipped, true)) {
                const auto& of = plan_.groups[edge.group];
                for (std::uint32_t i = 0; i < of.count; ++i) skip_one(of.first + i);
            }
        }
    }
    for (const auto other : skipped) on_first_end(other, now);
}

/// The first end of a task, whatever its state: waves and rolling slots count it.
void Scheduler::on_first_end(std::uint32_t task, Moment now) {
    const auto g = plan_.group_of(task);
    for (const auto batch : waves_.counted_in(g))
        if (waves_.count_end(batch, task, now)) stop_batch(batch, task, now);
    rolling_.on_end(g, task);
}

void Scheduler::open_next_wave(std::uint32_t g, Moment now) {
    const auto postponed = waves_.open_next(g);
    if (!postponed) return;
    for (const auto task : *postponed)
        if (table_.records[task].state == TaskState::ready) dispatcher_.enqueue(task);
    for (const auto task : waves_.ended_early(g)) {
        if (waves_.is_stopped(g)) break;
        if (waves_.count_end(g, task, now)) stop_batch(g, task, now);
    }
}

void Scheduler::stop_batch(std::uint32_t g, std::uint32_t cause, Moment now) {
    const auto& of = plan_.groups[g];
    waves_.stop(g);
    std::vector<std::uint32_t> stopped;
    for (std::uint32_t i = 0; i < of.count; ++i) {
        const auto task = of.first + i;
        const auto state = table_.records[task].state;
        if (is_terminal(state) || state == TaskState::running) continue;
        skip(task, cause, waves_.stop_message(g), now);
        stopped.push_back(task);
    }
    end_skipped(stopped, now);
}

void Scheduler::end_skipped(const std::vector<std::uint32_t>& tasks, Moment now) {
    for (const auto task : tasks) {
        skip_dependants(task, now);
        on_first_end(task, now);
    }
}

} // namespace orrery::jobs
