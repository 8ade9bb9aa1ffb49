#include "jobs/scheduler/barrier_tracker.h"

#include "core/truncate.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace orrery::jobs {

BarrierTracker::BarrierTracker(TaskTable& table, TimerQueue& timers, const Membership& membership)
    : table_(table),
      timers_(timers),
      membership_(membership),
      groups_(table.plan.groups.size()),
      done_barriers_(table.plan.spec.done.size()) {
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        const auto& spec = table.spec(g);
        groups_[g].barriers.resize(spec.wait.size());
        std::set<std::string> services;
        for (const auto& barrier : spec.wait) services.insert(barrier.service);
        for (const auto& rerun : spec.rerun_on) services.insert(rerun.of.service);
        for (const auto& service : services) groups_by_service_[service].push_back(g);
    }
    for (const auto& barrier : table.plan.spec.done) done_services_.insert(barrier.service);
}

void BarrierTracker::reset(Moment now) {
    clear_waiting();
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
        for (auto& barrier : groups_[g].barriers) barrier.timer = {};
        evaluate_group(g, now);
    }
}

void BarrierTracker::clear_waiting() {
    for (auto& group : groups_) group.waiting.clear();
    evidence_waiting_.clear();
}

void BarrierTracker::evaluate(const BarrierSpec& spec, std::int64_t wanted, Barrier& barrier, Moment now) const {
    const auto seen = count_members(spec);
    if (!seen || *seen < wanted) {
        if (seen) barrier.met_since.reset(); // without evidence the hold time is not lost
        barrier.open = false;
        return;
    }
    if (!barrier.met_since) barrier.met_since = now.steady;
    barrier.open = now.steady - *barrier.met_since >= spec.hold;
}

void BarrierTracker::evaluate_group(std::uint32_t g, Moment now) {
    for (std::size_t k = 0; k < groups_[g].barriers.size(); ++k)
        evaluate(table_.spec(g).wait[k], table_.plan.groups[g].wanted[k], groups_[g].barriers[k], now);
}

bool BarrierTracker::is_open(std::uint32_t g, Moment) {
    bool open = true;
    auto& barriers = groups_[g].barriers;
    for (std::size_t k = 0; k < barriers.size(); ++k) {
        auto& barrier = barriers[k];
        if (barrier.open) continue;
        open = false;
        if (!barrier.met_since) continue;
        const auto at = *barrier.met_since + table_.spec(g).wait[k].hold;
        if (std::exchange(barrier.timer, at) != at) timers_.set(at, TimerType::barrier, g);
    }
    return open;
}

std::vector<std::uint32_t> BarrierTracker::evaluate(std::uint32_t g, Moment now) {
    evaluate_group(g, now);
    if (groups_[g].waiting.empty() || !is_open(g, now)) return {};
    return std::exchange(groups_[g].waiting, {});
}

std::vector<std::uint32_t> BarrierTracker::groups_using(std::string_view service) const {
    if (service.empty()) {
        std::vector<std::uint32_t> all(groups_.size());
        std::iota(all.begin(), all.end(), 0u);
        return all;
    }
    const auto found = groups_by_service_.find(service);
    return found == groups_by_service_.end() ? std::vector<std::uint32_t>{} : found->second;
}

std::optional<std::int64_t> BarrierTracker::count_members(const BarrierSpec& spec) const {
    const auto members = membership_.members(spec.service, spec.tag);
    if (!members.ok()) return {};
    return std::count_if(members->all.begin(), members->all.end(),
                         [&](const Member& member) { return member.counts_as(spec.state); });
}

std::string BarrierTracker::missing_text(const BarrierSpec& spec, std::int64_t wanted) const {
    constexpr int max_named = 5;
    const auto members = membership_.members(spec.service, spec.tag);
    if (!members.ok()) return fmt::format("{}: no evidence ({})", spec.text(), members.error().message);
    std::int64_t seen = 0;
    std::string not_counted;
    int named = 0;
    for (const auto& member : members->all) {
        if (member.counts_as(spec.state)) {
            ++seen;
        } else if (++named <= max_named) {
            not_counted += fmt::format("{}{} is {}{}{}{}", not_counted.empty() ? "" : "; ", member.node, name_of(member.state),
                                       member.why.empty() ? "" : ": ", truncate(member.why, 200),
                                       member.evidence == Evidence::confirmed ? "" : ", not confirmed since this server started");
        }
    }
    return fmt::format("{} of {} {}{} {}{}{}{}", seen, wanted, spec.service, spec.tag.empty() ? "" : ":" + spec.tag,
                       name_of(spec.state), not_counted.empty() ? "" : " (", not_counted, not_counted.empty() ? "" : ")");
}

std::optional<BarrierTracker::ExpiredDeadline> BarrierTracker::expired_deadline(std::uint32_t task) const {
    const auto g = table_.plan.group_of(task);
    const auto& wait = table_.spec(g).wait;
    const BarrierSpec* late = nullptr;
    std::int64_t wanted = 0;
    for (std::size_t k = 0; k < wait.size(); ++k) {
        if (groups_[g].barriers[k].open || !wait[k].deadline || (late != nullptr && *late->deadline <= *wait[k].deadline)) continue;
        late = &wait[k];
        wanted = table_.plan.groups[g].wanted[k];
    }
    if (late == nullptr) return {};
    return ExpiredDeadline{late->on_timeout, fmt::format("after {}: {}", to_text(*late->deadline), missing_text(*late, wanted))};
}

bool BarrierTracker::done_holds(Moment now) {
    const auto& spec = table_.plan.spec;
    for (std::size_t k = 0; k < done_barriers_.size(); ++k) {
        auto& barrier = done_barriers_[k];
        evaluate(spec.done[k], table_.plan.done_wanted[k], barrier, now);
        if (barrier.open) continue;
        if (barrier.met_since) timers_.set(*barrier.met_since + spec.done[k].hold, TimerType::done, 0);
        done_since_.reset();
        return false;
    }
    if (!done_since_) done_since_ = now.steady;
    if (now.steady - *done_since_ >= spec.done_hold) return true;
    timers_.set(*done_since_ + spec.done_hold, TimerType::done, 0);
    return false;
}

BarrierTracker::View BarrierTracker::view(std::uint32_t group, std::size_t index) const {
    return {count_members(table_.spec(group).wait[index]), groups_[group].barriers[index].open};
}

BarrierTracker::View BarrierTracker::done_view(std::size_t index) const {
    const auto seen = count_members(table_.plan.spec.done[index]);
    return {seen, seen && *seen >= table_.plan.done_wanted[index]};
}

} // namespace orrery::jobs
