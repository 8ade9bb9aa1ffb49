#pragma once

#include "core/clock.h"
#include "jobs/limits.h"
#include "jobs/membership.h"
#include "jobs/plan.h"
#include "jobs/rows.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// One moment, on both clocks. The scheduler reads no clock itself.
struct Moment {
    SteadyTime steady{};
    std::int64_t wall = 0; ///< milliseconds
};

/// Decides, for one job, what may begin when. A state machine over rows: told what happened, it says what is to be done. No I/O, no
/// clock, no threads: the engine feeds it the real world, `simulate` an imagined one.
///
/// A round is: tell it what happened (`finished`, `membership_changed`, orders), `advance` to now, `dispatch`; then record what is
/// `dirty`, and when that is durable do what `take_starts` and `take_kills` say.
class Scheduler {
public:
    /// What a task is given when it starts. Asked before anything is recorded.
    /// `prepare` gives the digest of its inputs: `unavailable` lets it wait, any other error fails it.
    using Prepare = std::function<Result<std::uint64_t>(std::uint32_t task, Phase phase)>;

    Scheduler(const Plan& plan, Limits& limits, const Membership& membership, Prepare prepare);
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    const Plan& plan() const { return plan_; }
    const std::vector<Row>& rows() const { return rows_; }
    const Row& row(std::uint32_t task) const { return rows_[task]; }
    const JobHead& head() const { return head_; }

    /// --- Beginning, or beginning again ---

    /// For the replay: rows and head are set, then `resume` works out all that follows from them.
    Row& replayed(std::uint32_t task) { return rows_[task]; }
    JobHead& replayed_head() { return head_; }
    /// A new job: waits for approval, or runs.
    void begin(Moment now);
    /// After a replay. Tasks that were running come out of `take_starts` with `reattach`.
    void resume(Moment now);

    /// --- What happened ---

    void finished(std::uint32_t task, Outcome outcome, Moment now);
    /// A re-attached attempt turned out not to have begun.
    void never_began(std::uint32_t task, Moment now);
    void membership_changed(std::string_view service, Moment now); ///< "": all

    /// --- Orders of people; `conflict` in words where they make no sense now ---

    Result<Unit> approve(std::optional<std::uint32_t> task, Moment now);
    Result<Unit> pause(std::string words, Moment now);
    Result<Unit> unpause(Moment now);
    Result<Unit> cancel(std::string words, bool undo, Moment now);
    /// Failed and lost tasks, and those that were skipped because of them, begin again. One of them, or all.
    Result<Unit> retry(std::optional<std::uint32_t> task, Moment now);

    /// --- What follows ---

    /// Does what is due by now.
    void advance(Moment now);
    /// Begins what may begin: rows become running, and their starts are noted.
    void dispatch(Moment now);
    std::optional<SteadyTime> next_timer() const;

    struct Start {
        std::uint32_t task = 0;
        Phase phase = Phase::run;
        bool reattach = false;
    };
    std::vector<Start> take_starts() { return std::exchange(starts_, {}); }
    struct Kill {
        std::uint32_t task = 0;
        bool timeout = false; ///< else: cancelled
    };
    std::vector<Kill> take_kills() { return std::exchange(kills_, {}); }

    /// Rows that changed since the last time in a way that must be remembered.
    std::vector<std::uint32_t> take_dirty();
    bool take_head_dirty() { return std::exchange(head_dirty_, false); }

    /// --- For people ---

    struct Counts {
        std::uint32_t by_state[9] = {};
        std::uint32_t of(TaskState state) const { return by_state[static_cast<std::size_t>(state)]; }
    };
    const Counts& counts() const { return counts_; }
    /// Is a re-run due because a subscribed service changed?
    bool rerun_pending(std::uint32_t group) const { return groups_[group].rerun_at.has_value(); }
    /// Why a ready task has not begun: "slots of the job (50) are taken", "host db-1: mysql@db-1 runs there".
    std::string why_not_begun(std::uint32_t task) const;
    /// The barriers of a group: how many there are of how many, and since when it is met.
    struct BarrierView {
        std::optional<std::int64_t> seen; ///< nothing: no evidence
        bool met = false;
    };
    BarrierView barrier(std::uint32_t group, std::size_t index) const;
    BarrierView done_barrier(std::size_t index) const;
    /// From Limits: something this task waited for is free.
    void called(std::uint32_t task);

private:
    struct BarrierRun {
        std::optional<SteadyTime> met_since;
        SteadyTime alarm{}; ///< set for this moment
        bool open = false;
    };
    struct GroupRun {
        std::uint32_t remaining = 0; ///< tasks that have not succeeded yet
        std::uint32_t running = 0;
        std::uint32_t failed = 0; ///< of a batch, counting what `through` says
        std::deque<std::uint32_t> ready;
        std::vector<std::uint32_t> waiting; ///< at barriers; some may have left
        std::vector<BarrierRun> barriers;
        std::uint32_t wave = 0;      ///< of a batch: which may begin
        std::uint32_t wave_over = 0; ///< tasks of it that are over
        std::optional<SteadyTime> wave_opens;
        std::vector<std::uint32_t> held; ///< ready, and their wave has not come
        bool stopped = false;            ///< too many failed
        bool doomed = false;             ///< something all of it needs has failed
        std::optional<SteadyTime> rerun_at;
        SteadyTime last_rerun{};
    };
    enum class Alarm : std::uint8_t { barrier, deadline, backoff, wave, rerun, timeout, done };
    struct Timer {
        SteadyTime at;
        Alarm what;
        std::uint32_t index;  ///< task or group
        std::uint32_t number; ///< of the attempt, where it matters
        bool operator>(const Timer& other) const { return at > other.at; }
    };
    enum class Started { yes, parked, group_full, full };

    const TaskSpec& spec(std::uint32_t group) const { return plan_.spec.tasks[group]; }
    void set_state(std::uint32_t task, TaskState state, Moment now);
    void touch(std::uint32_t task);
    void set_timer(SteadyTime at, Alarm what, std::uint32_t index, std::uint32_t number = 0) {
        timers_.push({at, what, index, number});
    }
    void rebuild(Moment now);
    std::uint32_t count_unmet(std::uint32_t group, std::uint32_t task) const;
    void consider(std::uint32_t task, Moment now);
    void make_ready(std::uint32_t task, Moment now);
    void enqueue(std::uint32_t task);

    bool evaluate(const BarrierSpec& barrier, std::int64_t wanted, BarrierRun& run, Moment now);
    bool barriers_open(std::uint32_t group, Moment now);
    void look_at_barriers(std::uint32_t group, Moment now);

    bool hand_out(Moment now);
    Started try_start(std::uint32_t task, Moment now);
    bool may_roll(std::uint32_t group, std::uint32_t task, bool take);
    void hold_resources(std::uint32_t group, std::uint32_t task);
    void release_resources(std::uint32_t group, std::uint32_t task);
    void begin_phase(std::uint32_t task, Phase phase, Moment now);

    void succeed(std::uint32_t task, Moment now);
    void end_badly(std::uint32_t task, TaskState state, Moment now);
    void try_again_or_fail(std::uint32_t task, const Outcome& outcome, Moment now);
    void remember(std::uint32_t task, const Outcome& outcome, Moment now);
    void skip_dependants(std::uint32_t task, Moment now);
    void after_end(std::uint32_t task, Moment now);
    void count_in_wave(std::uint32_t batch, std::uint32_t task, Moment now);
    void rebuild_waves(std::uint32_t group, Moment now);
    void take_places_again();
    void skip(std::uint32_t task, std::uint32_t cause, std::string words, Moment now);
    void pass_role_on(const std::string& role);
    void on_alarm(const Timer& timer, Moment now);
    void deadline_passed(std::uint32_t task, Moment now);
    void rerun_if_changed(std::uint32_t group, Moment now);
    Phase first_phase(std::uint32_t group) const { return spec(group).check.given() ? Phase::check : Phase::run; }
    const std::string& role_of(std::uint32_t group, std::uint32_t task) const;
    std::string missing_text(const BarrierSpec& barrier, std::int64_t wanted) const;
    void open_next_wave(std::uint32_t group, Moment now);
    void stop_batch(std::uint32_t group, std::uint32_t cause, Moment now);
    void look_for_rerun(std::uint32_t group, Moment now);

    void settle(Moment now);
    void set_job(JobState state, std::string words, Moment now);
    bool done_holds(Moment now);
    void begin_undo(Moment now);
    void dispatch_undo(Moment now);

    const Plan& plan_;
    Limits& limits_;
    const Membership& membership_;
    Prepare prepare_;
    std::vector<Row> rows_;
    std::vector<std::uint32_t> host_numbers_; ///< of the plan's hosts, in Limits
    JobHead head_;
    bool head_dirty_ = false;
    std::vector<GroupRun> groups_;
    std::vector<BarrierRun> done_barriers_;
    std::optional<SteadyTime> done_since_;
    /// Groups with something ready, those with the longest chain behind them first.
    std::set<std::pair<std::int64_t, std::uint32_t>> active_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::map<std::string, std::vector<std::uint32_t>, std::less<>> by_service_; ///< groups whose barriers or re-runs look at it
    std::set<std::string, std::less<>> done_services_;
    std::map<std::string, int> role_running_;
    std::map<std::string, std::vector<std::uint32_t>> role_waiting_; ///< for this job's limit of the role
    std::map<std::string, std::deque<std::uint32_t>> rolling_waiting_;
    std::uint64_t rolling_seen_ = 0;
    std::vector<std::uint32_t> evidence_waiting_;
    int running_ = 0;
    std::deque<std::uint32_t> undo_ready_;
    std::map<std::string, int> rolling_left_;            ///< machines of a role that are not through, of those that roll
    std::vector<std::vector<std::uint32_t>> watched_by_; ///< groups whose batch looks at this group
    std::vector<bool> rolling_end_;                      ///< with it a machine is through
    bool unsettled_ = false;
    bool enqueued_ = false; ///< while slots were handed out: look once more
    Counts counts_;
    std::vector<std::uint32_t> dirty_;
    std::vector<Start> starts_;
    std::vector<Kill> kills_;
};

} // namespace orrery::jobs
