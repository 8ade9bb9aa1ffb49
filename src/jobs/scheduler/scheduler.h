#pragma once

#include "jobs/limits.h"
#include "jobs/membership.h"
#include "jobs/plan.h"
#include "jobs/planned_membership.h"
#include "jobs/records.h"
#include "jobs/scheduler/barrier_tracker.h"
#include "jobs/scheduler/dispatcher.h"
#include "jobs/scheduler/rerun_tracker.h"
#include "jobs/scheduler/rolling_tracker.h"
#include "jobs/scheduler/task_table.h"
#include "jobs/scheduler/timer_queue.h"
#include "jobs/scheduler/undo_queue.h"
#include "jobs/scheduler/wave_tracker.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// Decides for one job which task starts when. It moves tasks from state to state; its parts keep one mechanism each: barriers,
/// waves, rolling slots, re-runs, undo, timers and the queues of ready tasks. No I/O, no clock, no threads: the engine feeds it
/// real events, `simulate` predicted ones.
///
/// A cycle: report events (`finished`, `membership_changed`, commands), `advance` to now, `dispatch`; then journal the records of
/// `take_dirty`, and when they are durable execute `take_starts` and `take_kills`.
class Scheduler {
public:
    /// Called before a task starts: returns the digest of its inputs. `unavailable`: the task waits until services change; any
    /// other error fails the task.
    using Prepare = std::function<Result<std::uint64_t>(std::uint32_t task, Phase phase)>;

    Scheduler(const Plan& plan, Limits& limits, const Membership& membership, Prepare prepare);
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    const Plan& plan() const { return plan_; }
    const std::vector<TaskRecord>& records() const { return table_.records; }
    const TaskRecord& record(std::uint32_t task) const { return table_.records[task]; }
    const JobRecord& job() const { return table_.job; }

    /// --- Start and restart ---

    /// For the journal: it sets records, and then `resume` derives all else from them. The engine adds to a record what only it
    /// knows (inputs, the server).
    TaskRecord& mutable_record(std::uint32_t task) { return table_.records[task]; }
    JobRecord& mutable_job() { return table_.job; }
    /// A new job: it waits for approval, or runs.
    void begin(Moment now);
    /// After a replay. Tasks that were running are in `take_starts` with `reattach`. `alive`: when a leader was last at work, in
    /// milliseconds of the wall clock; the time since then does not count against the deadlines of barriers.
    void resume(Moment now, std::optional<std::int64_t> alive = {});

    /// --- Events ---

    void finished(std::uint32_t task, Outcome outcome, Moment now);
    /// An attempt that was re-attached to had never been started.
    void not_started(std::uint32_t task, Moment now);
    void membership_changed(std::string_view service, Moment now); ///< empty: all services

    /// --- Commands of operators; `conflict` where the state of the job does not allow one ---

    Result<Unit> approve(std::optional<std::uint32_t> task, Moment now);
    Result<Unit> pause(std::string message, Moment now);
    Result<Unit> unpause(Moment now);
    Result<Unit> cancel(std::string message, bool undo, Moment now);
    /// Of a job that has ended (or converged): runs `undo` of all tasks that were started and are not undone, from the end of the
    /// graph to its beginning. Repeated after a failed undo: only of what is not undone.
    Result<Unit> undo(std::string message, Moment now);
    /// Runs failed and lost tasks again, and those that were skipped because of them. One of them, or all.
    Result<Unit> retry(std::optional<std::uint32_t> task, Moment now);

    /// --- Decisions ---

    /// Handles the timers that are due.
    void advance(Moment now);
    /// Starts what may start, at most `max_starts` tasks: their records become running, and `take_starts` has them. False where
    /// that limit was reached and more tasks may be ready.
    bool dispatch(Moment now, std::size_t max_starts = std::numeric_limits<std::size_t>::max());
    std::optional<SteadyTime> next_timer() const { return timers_.next(); }

    struct Start {
        std::uint32_t task = 0;
        Phase phase = Phase::run;
        bool reattach = false;
    };
    std::vector<Start> take_starts() { return std::exchange(starts_, {}); }
    struct Kill {
        std::uint32_t task = 0;
        bool timeout = false; ///< false: cancelled
    };
    std::vector<Kill> take_kills() { return std::exchange(kills_, {}); }
    /// Tasks that provide services and have succeeded for the first time.
    std::vector<std::uint32_t> take_provided() { return std::exchange(provided_, {}); }
    /// Whether the deadline of a barrier may be running.
    bool has_deadlines() const { return timers_.has_deadlines(); }

    /// Records to journal.
    std::vector<std::uint32_t> take_dirty() { return table_.take_dirty(); }
    bool take_job_dirty() { return std::exchange(table_.job_dirty, false); }

    /// --- Views ---

    using Counts = TaskTable::Counts;
    const Counts& counts() const { return table_.counts; }
    /// Whether the group's inputs are about to be compared because a service changed.
    bool rerun_pending(std::uint32_t group) const { return reruns_.is_pending(group); }
    /// Why a ready task has not started: "all 50 slots of the job are taken", "mysql@db-1 runs on db-1".
    std::string blocked_reason(std::uint32_t task) const { return dispatcher_.blocked_reason(task); }
    using BarrierView = BarrierTracker::View;
    BarrierView barrier(std::uint32_t group, std::size_t index) const { return barriers_.view(group, index); }
    BarrierView done_barrier(std::size_t index) const { return barriers_.done_view(index); }

    /// From Limits: something that this task waited for is free.
    void wake(std::uint32_t task) { dispatcher_.wake(task); }

private:
    // scheduler.cpp: the life of a task until it starts, and the state of the job
    void rebuild(Moment now);
    void count_tasks();
    void restart_tasks(Moment now);
    std::uint32_t count_unmet(std::uint32_t group, std::uint32_t task) const;
    void consider(std::uint32_t task, Moment now);
    void wait_for_barrier(std::uint32_t group, std::uint32_t task, Moment now);
    void make_ready(std::uint32_t task, Moment now);
    void on_timer(const Timer& timer, Moment now);
    void on_deadline(std::uint32_t task, Moment now);
    void evaluate_barriers(std::uint32_t group, Moment now);
    void rerun_if_changed(std::uint32_t group, Moment now);
    bool is_rerun_unneeded(std::uint32_t task);
    Dispatcher::Admission try_start(std::uint32_t task, Moment now);
    void start_phase(std::uint32_t task, Phase phase, Moment now);
    void set_timeout(std::uint32_t task, SteadyTime at);
    static std::uint32_t timeout_number(const TaskRecord& record) {
        return record.attempt * 4u + static_cast<unsigned>(record.phase);
    }
    void update_job_state(Moment now);
    void set_job(JobState state, std::string message, Moment now);
    bool stop_blocked_roles(Moment now);

    // completion.cpp: the end of attempts and what follows from it
    void store_outcome(std::uint32_t task, const Outcome& outcome, Moment now);
    void finish_unwinding_task(std::uint32_t task, const Outcome& outcome, Moment now);
    void succeed(std::uint32_t task, Moment now);
    void release_dependants(std::uint32_t group, std::uint32_t host, Moment now);
    void retry_or_fail(std::uint32_t task, const Outcome& outcome, Moment now);
    void fail_task(std::uint32_t task, TaskState state, Moment now);
    void skip(std::uint32_t task, std::uint32_t cause, std::string message, Moment now);
    void skip_dependants(std::uint32_t task, Moment now);
    void on_first_end(std::uint32_t task, Moment now);
    void open_next_wave(std::uint32_t group, Moment now);
    void stop_batch(std::uint32_t group, std::uint32_t cause, Moment now);
    void end_skipped(const std::vector<std::uint32_t>& tasks, Moment now);

    // undo.cpp: jobs that are cancelled or undone
    void clear_queues();
    void undo_next_level(Moment now);
    void dispatch_undo(Moment now);

    const Plan& plan_;
    Limits& limits_;
    TaskTable table_;
    PlannedMembership membership_;
    Prepare prepare_;
    TimerQueue timers_;
    BarrierTracker barriers_;
    WaveTracker waves_;
    RollingTracker rolling_;
    RerunTracker reruns_;
    UndoQueue undo_;
    Dispatcher dispatcher_;
    std::vector<Start> starts_;
    std::vector<Kill> kills_;
    std::vector<std::uint32_t> provided_;
};

} // namespace orrery::jobs
