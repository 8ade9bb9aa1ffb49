#include "jobs/limits.h"

#include "jobs/scheduler.h"

#include <algorithm>

namespace orrery::jobs {

std::uint32_t Limits::host(const std::string& name) {
    const auto [place, fresh] = host_numbers_.try_emplace(name, static_cast<std::uint32_t>(hosts_.size()));
    if (fresh) hosts_.emplace_back();
    return place->second;
}

void Limits::call(std::vector<Waiter>& waiting) {
    const auto called = std::exchange(waiting, {});
    for (const auto& waiter : called) waiter.scheduler->called(waiter.task);
}

void Limits::release_host(std::uint32_t host) {
    --hosts_[host].running;
    call(hosts_[host].waiting);
}

const std::string& Limits::lock_holder(const std::string& lock) const {
    static const std::string nobody;
    const auto found = locks_.find(lock);
    return found == locks_.end() ? nobody : found->second.holder;
}

void Limits::release_lock(const std::string& lock) {
    locks_[lock].holder.clear();
    pass_lock_on(lock);
}

void Limits::pass_lock_on(const std::string& lock) {
    const auto found = locks_.find(lock);
    if (found == locks_.end() || !found->second.holder.empty()) return;
    if (found->second.waiting.empty()) {
        locks_.erase(found);
        return;
    }
    const auto first = found->second.waiting.front();
    found->second.waiting.erase(found->second.waiting.begin());
    first.scheduler->called(first.task);
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

bool Limits::holds_place(const std::string& role, const std::string& host) const {
    const auto found = places_.find(role);
    return found != places_.end() && found->second.contains(host);
}

std::size_t Limits::places_taken(const std::string& role) const {
    const auto found = places_.find(role);
    return found == places_.end() ? 0 : found->second.size();
}

void Limits::take_place(const std::string& role, const std::string& host, const std::string& job) { places_[role][host] = job; }

void Limits::release_place(const std::string& role, const std::string& host) {
    if (const auto found = places_.find(role); found != places_.end() && found->second.erase(host) > 0) ++rolling_changes_;
}

void Limits::release_places(const std::string& job) {
    for (auto& [role, hosts] : places_)
        if (std::erase_if(hosts, [&](const auto& place) { return place.second == job; }) > 0) ++rolling_changes_;
}

void Limits::forget(const Scheduler* scheduler) {
    const auto theirs = [scheduler](const Waiter& waiter) { return waiter.scheduler == scheduler; };
    for (auto& host : hosts_) std::erase_if(host.waiting, theirs);
    for (auto& [name, lock] : locks_) std::erase_if(lock.waiting, theirs);
}

} // namespace orrery::jobs
