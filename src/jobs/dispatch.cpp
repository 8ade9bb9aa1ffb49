#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// The part of the scheduler that hands out slots, machines, locks and places.
namespace orrery::jobs {

void Scheduler::dispatch(Moment now) {
    settle(now);
    if (head_.state == JobState::cancelling) {
        dispatch_undo(now);
        settle(now);
        return;
    }
    if (head_.paused || (head_.state != JobState::running && head_.state != JobState::converged)) return;
    if (rolling_seen_ != limits_.rolling_changes()) {
        rolling_seen_ = limits_.rolling_changes();
        for (auto& [role, waiting] : rolling_waiting_) {
            const auto* rule = limits_.rule_for(role);
            const auto taken = limits_.places_taken(role);
            auto room = rule == nullptr ? waiting.size() : static_cast<std::size_t>(rule->limit) > taken ? rule->limit - taken : 0;
            for (; room > 0 && !waiting.empty(); --room) {
                const auto task = waiting.front();
                waiting.pop_front();
                called(task);
            }
        }
    }
    do enqueued_ = false;
    while (hand_out(now) && enqueued_);
    settle(now);
}

/// One walk over what is ready. False when all slots are taken.
bool Scheduler::hand_out(Moment now) {
    for (auto at = active_.begin(); at != active_.end();) {
        auto& ready = groups_[at->second].ready;
        bool group_full = false;
        while (!ready.empty() && !group_full) {
            const auto task = ready.front();
            if (rows_[task].state != TaskState::ready) {
                ready.pop_front();
                continue;
            }
            const auto started = try_start(task, now);
            if (started == Started::full) return false;
            group_full = started == Started::group_full;
            if (!group_full) ready.pop_front();
        }
        at = ready.empty() ? active_.erase(at) : std::next(at);
    }
    return true;
}

/// A machine may be changed: its role has a place for it, nobody stopped the role, and the roles before it are through.
bool Scheduler::may_roll(std::uint32_t group, std::uint32_t task, bool take) {
    const auto host = plan_.host_in(group, task);
    const auto& role = plan_.roles[host];
    const auto& name = plan_.hosts[host];
    const auto* rule = limits_.rule_for(role);
    if (rule == nullptr || limits_.holds_place(role, name)) {
        if (take && rule == nullptr) limits_.take_place(role, name, plan_.name);
        return true;
    }
    if (rule->paused || limits_.places_taken(role) >= static_cast<std::size_t>(rule->limit)) return false;
    for (const auto& before : rule->after)
        if (const auto left = rolling_left_.find(before); before != role && left != rolling_left_.end() && left->second > 0)
            return false;
    if (take) limits_.take_place(role, name, plan_.name);
    return true;
}

void Scheduler::pass_role_on(const std::string& role) {
    const auto waiting = role_waiting_.find(role);
    if (waiting == role_waiting_.end() || waiting->second.empty()) return;
    const auto task = waiting->second.front();
    waiting->second.erase(waiting->second.begin());
    called(task);
}

Scheduler::Started Scheduler::try_start(std::uint32_t task, Moment now) {
    const auto g = plan_.group_of(task);
    const auto& of = spec(g);
    if (!limits_.slot_free() || running_ >= plan_.spec.slots) return Started::full;
    if (of.slots > 0 && groups_[g].running >= static_cast<std::uint32_t>(of.slots)) return Started::group_full;
    const auto host = plan_.host_in(g, task);
    const auto& role = role_of(g, task);
    const auto role_limit = plan_.spec.per_role.find(role);
    // Whoever was called for something, and cannot use it, calls the next.
    const auto park = [&] {
        if (!of.lock.empty()) limits_.pass_lock_on(of.lock);
        if (role_limit != plan_.spec.per_role.end() && role_running_[role] < role_limit->second) pass_role_on(role);
        return Started::parked;
    };
    const auto busy = [&](std::uint32_t one) { return limits_.on_host(host_numbers_[one]) >= plan_.spec.per_host; };
    auto taken = host != Plan::none && busy(host) ? host : Plan::none;
    if (host == Plan::none)
        for (const auto one : plan_.groups[g].hosts)
            if (taken == Plan::none && busy(one)) taken = one;
    if (taken != Plan::none) {
        limits_.wait_for_host(host_numbers_[taken], {this, task});
        return park();
    }
    if (role_limit != plan_.spec.per_role.end() && role_running_[role] >= role_limit->second) {
        role_waiting_[role].push_back(task);
        if (!of.lock.empty()) limits_.pass_lock_on(of.lock);
        return Started::parked;
    }
    if (of.rolling && !may_roll(g, task, false)) {
        rolling_waiting_[role].push_back(task);
        return park();
    }
    if (!of.lock.empty() && !limits_.lock_holder(of.lock).empty()) {
        limits_.wait_for_lock(of.lock, {this, task});
        return Started::parked;
    }
    const auto inputs = prepare_(task, first_phase(g));
    auto& row = rows_[task];
    if (!inputs.ok()) {
        if (inputs.error().code == Code::unavailable) {
            set_state(task, TaskState::waiting, now);
            row.waits = Waits::evidence;
            row.more().words = inputs.error().message;
            evidence_waiting_.push_back(task);
        } else {
            remember(task, Outcome::failure(ErrorClass::refused, inputs.error().message), now);
            end_badly(task, TaskState::failed, now);
        }
        return park();
    }
    if (of.rolling) may_roll(g, task, true);
    hold_resources(g, task);
    ++running_;
    ++groups_[g].running;
    ++role_running_[role];
    ++row.attempt;
    ++row.tries;
    row.inputs = *inputs;
    row.started = now.wall;
    begin_phase(task, first_phase(g), now);
    return Started::yes;
}

void Scheduler::begin_phase(std::uint32_t task, Phase phase, Moment now) {
    auto& row = rows_[task];
    row.phase = phase;
    const auto& of = spec(plan_.group_of(task));
    row.uncleaned = row.uncleaned || of.run.given(); // a gate leaves nothing anywhere
    set_state(task, TaskState::running, now);
    touch(task);
    starts_.push_back({task, phase, false});
    set_timer(now.steady + spec(plan_.group_of(task)).timeout, Alarm::timeout, task,
              row.attempt * 4u + static_cast<unsigned>(phase));
}

void Scheduler::hold_resources(std::uint32_t g, std::uint32_t task) {
    limits_.take_slot();
    const auto host = plan_.host_in(g, task);
    if (host != Plan::none) {
        limits_.take_host(host_numbers_[host]);
    } else {
        for (const auto one : plan_.groups[g].hosts) limits_.take_host(host_numbers_[one]);
    }
    if (!spec(g).lock.empty()) limits_.take_lock(spec(g).lock, fmt::format("{}/{}", plan_.name, plan_.task_name(task)));
}

void Scheduler::release_resources(std::uint32_t g, std::uint32_t task) {
    --running_;
    --groups_[g].running;
    limits_.release_slot();
    const auto host = plan_.host_in(g, task);
    const auto& role = role_of(g, task);
    --role_running_[role];
    if (host != Plan::none) {
        limits_.release_host(host_numbers_[host]);
    } else {
        for (const auto one : plan_.groups[g].hosts) limits_.release_host(host_numbers_[one]);
    }
    if (!spec(g).lock.empty()) limits_.release_lock(spec(g).lock);
    if (plan_.spec.per_role.contains(role)) pass_role_on(role);
}

// --- Undo: from the end of the graph to its beginning, one level at a time ---

void Scheduler::begin_undo(Moment now) {
    std::uint32_t level = Plan::none;
    std::vector<std::uint32_t> tasks;
    if (head_.undo)
        for (std::uint32_t g = 0; g < groups_.size(); ++g) {
            if (!spec(g).undo.given() || plan_.groups[g].depth > level) continue;
            for (std::uint32_t i = 0; i < plan_.groups[g].count; ++i) {
                const auto task = plan_.groups[g].first + i;
                const auto& row = rows_[task];
                if (row.attempt == 0 || row.phase == Phase::undo || row.undone) continue;
                if (plan_.groups[g].depth < level) {
                    level = plan_.groups[g].depth;
                    tasks.clear();
                }
                tasks.push_back(task);
            }
        }
    if (tasks.empty()) {
        set_job(JobState::cancelled, head_.words, now);
        return;
    }
    for (const auto task : tasks) {
        rows_[task].phase = Phase::undo;
        set_state(task, TaskState::ready, now);
        undo_ready_.push_back(task);
    }
}

void Scheduler::dispatch_undo(Moment now) {
    while (!undo_ready_.empty() && limits_.slot_free() && running_ < plan_.spec.slots) {
        const auto task = undo_ready_.front();
        undo_ready_.pop_front();
        if (rows_[task].state != TaskState::ready) continue;
        const auto g = plan_.group_of(task);
        const auto host = plan_.host_in(g, task);
        if (host != Plan::none && limits_.on_host(host_numbers_[host]) >= plan_.spec.per_host) {
            limits_.wait_for_host(host_numbers_[host], {this, task});
            continue;
        }
        auto& row = rows_[task];
        const auto inputs = prepare_(task, Phase::undo);
        if (!inputs.ok()) {
            remember(task, Outcome::failure(ErrorClass::refused, "undo: " + inputs.error().message), now);
            set_state(task, TaskState::cancelled, now);
            continue;
        }
        hold_resources(g, task);
        ++running_;
        ++groups_[g].running;
        ++role_running_[role_of(g, task)];
        ++row.attempt;
        row.started = now.wall;
        begin_phase(task, Phase::undo, now);
    }
}

std::string Scheduler::why_not_begun(std::uint32_t task) const {
    const auto g = plan_.group_of(task);
    const auto& of = spec(g);
    const auto& group = groups_[g];
    if (head_.paused) return fmt::format("the job is paused{}{}", head_.words.empty() ? "" : ": ", head_.words);
    const auto& waves = plan_.groups[g].waves;
    if (!waves.empty() && !rows_[task].done_once && task - plan_.groups[g].first >= waves[group.wave])
        return group.wave_opens
                   ? fmt::format("wave {} of {} is over and held for {}", group.wave + 1, waves.size(), to_text(of.batch->hold))
                   : fmt::format("wave {} of {} is not over", group.wave + 1, waves.size());
    const auto host = plan_.host_in(g, task);
    const auto& role = role_of(g, task);
    if (host != Plan::none && limits_.on_host(host_numbers_[host]) >= plan_.spec.per_host) {
        for (std::uint32_t other = 0; other < groups_.size(); ++other) {
            const auto there = plan_.task_on(other, host);
            if (there != Plan::none && rows_[there].state == TaskState::running)
                return fmt::format("{} runs on {}", plan_.task_name(there), plan_.hosts[host]);
        }
        return fmt::format("another job works on {}", plan_.hosts[host]);
    }
    if (const auto limit = plan_.spec.per_role.find(role); limit != plan_.spec.per_role.end()) {
        const auto running = role_running_.find(role);
        if (limit->second == 0) return fmt::format("the job allows none of role {}", role);
        if (running != role_running_.end() && running->second >= limit->second)
            return fmt::format("{} of role {} run, and the job allows no more", running->second, role);
    }
    if (of.rolling && host != Plan::none && !limits_.holds_place(role, plan_.hosts[host])) {
        if (const auto* rule = limits_.rule_for(role)) {
            if (rule->paused)
                return fmt::format("changes to role {} are paused{}{}", role, rule->reason.empty() ? "" : ": ", rule->reason);
            if (rule->limit == 0) return fmt::format("role {} is never changed: its limit is 0", role);
            if (limits_.places_taken(role) >= static_cast<std::size_t>(rule->limit))
                return fmt::format("{} of role {} are being changed, and its limit is {}", limits_.places_taken(role), role,
                                   rule->limit);
            for (const auto& before : rule->after)
                if (const auto left = rolling_left_.find(before); before != role && left != rolling_left_.end() && left->second > 0)
                    return fmt::format("{} of role {} are not through", left->second, before);
        }
    }
    if (!of.lock.empty() && !limits_.lock_holder(of.lock).empty())
        return fmt::format("lock {} is held by {}", of.lock, limits_.lock_holder(of.lock));
    if (of.slots > 0 && group.running >= static_cast<std::uint32_t>(of.slots))
        return fmt::format("{} of {} run, and its slots are {}", group.running, of.name, of.slots);
    if (running_ >= plan_.spec.slots) return fmt::format("all {} slots of the job are taken", plan_.spec.slots);
    if (!limits_.slot_free()) return fmt::format("all {} slots of the server are taken", limits_.slots());
    return "about to begin";
}

} // namespace orrery::jobs
