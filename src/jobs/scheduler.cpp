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

void Scheduler::rebuild_waves(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    const auto& of = plan_.groups[g];
    group.wave = 0;
    group.wave_over = 0;
    group.wave_opens.reset();
    const auto end = [&](std::uint32_t i) { return of.through ? plan_.task_on(*of.through, of.hosts[i]) : of.first + i; };
    std::uint32_t from = 0, begun = 0; // tasks before `begun` may have begun
    for (std::uint32_t i = 0; i < of.count; ++i)
        if (rows_[of.first + i].attempt > 0) begun = i + 1;
    for (; group.wave < of.waves.size(); ++group.wave) {
        group.wave_over = 0;
        for (std::uint32_t i = from; i < of.waves[group.wave]; ++i) {
            const auto& row = rows_[end(i)];
            if (!is_over(row.state) && !row.done_once) continue;
            ++group.wave_over;
            if (!row.done_once) ++group.failed;
        }
        const bool begun_later = begun > of.waves[group.wave];
        const bool over = group.wave_over == of.waves[group.wave] - from;
        if (over && !begun_later && group.wave + 1 < of.waves.size()) { // the hold begins again
            group.wave_opens = now.steady + spec(g).batch->hold;
            set_timer(*group.wave_opens, Alarm::wave, g);
        }
        if (!over || !begun_later) break;
        from = of.waves[group.wave];
    }
    group.wave = std::min<std::uint32_t>(group.wave, static_cast<std::uint32_t>(of.waves.size()) - 1);
    if (group.failed > spec(g).batch->max_fail.of(of.count)) group.stopped = true;
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

// --- Ends ---

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

// --- Waves ---

void Scheduler::count_in_wave(std::uint32_t batch, std::uint32_t task, Moment now) {
    auto& group = groups_[batch];
    const auto& of = plan_.groups[batch];
    const auto own = of.through ? plan_.task_on(batch, plan_.host_of(task)) : task;
    if (own == Plan::none || group.stopped) return;
    if (own - of.first >= of.waves[group.wave]) return; // counted when its wave comes
    ++group.wave_over;
    if (rows_[task].state != TaskState::succeeded) ++group.failed;
    if (group.failed > spec(batch).batch->max_fail.of(of.count)) return stop_batch(batch, task, now);
    const auto from = group.wave == 0 ? 0 : of.waves[group.wave - 1];
    if (group.wave_over < of.waves[group.wave] - from || group.wave + 1 >= of.waves.size()) return;
    group.wave_opens = now.steady + spec(batch).batch->hold;
    set_timer(*group.wave_opens, Alarm::wave, batch);
}

void Scheduler::open_next_wave(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    const auto& of = plan_.groups[g];
    group.wave_opens.reset();
    if (group.stopped || group.wave + 1 >= of.waves.size()) return;
    const auto from = of.waves[group.wave];
    ++group.wave;
    group.wave_over = 0;
    for (const auto task : std::exchange(group.held, {}))
        if (rows_[task].state == TaskState::ready) enqueue(task);
    // Those that were over before their turn came.
    for (auto i = from; i < of.waves[group.wave] && !group.stopped; ++i) {
        const auto end = of.through ? plan_.task_on(*of.through, of.hosts[i]) : of.first + i;
        if (is_over(rows_[end].state)) count_in_wave(g, end, now);
    }
}

void Scheduler::stop_batch(std::uint32_t g, std::uint32_t cause, Moment now) {
    auto& group = groups_[g];
    const auto& of = plan_.groups[g];
    group.stopped = true;
    group.held.clear();
    std::vector<std::uint32_t> stopped;
    for (std::uint32_t i = 0; i < of.count; ++i) {
        const auto task = of.first + i;
        if (is_over(rows_[task].state) || rows_[task].state == TaskState::running) continue;
        skip(task, cause,
             fmt::format("stopped: {} failed, and max_fail is {}{}", group.failed, spec(g).batch->max_fail.number,
                         spec(g).batch->max_fail.percent ? "%" : ""),
             now);
        stopped.push_back(task);
    }
    for (const auto task : stopped) skip_dependants(task, now);
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
