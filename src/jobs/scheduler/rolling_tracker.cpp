#include "jobs/scheduler/rolling_tracker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

namespace orrery::jobs {

RollingTracker::RollingTracker(TaskTable& table, Limits& limits)
    : table_(table), limits_(limits), completes_node_(table.plan.groups.size(), false) {
    for (std::uint32_t g = 0; g < table.plan.groups.size(); ++g)
        if (table.spec(g).rolling) completes_node_[table.plan.groups[g].rolling_through.value_or(g)] = true;
}

void RollingTracker::reset() {
    left_.clear();
    failed_.clear();
    waiting_.clear();
}

void RollingTracker::count_unfinished(std::uint32_t group, std::uint32_t task) {
    if (!completes_node_[group]) return;
    const auto& role = table_.role_of(group, task);
    ++left_[role];
    if (is_terminal(table_.records[task].state)) failed_[role].push_back(task);
}

void RollingTracker::restore_rolling_slots() {
    const auto& plan = table_.plan;
    for (std::uint32_t g = 0; g < plan.groups.size(); ++g) {
        if (!table_.spec(g).rolling) continue;
        for (std::uint32_t i = 0; i < plan.groups[g].count; ++i) {
            const auto task = plan.groups[g].first + i;
            if (table_.records[task].attempt == 0) continue;
            const auto host = plan.host_in(g, task);
            const auto last = plan.groups[g].rolling_through ? plan.task_on(*plan.groups[g].rolling_through, host) : task;
            if (!table_.records[last].done_once) take_rolling_slot(host);
        }
    }
}

const std::string* RollingTracker::unfinished_role_before(const RollingRule& rule, const std::string& role) const {
    for (const auto& before : rule.after)
        if (const auto left = left_.find(before); before != role && left != left_.end() && left->second > 0) return &before;
    return nullptr;
}

bool RollingTracker::can_start_rolling(std::uint32_t group, std::uint32_t task) const {
    const auto host = table_.plan.host_in(group, task);
    const auto& role = table_.plan.roles[host];
    const auto* rule = limits_.rule_for(role);
    if (rule == nullptr || limits_.holds_rolling_slot(role, table_.plan.hosts[host])) return true;
    if (rule->paused || limits_.rolling_slots_used(role) >= static_cast<std::size_t>(rule->limit)) return false;
    return unfinished_role_before(*rule, role) == nullptr;
}

void RollingTracker::start_rolling(std::uint32_t group, std::uint32_t task) {
    const auto host = table_.plan.host_in(group, task);
    const auto& role = table_.plan.roles[host];
    if (limits_.rule_for(role) == nullptr || !limits_.holds_rolling_slot(role, table_.plan.hosts[host])) take_rolling_slot(host);
}

void RollingTracker::take_rolling_slot(std::uint32_t host) {
    limits_.take_rolling_slot(table_.plan.roles[host], table_.plan.hosts[host], table_.plan.name);
}

std::vector<std::uint32_t> RollingTracker::take_admitted() {
    std::vector<std::uint32_t> out;
    if (seen_changes_ == limits_.rolling_changes()) return out;
    seen_changes_ = limits_.rolling_changes();
    for (auto& [role, waiting] : waiting_) {
        const auto* rule = limits_.rule_for(role);
        const auto used = limits_.rolling_slots_used(role);
        auto room = rule == nullptr ? waiting.size() : static_cast<std::size_t>(rule->limit) > used ? rule->limit - used : 0;
        for (; room > 0 && !waiting.empty(); --room) {
            out.push_back(waiting.front());
            waiting.pop_front();
        }
    }
    return out;
}

void RollingTracker::on_success(std::uint32_t group, std::uint32_t task) {
    if (!completes_node_[group]) return;
    const auto& role = table_.role_of(group, task);
    --left_[role];
    limits_.release_rolling_slot(role, table_.plan.hosts[table_.plan.host_in(group, task)]);
    limits_.note_rolling_change();
}

void RollingTracker::on_end(std::uint32_t group, std::uint32_t task) {
    if (!completes_node_[group]) return;
    if (table_.records[task].state != TaskState::succeeded) failed_[table_.role_of(group, task)].push_back(task);
    limits_.note_rolling_change();
}

std::optional<std::pair<std::uint32_t, std::string>> RollingTracker::blocked_role(const std::string& role) const {
    const auto& plan = table_.plan;
    const auto* rule = limits_.rule_for(role);
    if (rule == nullptr) return {};
    if (const auto failed = failed_.find(role); failed != failed_.end() && rule->limit > 0) {
        std::set<std::string> hosts;
        for (const auto task : failed->second)
            if (const auto& host = plan.hosts[plan.host_of(task)]; limits_.rolling_slot_owner(role, host) == plan.name)
                hosts.insert(host);
        if (hosts.size() >= static_cast<std::size_t>(rule->limit))
            return std::pair(failed->second.front(),
                             fmt::format("stopped: {} did not succeed and keep{} {}, and the limit of role {} is {}",
                                         fmt::join(hosts, ", "), hosts.size() == 1 ? "s" : "",
                                         hosts.size() == 1 ? "its rolling slot" : "their rolling slots", role, rule->limit));
    }
    for (const auto& before : rule->after) {
        const auto failed = failed_.find(before);
        if (before == role || failed == failed_.end()) continue;
        const auto task = failed->second.front();
        return std::pair(task, fmt::format("stopped: role {} comes after role {}, where {} {}", role, before, plan.task_name(task),
                                           name_of(table_.records[task].state)));
    }
    return {};
}

std::vector<RollingTracker::Blocked> RollingTracker::take_blocked() {
    std::vector<Blocked> out;
    if (failed_.empty()) return out;
    for (auto& [role, waiting] : waiting_) {
        if (waiting.empty()) continue;
        const auto blocked = blocked_role(role);
        if (!blocked) continue;
        for (const auto task : std::exchange(waiting, {}))
            if (table_.records[task].state == TaskState::ready) out.push_back({task, blocked->first, blocked->second});
    }
    return out;
}

std::string RollingTracker::blocked_reason(std::uint32_t group, std::uint32_t task) const {
    const auto host = table_.plan.host_in(group, task);
    if (!table_.spec(group).rolling || host == Plan::none) return {};
    const auto& role = table_.plan.roles[host];
    const auto* rule = limits_.rule_for(role);
    if (rule == nullptr || limits_.holds_rolling_slot(role, table_.plan.hosts[host])) return {};
    if (rule->paused) return fmt::format("changes to role {} are paused{}{}", role, rule->reason.empty() ? "" : ": ", rule->reason);
    if (rule->limit == 0) return fmt::format("role {} is never changed: its limit is 0", role);
    if (const auto used = limits_.rolling_slots_used(role); used >= static_cast<std::size_t>(rule->limit))
        return fmt::format("{} of role {} are being changed ({}), and its limit is {}", used, role,
                           limits_.rolling_slots_text(role), rule->limit);
    if (const auto* before = unfinished_role_before(*rule, role))
        return fmt::format("{} of role {} are not complete", left_.at(*before), *before);
    return {};
}

} // namespace orrery::jobs
