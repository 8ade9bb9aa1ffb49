#include "jobs/scheduler/dispatcher.h"

#include <fmt/format.h>

namespace orrery::jobs {

Dispatcher::Dispatcher(Scheduler& owner, TaskTable& table, Limits& limits, WaveTracker& waves, RollingTracker& rolling,
                       UndoQueue& undo)
    : owner_(owner),
      table_(table),
      limits_(limits),
      waves_(waves),
      rolling_(rolling),
      undo_(undo),
      ready_(table.plan.groups.size()),
      running_in_group_(table.plan.groups.size(), 0) {
    for (const auto& host : table.plan.hosts) host_numbers_.push_back(limits.host(host));
}

void Dispatcher::reset() {
    clear_queues();
    running_in_group_.assign(running_in_group_.size(), 0);
    running_by_role_.clear();
    running_ = 0;
}

void Dispatcher::clear_queues() {
    for (auto& ready : ready_) ready.clear();
    active_.clear();
    waiting_for_role_.clear();
}

void Dispatcher::enqueue(std::uint32_t task) {
    const auto g = table_.plan.group_of(task);
    if (!waves_.admits(g, task)) return waves_.postpone(g, task);
    ready_[g].push_back(task);
    queued_ = true;
    active_.insert({-static_cast<std::int64_t>(table_.plan.groups[g].depth), g});
}

void Dispatcher::wake(std::uint32_t task) {
    const auto& record = table_.records[task];
    if (record.state != TaskState::ready) return;
    if (record.phase == Phase::undo && is_unwinding(table_.job.state))
        undo_.push(task);
    else
        enqueue(task);
}

bool Dispatcher::has_role_limit(const std::string& role, int& limit) const {
    const auto found = table_.plan.spec.per_role.find(role);
    if (found == table_.plan.spec.per_role.end()) return false;
    limit = found->second;
    return true;
}

void Dispatcher::release_role_slot(const std::string& role) {
    const auto waiting = waiting_for_role_.find(role);
    if (waiting == waiting_for_role_.end() || waiting->second.empty()) return;
    const auto task = waiting->second.front();
    waiting->second.erase(waiting->second.begin());
    wake(task);
}

std::uint32_t Dispatcher::busy_host(std::uint32_t g, std::uint32_t task) const {
    const auto host = table_.plan.host_in(g, task);
    if (host != Plan::none) return is_host_busy(host) ? host : Plan::none;
    for (const auto one : table_.plan.groups[g].hosts)
        if (is_host_busy(one)) return one;
    return Plan::none;
}

void Dispatcher::wait_for_host(std::uint32_t host, std::uint32_t task) {
    limits_.wait_for_host(host_numbers_[host], {&owner_, task});
}

void Dispatcher::pass_on(std::uint32_t g, std::uint32_t task) {
    if (const auto& lock = table_.spec(g).lock; !lock.empty()) limits_.wake_next_for_lock(lock);
    const auto& role = table_.role_of(g, task);
    if (int limit = 0; has_role_limit(role, limit) && running_by_role_[role] < limit) release_role_slot(role);
}

Dispatcher::Admission Dispatcher::admit(std::uint32_t task) {
    const auto g = table_.plan.group_of(task);
    const auto& of = table_.spec(g);
    if (!can_start_more() || !has_free_slot()) return Admission::full;
    if (of.slots > 0 && running_in_group_[g] >= static_cast<std::uint32_t>(of.slots)) return Admission::group_full;
    if (const auto host = busy_host(g, task); host != Plan::none) {
        wait_for_host(host, task);
        pass_on(g, task);
        return Admission::blocked;
    }
    const auto& role = table_.role_of(g, task);
    if (int limit = 0; has_role_limit(role, limit) && running_by_role_[role] >= limit) {
        waiting_for_role_[role].push_back(task);
        if (!of.lock.empty()) limits_.wake_next_for_lock(of.lock);
        return Admission::blocked;
    }
    if (of.rolling && !rolling_.can_start_rolling(g, task)) {
        rolling_.add_waiting(role, task);
        if (rolling_.has_failures()) table_.job_state_stale = true; // it may wait for a slot that a failed node keeps
        pass_on(g, task);
        return Admission::blocked;
    }
    if (!of.lock.empty() && !limits_.lock_holder(of.lock).empty()) {
        limits_.wait_for_lock(of.lock, {&owner_, task});
        return Admission::blocked;
    }
    return Admission::granted;
}

void Dispatcher::hold(std::uint32_t g, std::uint32_t task) {
    limits_.take_slot();
    const auto host = table_.plan.host_in(g, task);
    if (host != Plan::none) {
        limits_.take_host(host_numbers_[host]);
    } else {
        for (const auto one : table_.plan.groups[g].hosts) limits_.take_host(host_numbers_[one]);
    }
    if (const auto& lock = table_.spec(g).lock; !lock.empty())
        limits_.take_lock(lock, fmt::format("{}/{}", table_.plan.name, table_.plan.task_name(task)));
}

void Dispatcher::release(std::uint32_t g, std::uint32_t task) {
    --running_;
    --running_in_group_[g];
    limits_.release_slot();
    const auto host = table_.plan.host_in(g, task);
    const auto& role = table_.role_of(g, task);
    --running_by_role_[role];
    if (host != Plan::none) {
        limits_.release_host(host_numbers_[host]);
    } else {
        for (const auto one : table_.plan.groups[g].hosts) limits_.release_host(host_numbers_[one]);
    }
    if (const auto& lock = table_.spec(g).lock; !lock.empty()) limits_.release_lock(lock);
    if (table_.plan.spec.per_role.contains(role)) release_role_slot(role);
}

// --- Why a ready task has not started ---

std::string Dispatcher::host_blocked_reason(std::uint32_t host) const {
    if (host == Plan::none || !is_host_busy(host)) return {};
    const auto& plan = table_.plan;
    for (std::uint32_t group = 0; group < plan.groups.size(); ++group) {
        const auto there = plan.task_on(group, host);
        if (there != Plan::none && table_.records[there].state == TaskState::running)
            return fmt::format("{} runs on {}", plan.task_name(there), plan.hosts[host]);
    }
    return fmt::format("another job works on {}", plan.hosts[host]);
}

std::string Dispatcher::role_blocked_reason(const std::string& role) const {
    int limit = 0;
    if (!has_role_limit(role, limit)) return {};
    if (limit == 0) return fmt::format("the job allows none of role {}", role);
    const auto running = running_by_role_.find(role);
    if (running == running_by_role_.end() || running->second < limit) return {};
    return fmt::format("{} of role {} run, and the job allows no more", running->second, role);
}

std::string Dispatcher::blocked_reason(std::uint32_t task) const {
    const auto g = table_.plan.group_of(task);
    const auto& of = table_.spec(g);
    const auto& job = table_.job;
    if (job.paused) return "the job is " + job.text();
    if (auto reason = waves_.blocked_reason(g, task); !reason.empty()) return reason;
    if (auto reason = host_blocked_reason(table_.plan.host_in(g, task)); !reason.empty()) return reason;
    if (auto reason = role_blocked_reason(table_.role_of(g, task)); !reason.empty()) return reason;
    if (auto reason = rolling_.blocked_reason(g, task); !reason.empty()) return reason;
    if (!of.lock.empty() && !limits_.lock_holder(of.lock).empty())
        return fmt::format("lock {} is held by {}", of.lock, limits_.lock_holder(of.lock));
    if (of.slots > 0 && running_in_group_[g] >= static_cast<std::uint32_t>(of.slots))
        return fmt::format("{} of {} run, and its slots are {}", running_in_group_[g], of.name, of.slots);
    if (running_ >= table_.plan.spec.slots) return fmt::format("all {} slots of the job are taken", table_.plan.spec.slots);
    if (!limits_.slot_free()) return fmt::format("all {} slots of the server are taken", limits_.slots());
    return "about to start";
}

} // namespace orrery::jobs
