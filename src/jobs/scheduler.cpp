#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

using namespace std::chrono_literals;

Scheduler::Scheduler(const Plan& plan, Limits& limits, const Membership& membership, Prepare prepare)
    : plan_(plan),
      limits_(limits),
      membership_(membership),
      prepare_(std::move(prepare)),
      rows_(plan.tasks),
      groups_(plan.groups.size()),
      done_barriers_(plan.spec.done.size()),
      watched_by_(plan.groups.size()),
      rolling_end_(plan.groups.size(), false) {
    for (const auto& host : plan.hosts) host_numbers_.push_back(limits.host(host));
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
        groups_[g].barriers.resize(spec(g).wait.size());
        std::set<std::string> services;
        for (const auto& barrier : spec(g).wait) services.insert(barrier.service);
        for (const auto& rerun : spec(g).rerun_on) services.insert(rerun.of.service);
        for (const auto& service : services) by_service_[service].push_back(g);
        if (spec(g).batch) watched_by_[plan.groups[g].through.value_or(g)].push_back(g);
        if (spec(g).rolling) rolling_end_[plan.groups[g].rolling_through.value_or(g)] = true;
    }
    for (const auto& barrier : plan.spec.done) done_services_.insert(barrier.service);
    counts_.by_state[0] = plan.tasks;
}

Scheduler::~Scheduler() {
    limits_.forget(this);
    for (std::uint32_t task = 0; task < rows_.size(); ++task)
        if (rows_[task].state == TaskState::running) release_resources(plan_.group_of(task), task);
    limits_.release_places(plan_.name);
}

// --- Beginning ---

void Scheduler::begin(Moment now) {
    head_.began = now.wall;
    set_job(plan_.spec.approve ? JobState::planned : JobState::running, "", now);
    rebuild(now);
}

void Scheduler::resume(Moment now) {
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            auto& row = rows_[task];
            if (row.state != TaskState::running) continue;
            hold_resources(g, task);
            starts_.push_back({task, row.phase, true});
            if (head_.state == JobState::cancelling && row.phase != Phase::undo) kills_.push_back({task, false});
            // Its time ran on while nobody was there.
            const auto left = spec(g).timeout - std::chrono::milliseconds(std::max<std::int64_t>(0, now.wall - row.since));
            set_timer(now.steady + std::max<Duration>(left, 30s), Alarm::timeout, task,
                      row.attempt * 4u + static_cast<unsigned>(row.phase));
        }
    if (!is_over(head_.state)) take_places_again();
    rebuild(now);
}

/// Machines that were begun and are not through hold their places.
void Scheduler::take_places_again() {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        if (!spec(g).rolling) continue;
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            if (rows_[task].attempt == 0) continue;
            const auto host = plan_.host_in(g, task);
            const auto end = plan_.groups[g].rolling_through ? plan_.task_on(*plan_.groups[g].rolling_through, host) : task;
            if (!rows_[end].done_once) limits_.take_place(plan_.roles[host], plan_.hosts[host], plan_.name);
        }
    }
}

void Scheduler::rebuild(Moment now) {
    limits_.forget(this);
    const bool alive = head_.state == JobState::running || head_.state == JobState::converged;
    std::vector<Timer> kept; // of attempts that run on
    for (; !timers_.empty(); timers_.pop())
        if (timers_.top().what == Alarm::timeout) kept.push_back(timers_.top());
    for (const auto& timer : kept) timers_.push(timer);
    active_.clear();
    role_running_.clear();
    role_waiting_.clear();
    rolling_waiting_.clear();
    rolling_left_.clear();
    evidence_waiting_.clear();
    undo_ready_.clear();
    running_ = 0;
    counts_ = {};
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        auto& group = groups_[g];
        group.remaining = group.running = group.failed = 0;
        group.ready.clear();
        group.waiting.clear();
        group.held.clear();
        group.doomed = group.stopped = false;
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            auto& row = rows_[task];
            if (!is_over(row.state) && row.state != TaskState::running)
                row.state = head_.state == JobState::cancelling ? TaskState::cancelled : TaskState::pending;
            ++counts_.by_state[static_cast<std::size_t>(row.state)];
            if (row.state == TaskState::running) {
                ++running_;
                ++group.running;
                ++role_running_[role_of(g, task)];
            }
            if (!row.done_once) {
                ++group.remaining;
                if (rolling_end_[g]) ++rolling_left_[role_of(g, task)];
            }
        }
        for (std::size_t k = 0; k < group.barriers.size(); ++k) {
            group.barriers[k].alarm = {};
            evaluate(spec(g).wait[k], plan_.groups[g].wanted[k], group.barriers[k], now);
        }
        group.rerun_at.reset();
    }
    unsettled_ = true;
    if (!alive) return;
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        if (!plan_.groups[g].waves.empty()) rebuild_waves(g, now);
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto task = plan_.groups[g].first + i;
            auto& row = rows_[task];
            row.unmet = count_unmet(g, task);
            if (row.state == TaskState::pending) consider(task, now);
        }
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        if (groups_[g].stopped) stop_batch(g, Plan::none, now);
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
            const auto& row = rows_[plan_.groups[g].first + i];
            if (is_over(row.state) && row.state != TaskState::succeeded && !row.done_once)
                skip_dependants(plan_.groups[g].first + i, now);
        }
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        if (!spec(g).rerun_on.empty()) look_for_rerun(g, now);
}

std::uint32_t Scheduler::count_unmet(std::uint32_t group, std::uint32_t task) const {
    std::uint32_t unmet = 0;
    for (const auto& edge : plan_.groups[group].after) {
        if (edge.same_host)
            unmet += rows_[plan_.task_on(edge.group, plan_.host_in(group, task))].done_once ? 0 : 1;
        else
            unmet += groups_[edge.group].remaining > 0 ? 1 : 0;
    }
    return unmet;
}

// --- Rows ---

void Scheduler::set_state(std::uint32_t task, TaskState state, Moment now) {
    auto& row = rows_[task];
    --counts_.by_state[static_cast<std::size_t>(row.state)];
    ++counts_.by_state[static_cast<std::size_t>(state)];
    row.state = state;
    row.since = now.wall;
    if (state != TaskState::waiting) row.waits = Waits::nothing;
    if (is_over(state)) unsettled_ = true;
}

void Scheduler::touch(std::uint32_t task) {
    if (std::exchange(rows_[task].dirty, true)) return;
    dirty_.push_back(task);
}

std::vector<std::uint32_t> Scheduler::take_dirty() {
    for (const auto task : dirty_) rows_[task].dirty = false;
    return std::exchange(dirty_, {});
}

const std::string& Scheduler::role_of(std::uint32_t group, std::uint32_t task) const {
    static const std::string nothing;
    const auto host = plan_.host_in(group, task);
    return host == Plan::none ? nothing : plan_.roles[host];
}

/// What it needs is done: where does it go?
void Scheduler::consider(std::uint32_t task, Moment now) {
    auto& row = rows_[task];
    if (row.unmet > 0 || is_over(row.state) || row.state == TaskState::running) return;
    const auto g = plan_.group_of(task);
    auto& group = groups_[g];
    if (!row.lapsed && !barriers_open(g, now)) {
        const bool again = row.waits == Waits::barrier || row.waits == Waits::decision;
        const auto waits = row.waits == Waits::decision ? Waits::decision : Waits::barrier;
        const auto since = again ? row.since : now.wall;
        set_state(task, TaskState::waiting, now);
        row.waits = waits;
        row.since = since;
        group.waiting.push_back(task);
        for (const auto& barrier : spec(g).wait)
            if (barrier.deadline) {
                const auto left = *barrier.deadline - std::chrono::milliseconds(now.wall - since);
                set_timer(now.steady + std::max<Duration>(left, Duration::zero()), Alarm::deadline, task,
                          static_cast<std::uint32_t>(since));
                if (!again) touch(task);
            }
        return;
    }
    if (spec(g).approve && !row.approved) {
        set_state(task, TaskState::waiting, now);
        row.waits = Waits::approval;
        return;
    }
    make_ready(task, now);
}

void Scheduler::make_ready(std::uint32_t task, Moment now) {
    set_state(task, TaskState::ready, now);
    enqueue(task);
}

void Scheduler::enqueue(std::uint32_t task) {
    const auto g = plan_.group_of(task);
    auto& group = groups_[g];
    const auto& waves = plan_.groups[g].waves;
    if (!waves.empty() && !rows_[task].done_once && (group.stopped || task - plan_.groups[g].first >= waves[group.wave])) {
        group.held.push_back(task);
        return;
    }
    group.ready.push_back(task);
    enqueued_ = true;
    active_.insert({-static_cast<std::int64_t>(plan_.groups[g].depth), g});
}

void Scheduler::called(std::uint32_t task) {
    if (rows_[task].state != TaskState::ready) return;
    if (rows_[task].phase == Phase::undo && head_.state == JobState::cancelling)
        undo_ready_.push_back(task);
    else
        enqueue(task);
}

// --- Time ---

std::optional<SteadyTime> Scheduler::next_timer() const {
    if (timers_.empty()) return {};
    return timers_.top().at;
}

void Scheduler::advance(Moment now) {
    while (!timers_.empty() && timers_.top().at <= now.steady) {
        const auto timer = timers_.top();
        timers_.pop();
        on_alarm(timer, now);
    }
}

void Scheduler::on_alarm(const Timer& timer, Moment now) {
    switch (timer.what) {
    case Alarm::barrier: return look_at_barriers(timer.index, now);
    case Alarm::deadline: {
        const auto& row = rows_[timer.index];
        if (row.state == TaskState::waiting && row.waits == Waits::barrier && static_cast<std::uint32_t>(row.since) == timer.number)
            deadline_passed(timer.index, now);
        return;
    }
    case Alarm::backoff: {
        const auto& row = rows_[timer.index];
        if (row.state == TaskState::waiting && row.waits == Waits::backoff && row.attempt == timer.number)
            make_ready(timer.index, now);
        return;
    }
    case Alarm::wave:
        if (groups_[timer.index].wave_opens && *groups_[timer.index].wave_opens <= now.steady) open_next_wave(timer.index, now);
        return;
    case Alarm::rerun:
        if (groups_[timer.index].rerun_at && *groups_[timer.index].rerun_at <= now.steady) rerun_if_changed(timer.index, now);
        return;
    case Alarm::timeout: {
        const auto& row = rows_[timer.index];
        if (row.state == TaskState::running && row.attempt * 4u + static_cast<unsigned>(row.phase) == timer.number)
            kills_.push_back({timer.index, true});
        return;
    }
    case Alarm::done: unsettled_ = true; return;
    }
}

// --- Re-runs ---

void Scheduler::look_for_rerun(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    if (group.rerun_at) return;
    Duration debounce{}, interval{};
    for (const auto& rerun : spec(g).rerun_on) {
        debounce = std::max(debounce, rerun.debounce);
        interval = std::max(interval, rerun.min_interval);
    }
    const auto& of = plan_.groups[g];
    const bool any = std::any_of(rows_.begin() + of.first, rows_.begin() + of.first + of.count,
                                 [](const Row& row) { return row.done_once || row.state == TaskState::running; });
    if (!any) return; // it takes what there is when it starts
    group.rerun_at = now.steady + debounce;
    if (group.last_rerun != SteadyTime{}) group.rerun_at = std::max(*group.rerun_at, group.last_rerun + interval);
    set_timer(*group.rerun_at, Alarm::rerun, g);
    unsettled_ = true;
}

void Scheduler::rerun_if_changed(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    group.rerun_at.reset();
    unsettled_ = true;
    const auto& of = plan_.groups[g];
    bool busy = false;
    for (std::uint32_t i = 0; i < of.count; ++i) {
        const auto task = of.first + i;
        auto& row = rows_[task];
        if (row.state == TaskState::running) busy = true;
        if (!row.done_once || !is_over(row.state)) continue;
        const auto digest = prepare_(task, first_phase(g));
        if (!digest.ok() || *digest == row.inputs) continue; // an error is not a change
        row.tries = 0;
        group.last_rerun = now.steady;
        make_ready(task, now);
    }
    if (busy) look_for_rerun(g, now);
}

// --- The job as a whole ---

void Scheduler::set_job(JobState state, std::string words, Moment now) {
    head_.state = state;
    head_.words = std::move(words);
    head_.since = now.wall;
    head_.ended = is_over(state) || state == JobState::converged ? now.wall : 0;
    head_dirty_ = true;
    unsettled_ = true;
    if (is_over(state)) limits_.release_places(plan_.name);
}

bool Scheduler::done_holds(Moment now) {
    for (std::size_t k = 0; k < done_barriers_.size(); ++k) {
        auto& run = done_barriers_[k];
        evaluate(plan_.spec.done[k], plan_.done_wanted[k], run, now);
        if (run.open) continue;
        if (run.met_since) set_timer(*run.met_since + plan_.spec.done[k].hold, Alarm::done, 0);
        done_since_.reset();
        return false;
    }
    if (!done_since_) done_since_ = now.steady;
    if (now.steady - *done_since_ >= plan_.spec.done_hold) return true;
    set_timer(*done_since_ + plan_.spec.done_hold, Alarm::done, 0);
    return false;
}

void Scheduler::settle(Moment now) {
    if (!std::exchange(unsettled_, false)) return;
    if (head_.state == JobState::cancelling) {
        if (running_ == 0 && undo_ready_.empty() && counts_.of(TaskState::ready) == 0) begin_undo(now);
        return;
    }
    if (head_.state != JobState::running && head_.state != JobState::converged) return;
    const auto open = counts_.of(TaskState::pending) + counts_.of(TaskState::waiting) + counts_.of(TaskState::ready) +
                      counts_.of(TaskState::running);
    const auto bad = counts_.of(TaskState::failed) + counts_.of(TaskState::lost) + counts_.of(TaskState::skipped);
    if (open > 0) {
        if (head_.state == JobState::converged) set_job(JobState::running, "a service it follows has changed", now);
        return;
    }
    if (bad > 0) {
        set_job(JobState::failed,
                fmt::format("{} failed, {} lost, {} skipped", counts_.of(TaskState::failed), counts_.of(TaskState::lost),
                            counts_.of(TaskState::skipped)),
                now);
        return;
    }
    const bool follows =
        std::any_of(plan_.spec.tasks.begin(), plan_.spec.tasks.end(), [](const TaskSpec& task) { return !task.rerun_on.empty(); });
    const bool current =
        std::none_of(groups_.begin(), groups_.end(), [](const GroupRun& group) { return group.rerun_at.has_value(); });
    if (!current || !done_holds(now)) return;
    const auto state = follows ? JobState::converged : JobState::succeeded;
    if (head_.state != state) set_job(state, "", now);
    unsettled_ = false;
}

} // namespace orrery::jobs
