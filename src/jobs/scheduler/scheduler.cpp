#include "jobs/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

using namespace std::chrono_literals;

Scheduler::Scheduler(const Plan& plan, Limits& limits, const Membership& membership, Prepare prepare)
    : plan_(plan),
      limits_(limits),
      table_(plan),
      membership_(membership, plan_, table_.records),
      prepare_(std::move(prepare)),
      barriers_(table_, timers_, membership_),
      waves_(table_, timers_),
      rolling_(table_, limits_),
      reruns_(table_, timers_),
      undo_(table_),
      dispatcher_(*this, table_, limits_, waves_, rolling_, undo_) {}

Scheduler::~Scheduler() {
    limits_.forget(this);
    for (std::uint32_t task = 0; task < table_.records.size(); ++task)
        if (table_.records[task].state == TaskState::running) dispatcher_.release(plan_.group_of(task), task);
    if (!keeps_rolling_slots(table_.job.state)) limits_.release_rolling_slots(plan_.name);
}

// --- Start and restart ---

void Scheduler::begin(Moment now) {
    table_.job.began = now.wall;
    set_job(plan_.spec.approve ? JobState::planned : JobState::running, "", now);
    rebuild(now);
}

void Scheduler::resume(Moment now, std::optional<std::int64_t> alive) {
    if (alive)
        for (std::uint32_t task = 0; task < table_.records.size(); ++task) {
            auto& record = table_.records[task];
            if (record.state != TaskState::waiting || record.waits != Waits::barrier) continue;
            record.since += std::max<std::int64_t>(0, now.wall - std::max(*alive, record.since));
            table_.touch(task);
        }
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            const auto& record = table_.records[task];
            if (record.state != TaskState::running) continue;
            dispatcher_.hold(g, task);
            starts_.push_back({task, record.phase, true});
            if (is_unwinding(table_.job.state) && record.phase != Phase::undo) kills_.push_back({task, false});
            // The attempt ran on while no server led.
            const auto left =
                table_.spec(g).timeout - std::chrono::milliseconds(std::max<std::int64_t>(0, now.wall - record.since));
            set_timeout(task, now.steady + std::max<Duration>(left, 30s));
        }
    if (!is_terminal(table_.job.state) || keeps_rolling_slots(table_.job.state)) rolling_.restore_rolling_slots();
    rebuild(now);
}

/// Derives queues, counters and waits from the records.
void Scheduler::rebuild(Moment now) {
    limits_.forget(this);
    timers_.keep_timeouts();
    dispatcher_.reset();
    rolling_.reset();
    waves_.reset();
    undo_.clear();
    reruns_.cancel_all();
    count_tasks();
    barriers_.reset(now);
    table_.job_state_stale = true;
    if (table_.is_active()) restart_tasks(now);
}

void Scheduler::count_tasks() {
    table_.counts = {};
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g) {
        auto& group = table_.groups[g];
        group = {};
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            auto& record = table_.records[task];
            if (!is_terminal(record.state) && record.state != TaskState::running)
                record.state = is_unwinding(table_.job.state) ? TaskState::cancelled : TaskState::pending;
            ++table_.counts.by_state[static_cast<std::size_t>(record.state)];
            if (record.state == TaskState::running) dispatcher_.count_running(g, task);
            if (record.done_once) continue;
            ++group.remaining;
            rolling_.count_unfinished(g, task);
        }
    }
}

void Scheduler::restart_tasks(Moment now) {
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        if (waves_.has_waves(g)) waves_.restore(g, now);
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            auto& record = table_.records[task];
            record.unmet = count_unmet(g, task);
            if (record.state == TaskState::pending) consider(task, now);
        }
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        if (waves_.is_stopped(g)) stop_batch(g, Plan::none, now);
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto& record = table_.records[plan_.groups[g].first + i];
            if (is_terminal(record.state) && record.state != TaskState::succeeded && !record.done_once)
                skip_dependants(plan_.groups[g].first + i, now);
        }
    for (std::uint32_t g = 0; g < plan_.groups.size(); ++g)
        if (!table_.spec(g).rerun_on.empty()) reruns_.schedule(g, now);
}

std::uint32_t Scheduler::count_unmet(std::uint32_t group, std::uint32_t task) const {
    std::uint32_t unmet = 0;
    for (const auto& edge : plan_.groups[group].after) {
        if (edge.same_host)
            unmet += table_.records[plan_.task_on(edge.group, plan_.host_in(group, task))].done_once ? 0 : 1;
        else
            unmet += table_.groups[edge.group].remaining > 0 ? 1 : 0;
    }
    return unmet;
}

// --- A task until it is ready ---

/// The tasks before it have succeeded: it waits for a barrier or an approval, or is ready.
void Scheduler::consider(std::uint32_t task, Moment now) {
    const auto& record = table_.records[task];
    if (record.unmet > 0 || is_terminal(record.state) || record.state == TaskState::running) return;
    const auto g = plan_.group_of(task);
    if (!record.lapsed && !barriers_.is_open(g, now)) return wait_for_barrier(g, task, now);
    if (is_rerun_unneeded(task)) return table_.set_state(task, TaskState::succeeded, now);
    if (table_.spec(g).approve && !record.approved) return table_.set_waiting(task, Waits::approval, now);
    make_ready(task, now);
}

void Scheduler::wait_for_barrier(std::uint32_t g, std::uint32_t task, Moment now) {
    auto& record = table_.records[task];
    const bool waited = record.waits == Waits::barrier || record.waits == Waits::decision;
    const auto since = waited ? record.since : now.wall;
    table_.set_waiting(task, record.waits == Waits::decision ? Waits::decision : Waits::barrier, now);
    record.since = since;
    barriers_.add_waiting(g, task);
    if (record.done_once) return; // a re-run has no deadline
    for (const auto& barrier : table_.spec(g).wait) {
        if (!barrier.deadline) continue;
        const auto left = *barrier.deadline - std::chrono::milliseconds(now.wall - since);
        timers_.set(now.steady + std::max<Duration>(left, Duration::zero()), TimerType::deadline, task,
                    static_cast<std::uint32_t>(since));
        if (!waited) table_.touch(task);
    }
}

void Scheduler::make_ready(std::uint32_t task, Moment now) {
    table_.set_state(task, TaskState::ready, now);
    dispatcher_.enqueue(task);
}

// --- Time ---

void Scheduler::advance(Moment now) {
    while (const auto timer = timers_.pop_due(now.steady)) on_timer(*timer, now);
}

void Scheduler::on_timer(const Timer& timer, Moment now) {
    const auto is_waiting = [&](Waits waits) {
        const auto& record = table_.records[timer.index];
        return record.state == TaskState::waiting && record.waits == waits;
    };
    switch (timer.type) {
    case TimerType::barrier: return evaluate_barriers(timer.index, now);
    case TimerType::deadline:
        if (is_waiting(Waits::barrier) && static_cast<std::uint32_t>(table_.records[timer.index].since) == timer.number)
            on_deadline(timer.index, now);
        return;
    case TimerType::backoff:
        if (is_waiting(Waits::backoff) && table_.records[timer.index].attempt == timer.number) make_ready(timer.index, now);
        return;
    case TimerType::wave:
        if (waves_.opens_by(timer.index, now.steady)) open_next_wave(timer.index, now);
        return;
    case TimerType::rerun:
        if (reruns_.take_due(timer.index, now)) rerun_if_changed(timer.index, now);
        return;
    case TimerType::timeout: {
        const auto& record = table_.records[timer.index];
        if (record.state == TaskState::running && timeout_number(record) == timer.number) kills_.push_back({timer.index, true});
        return;
    }
    case TimerType::done: table_.job_state_stale = true; return;
    }
}

void Scheduler::on_deadline(std::uint32_t task, Moment now) {
    const auto expired = barriers_.expired_deadline(task);
    if (!expired) return;
    auto& record = table_.records[task];
    record.more().message = expired->message;
    table_.touch(task);
    switch (expired->action) {
    case OnTimeout::fail:
        record.error = ErrorClass::timeout;
        record.ended = now.wall;
        fail_task(task, TaskState::failed, now);
        return;
    case OnTimeout::ask: record.waits = Waits::decision; return;
    case OnTimeout::go_on:
        record.lapsed = true;
        consider(task, now);
        return;
    }
}

// --- Services ---

void Scheduler::evaluate_barriers(std::uint32_t g, Moment now) {
    for (const auto task : barriers_.evaluate(g, now)) {
        const auto& record = table_.records[task];
        if (record.state == TaskState::waiting && (record.waits == Waits::barrier || record.waits == Waits::decision))
            consider(task, now);
    }
}

void Scheduler::membership_changed(std::string_view service, Moment now) {
    if (!table_.is_active()) return;
    for (const auto g : barriers_.groups_using(service)) {
        evaluate_barriers(g, now);
        if (!table_.spec(g).rerun_on.empty()) reruns_.schedule(g, now);
    }
    for (const auto task : barriers_.take_waiting_for_evidence())
        if (table_.records[task].state == TaskState::waiting && table_.records[task].waits == Waits::evidence) consider(task, now);
    if (barriers_.is_used_by_done(service)) table_.job_state_stale = true;
}

void Scheduler::rerun_if_changed(std::uint32_t g, Moment now) {
    const auto& of = plan_.groups[g];
    bool busy = false;
    for (std::uint32_t i = 0; i < of.count; ++i) {
        const auto task = of.first + i;
        auto& record = table_.records[task];
        if (record.state == TaskState::running) busy = true;
        if (!record.done_once || !is_terminal(record.state)) continue;
        const auto digest = prepare_(task, table_.first_phase(g));
        if (!digest.ok() || *digest == record.inputs) continue; // an error is not a change
        record.tries = 0;
        if (!record.lapsed && !barriers_.is_open(g, now)) { // the task's barrier holds for each of its runs
            table_.set_waiting(task, Waits::barrier, now);
            barriers_.add_waiting(g, task);
            continue;
        }
        reruns_.note_run(g, now);
        make_ready(task, now);
    }
    if (busy) reruns_.schedule(g, now);
}

/// The barrier of a re-run has opened, and its inputs are those of the last run again, which succeeded.
bool Scheduler::is_rerun_unneeded(std::uint32_t task) {
    const auto& record = table_.records[task];
    if (!record.done_once || record.state != TaskState::waiting || record.waits != Waits::barrier ||
        record.error != ErrorClass::none)
        return false;
    const auto digest = prepare_(task, table_.first_phase(plan_.group_of(task)));
    return digest.ok() && *digest == record.inputs;
}

// --- Starting tasks ---

bool Scheduler::dispatch(Moment now, std::size_t max_starts) {
    dispatcher_.set_max_starts(max_starts);
    update_job_state(now);
    if (is_unwinding(table_.job.state)) {
        dispatch_undo(now);
        update_job_state(now);
        return dispatcher_.can_start_more();
    }
    if (table_.job.paused || !table_.is_active()) return true;
    for (const auto task : rolling_.take_admitted()) dispatcher_.wake(task);
    dispatcher_.for_each_ready([&](std::uint32_t task) { return try_start(task, now); });
    update_job_state(now);
    return dispatcher_.can_start_more();
}

Dispatcher::Admission Scheduler::try_start(std::uint32_t task, Moment now) {
    using Admission = Dispatcher::Admission;
    if (const auto admission = dispatcher_.admit(task); admission != Admission::granted) return admission;
    const auto g = plan_.group_of(task);
    const auto inputs = prepare_(task, table_.first_phase(g));
    auto& record = table_.records[task];
    if (!inputs.ok()) {
        if (inputs.error().code == Code::unavailable) {
            table_.set_waiting(task, Waits::evidence, now);
            record.more().message = inputs.error().message;
            barriers_.add_waiting_for_evidence(task);
        } else {
            store_outcome(task, Outcome::failure(ErrorClass::refused, inputs.error().message), now);
            fail_task(task, TaskState::failed, now);
        }
        dispatcher_.pass_on(g, task);
        return Admission::blocked;
    }
    if (table_.spec(g).rolling) rolling_.start_rolling(g, task);
    dispatcher_.start(g, task);
    ++record.attempt;
    ++record.tries;
    record.inputs = *inputs;
    record.started = now.wall;
    start_phase(task, table_.first_phase(g), now);
    return Admission::granted;
}

void Scheduler::start_phase(std::uint32_t task, Phase phase, Moment now) {
    auto& record = table_.records[task];
    const auto& of = table_.spec(plan_.group_of(task));
    record.phase = phase;
    dispatcher_.count_start();
    record.uncleaned = record.uncleaned || of.run.given(); // a task that only waits leaves nothing behind
    table_.set_state(task, TaskState::running, now);
    table_.touch(task);
    starts_.push_back({task, phase, false});
    set_timeout(task, now.steady + of.timeout);
}

void Scheduler::set_timeout(std::uint32_t task, SteadyTime at) {
    timers_.set(at, TimerType::timeout, task, timeout_number(table_.records[task]));
}

// --- The job as a whole ---

void Scheduler::set_job(JobState state, std::string message, Moment now) {
    auto& job = table_.job;
    job.state = state;
    job.message = std::move(message);
    job.since = now.wall;
    if (is_terminal(state) || is_unwinding(state)) job.paused = false; // a retry starts tasks again
    job.ended = is_terminal(state) || state == JobState::converged ? now.wall : 0;
    table_.job_dirty = true;
    table_.job_state_stale = true;
    if (is_terminal(state) && !keeps_rolling_slots(state)) limits_.release_rolling_slots(plan_.name);
}

/// Skips tasks that wait for a rolling slot which this job's own failures hold. True where any was skipped.
bool Scheduler::stop_blocked_roles(Moment now) {
    std::vector<std::uint32_t> stopped;
    for (auto& blocked : rolling_.take_blocked()) {
        skip(blocked.task, blocked.cause, std::move(blocked.message), now);
        stopped.push_back(blocked.task);
    }
    end_skipped(stopped, now);
    return !stopped.empty();
}

void Scheduler::update_job_state(Moment now) {
    if (!std::exchange(table_.job_state_stale, false)) return;
    const auto& counts = table_.counts;
    if (is_unwinding(table_.job.state)) {
        if (dispatcher_.running() == 0 && undo_.empty() && counts.of(TaskState::ready) == 0) undo_next_level(now);
        return;
    }
    if (!table_.is_active()) return;
    while (stop_blocked_roles(now)) {
    } // a skipped task may have been all that another role waits for
    const auto open =
        counts.of(TaskState::pending) + counts.of(TaskState::waiting) + counts.of(TaskState::ready) + counts.of(TaskState::running);
    const auto not_run = counts.of(TaskState::cancelled) + counts.of(TaskState::undone) + counts.of(TaskState::undo_failed);
    const auto unsuccessful = counts.of(TaskState::failed) + counts.of(TaskState::lost) + counts.of(TaskState::skipped) + not_run;
    if (open > 0) {
        if (table_.job.state == JobState::converged) set_job(JobState::running, "a service it follows has changed", now);
        return;
    }
    if (unsuccessful > 0)
        return set_job(JobState::failed,
                       fmt::format("{} failed, {} lost, {} skipped{}", counts.of(TaskState::failed), counts.of(TaskState::lost),
                                   counts.of(TaskState::skipped), not_run > 0 ? fmt::format(", {} not run again", not_run) : ""),
                       now);
    if (reruns_.any_pending() || !barriers_.done_holds(now)) return;
    const bool follows =
        std::any_of(plan_.spec.tasks.begin(), plan_.spec.tasks.end(), [](const TaskSpec& task) { return !task.rerun_on.empty(); });
    const auto state = follows ? JobState::converged : JobState::succeeded;
    if (table_.job.state != state) set_job(state, "", now);
    table_.job_state_stale = false;
}

} // namespace orrery::jobs
