#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// How attempts ended, and what follows for their tasks and for those that need them.
namespace orrery::jobs {

void Scheduler::remember(std::uint32_t task, const Outcome& outcome, Moment now) {
    auto& row = rows_[task];
    row.change = outcome.change;
    row.error = outcome.error;
    row.exit_code = outcome.exit_code;
    row.ended = now.wall;
    if (!outcome.words.empty() || row.detail) row.more().words = outcome.words;
    if (!outcome.values.empty()) {
        row.more().values = outcome.values;
        row.more().values_new = true;
    }
    touch(task);
}

void Scheduler::finished(std::uint32_t task, Outcome outcome, Moment now) {
    auto& row = rows_[task];
    if (row.state != TaskState::running) return;
    const auto g = plan_.group_of(task);
    const bool good = outcome.ended == Outcome::Ended::succeeded;
    if (row.phase == Phase::undo) {
        remember(task, outcome, now);
        row.undone = good;
        release_resources(g, task);
        set_state(task, TaskState::cancelled, now);
        return;
    }
    if (head_.state == JobState::cancelling) {
        remember(task, outcome, now);
        release_resources(g, task);
        row.done_once = row.done_once || (good && row.phase != Phase::check);
        set_state(task, good && row.phase != Phase::check ? TaskState::succeeded : TaskState::cancelled, now);
        return;
    }
    switch (row.phase) {
    case Phase::check:
        if (good) { // it is as it should be already
            outcome.change = Outcome::Change::unchanged;
            remember(task, outcome, now);
            return succeed(task, now);
        }
        if (outcome.error == ErrorClass::failed) return begin_phase(task, Phase::run, now);
        return try_again_or_fail(task, outcome, now);
    case Phase::run:
        if (!good) return try_again_or_fail(task, outcome, now);
        remember(task, outcome, now);
        if (spec(g).verify.given()) return begin_phase(task, Phase::verify, now);
        return succeed(task, now);
    case Phase::verify:
        if (!good) {
            outcome.words = fmt::format("verify: {}", outcome.words.empty() ? "not as it should be" : outcome.words);
            return try_again_or_fail(task, outcome, now);
        }
        row.ended = now.wall;
        return succeed(task, now);
    case Phase::undo: return;
    }
}

void Scheduler::never_began(std::uint32_t task, Moment now) {
    auto& row = rows_[task];
    if (row.state != TaskState::running) return;
    const auto g = plan_.group_of(task);
    release_resources(g, task);
    if (head_.state == JobState::cancelling) {
        if (row.phase == Phase::undo) row.phase = Phase::run; // undone anew
        set_state(task, TaskState::cancelled, now);
        touch(task);
        return;
    }
    if (row.tries > 0) --row.tries;
    make_ready(task, now);
}

void Scheduler::succeed(std::uint32_t task, Moment now) {
    auto& row = rows_[task];
    const auto g = plan_.group_of(task);
    release_resources(g, task);
    row.tries = 0;
    row.error = ErrorClass::none;
    set_state(task, TaskState::succeeded, now);
    touch(task);
    if (std::exchange(row.done_once, true)) return;
    auto& group = groups_[g];
    --group.remaining;
    const auto host = plan_.host_in(g, task);
    if (rolling_end_[g]) {
        --rolling_left_[role_of(g, task)];
        limits_.release_place(role_of(g, task), plan_.hosts[host]);
        limits_.note_rolling_change();
    }
    for (const auto& edge : plan_.groups[g].before) {
        if (edge.same_host) {
            const auto other = plan_.task_on(edge.group, host);
            if (other == Plan::none) continue;
            if (rows_[other].unmet > 0 && --rows_[other].unmet == 0) consider(other, now);
        } else if (group.remaining == 0) {
            const auto& of = plan_.groups[edge.group];
            for (std::uint32_t i = 0; i < of.count; ++i)
                if (rows_[of.first + i].unmet > 0 && --rows_[of.first + i].unmet == 0) consider(of.first + i, now);
        }
    }
    after_end(task, now);
}

void Scheduler::try_again_or_fail(std::uint32_t task, const Outcome& outcome, Moment now) {
    auto& row = rows_[task];
    const auto g = plan_.group_of(task);
    const auto& retries = spec(g).retries;
    remember(task, outcome, now);
    const bool listed = std::find(retries.on.begin(), retries.on.end(), outcome.error) != retries.on.end();
    // What may have had its effect is repeated only where that does no harm.
    const bool harmless = outcome.error == ErrorClass::connect || outcome.error == ErrorClass::failed ||
                          outcome.error == ErrorClass::no_space || spec(g).idempotent || row.phase == Phase::check;
    if (row.tries <= retries.times && listed && harmless) {
        release_resources(g, task);
        auto& past = row.more().past;
        past.push_back(
            {static_cast<int>(row.attempt), outcome.ended, outcome.error, outcome.exit_code, row.started, now.wall, outcome.words});
        if (past.size() > kept_past) past.erase(past.begin());
        Duration wait = retries.first;
        for (int i = 1; i < row.tries && wait < retries.longest; ++i) wait *= 2;
        wait = std::min(wait, retries.longest);
        // Spread over a quarter, the same each time for the same attempt: many that failed together do not come back together.
        wait += wait / 4 * ((task * 2654435761u + row.attempt * 40503u) >> 8 & 0xff) / 256;
        set_state(task, TaskState::waiting, now);
        row.waits = Waits::backoff;
        set_timer(now.steady + wait, Alarm::backoff, task, row.attempt);
        return;
    }
    end_badly(task, outcome.ended == Outcome::Ended::lost ? TaskState::lost : TaskState::failed, now);
}

void Scheduler::end_badly(std::uint32_t task, TaskState state, Moment now) {
    if (rows_[task].state == TaskState::running) release_resources(plan_.group_of(task), task);
    set_state(task, state, now);
    touch(task);
    if (rows_[task].done_once) return; // those after it have what they needed
    skip_dependants(task, now);
    after_end(task, now);
}

void Scheduler::skip(std::uint32_t task, std::uint32_t cause, std::string words, Moment now) {
    auto& row = rows_[task];
    row.blocked_by = cause;
    row.more().words = std::move(words);
    set_state(task, TaskState::skipped, now);
    touch(task);
}

void Scheduler::skip_dependants(std::uint32_t task, Moment now) {
    std::vector<std::uint32_t> work{task}, skipped;
    while (!work.empty()) {
        const auto cause = work.back();
        work.pop_back();
        const auto g = plan_.group_of(cause);
        const auto skip_one = [&](std::uint32_t other) {
            const auto state = rows_[other].state;
            if (is_over(state) || state == TaskState::running) return;
            skip(other, cause, fmt::format("{} {}", plan_.task_name(cause), name_of(rows_[cause].state)), now);
            work.push_back(other);
            skipped.push_back(other);
        };
        for (const auto& edge : plan_.groups[g].before) {
            if (edge.same_host) {
                const auto other = plan_.task_on(edge.group, plan_.host_in(g, cause));
                if (other != Plan::none) skip_one(other);
            } else if (!std::exchange(groups_[edge.group].doomed, true)) {
                const auto& of = plan_.groups[edge.group];
                for (std::uint32_t i = 0; i < of.count; ++i) skip_one(of.first + i);
            }
        }
    }
    for (const auto other : skipped) after_end(other, now);
}

/// The first end of a task: waves count it.
void Scheduler::after_end(std::uint32_t task, Moment now) {
    const auto g = plan_.group_of(task);
    for (const auto batch : watched_by_[g]) count_in_wave(batch, task, now);
    if (rolling_end_[g]) limits_.note_rolling_change();
}

} // namespace orrery::jobs
