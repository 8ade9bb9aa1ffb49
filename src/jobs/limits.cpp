#include "jobs/limits.h"

#include "jobs/scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

std::uint32_t Limits::host(const std::string& name) {
    const auto [place, fresh] = host_numbers_.try_emplace(name, static_cast<std::uint32_t>(hosts_.size()));
    if (fresh) hosts_.emplace_back();
    return place->second;
}

void Limits::wake_all(std::vector<Waiter>& waiting) {
    const auto woken = std::exchange(waiting, {});
    for (const auto& waiter : woken) waiter.scheduler->wake(waiter.task);
}

void Limits::release_host(std::uint32_t host) {
    --hosts_[host].running;
    wake_all(hosts_[host].waiting);
}

const std::string& Limits::lock_holder(const std::string& lock) const {
    static const std::string unheld;
    const auto found = locks_.find(lock);
    return found == locks_.end() ? unheld : found->second.holder;
}

void Limits::release_lock(const std::string& lock) {
    locks_[lock].holder.clear();
    wake_next_for_lock(lock);
}

void Limits::wake_next_for_lock(const std::string& lock) {
    const auto found = locks_.find(lock);
    if (found == locks_.end() || !found->second.holder.empty()) return;
    if (found->second.waiting.empty()) {
        locks_.erase(found);
        return;
    }
    const auto first = found->second.waiting.front();
    found->second.waiting.erase(found->second.waiting.begin());
    first.scheduler->wake(first.task);
}

void Limits::set_rules(std::map<std::string, RollingRule> rules) {
    rules_ = std::move(rules);
    ++rolling_changes_;
}

const RollingRule* Limits::rule_for(const std::string& role) const {
    auto found = rules_.find(role);
    if (found == rules_.end()) found = rules_.find("default");
    return found == rules_.end() ? nullptr : &found->second;
}

bool Limits::holds_rolling_slot(const std::string& role, const std::string& host) const {
    const auto found = rolling_slots_.find(role);
    return found != rolling_slots_.end() && found->second.contains(host);
}

std::string Limits::rolling_slot_owner(const std::string& role, const std::string& host) const {
    const auto found = rolling_slots_.find(role);
    if (found == rolling_slots_.end()) return {};
    const auto place = found->second.find(host);
    return place == found->second.end() ? std::string() : place->second;
}

std::string Limits::rolling_slots_text(const std::string& role) const {
    constexpr std::size_t max_named = 3;
    const auto found = rolling_slots_.find(role);
    if (found == rolling_slots_.end()) return {};
    std::string out;
    std::size_t named = 0;
    for (const auto& [host, job] : found->second) {
        if (named++ == max_named) return out + ", ...";
        out += fmt::format("{}{} by job {}", out.empty() ? "" : ", ", host, job);
    }
    return out;
}

std::vector<std::pair<std::string, std::string>> Limits::rolling_slots_of(const std::string& job) const {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& [role, hosts] : rolling_slots_)
        for (const auto& [host, holder] : hosts)
            if (holder == job) out.emplace_back(role, host);
    return out;
}

std::size_t Limits::rolling_slots_used(const std::string& role) const {
    const auto found = rolling_slots_.find(role);
    return found == rolling_slots_.end() ? 0 : found->second.size();
}

void Limits::take_rolling_slot(const std::string& role, const std::string& host, const std::string& job) {
    rolling_slots_[role][host] = job;
}

void Limits::release_rolling_slot(const std::string& role, const std::string& host) {
    if (const auto found = rolling_slots_.find(role); found != rolling_slots_.end() && found->second.erase(host) > 0)
        ++rolling_changes_;
}

void Limits::release_rolling_slots(const std::string& job) {
    for (auto& [role, hosts] : rolling_slots_)
        if (std::erase_if(hosts, [&](const auto& place) { return place.second == job; }) > 0) ++rolling_changes_;
}

void Limits::forget(const Scheduler* scheduler) {
    const auto theirs = [scheduler](const Waiter& waiter) { return waiter.scheduler == scheduler; };
    for (auto& host : hosts_) std::erase_if(host.waiting, theirs);
    for (auto& [name, lock] : locks_) std::erase_if(lock.waiting, theirs);
}

} // namespace orrery::jobs
