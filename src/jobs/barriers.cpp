#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// The scheduler's barriers: whether they hold, since when, and what is missing, in words.
namespace orrery::jobs {

/// Counts, and remembers since when it holds. No evidence changes nothing.
bool Scheduler::evaluate(const BarrierSpec& barrier, std::int64_t wanted, BarrierRun& run, Moment now) {
    auto members = membership_.members(barrier.service, barrier.tag);
    if (!members.ok()) {
        run.open = false;
        return false;
    }
    const auto seen =
        std::count_if(members->begin(), members->end(), [&](const Member& member) { return member.state >= barrier.state; });
    if (seen < wanted) {
        run.met_since.reset();
        run.open = false;
        return false;
    }
    if (!run.met_since) run.met_since = now.steady;
    run.open = now.steady - *run.met_since >= barrier.hold;
    return run.open;
}

bool Scheduler::barriers_open(std::uint32_t group, Moment now) {
    auto& run = groups_[group];
    bool open = true;
    for (std::size_t k = 0; k < run.barriers.size(); ++k) {
        auto& barrier = run.barriers[k];
        if (barrier.open) continue;
        open = false;
        if (!barrier.met_since) continue;
        const auto at = *barrier.met_since + spec(group).wait[k].hold;
        if (std::exchange(barrier.alarm, at) != at) set_timer(at, Alarm::barrier, group);
    }
    return open;
}

void Scheduler::look_at_barriers(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    for (std::size_t k = 0; k < group.barriers.size(); ++k)
        evaluate(spec(g).wait[k], plan_.groups[g].wanted[k], group.barriers[k], now);
    if (group.waiting.empty() || !barriers_open(g, now)) return;
    for (const auto task : std::exchange(group.waiting, {}))
        if (rows_[task].state == TaskState::waiting &&
            (rows_[task].waits == Waits::barrier || rows_[task].waits == Waits::decision))
            consider(task, now);
}

std::string Scheduler::missing_text(const BarrierSpec& barrier, std::int64_t wanted) const {
    auto members = membership_.members(barrier.service, barrier.tag);
    if (!members.ok()) return fmt::format("{}: no evidence ({})", barrier.text(), members.error().message);
    std::int64_t seen = 0;
    std::string held_back;
    int named = 0;
    for (const auto& member : *members) {
        if (member.state >= barrier.state) {
            ++seen;
        } else if (++named <= 5) {
            held_back += fmt::format("{}{} is {}{}{}", held_back.empty() ? "" : "; ", member.node, name_of(member.state),
                                     member.why.empty() ? "" : ": ", member.why.substr(0, 200));
        }
    }
    return fmt::format("{} of {} {}{} {}{}{}{}", seen, wanted, barrier.service, barrier.tag.empty() ? "" : ":" + barrier.tag,
                       name_of(barrier.state), held_back.empty() ? "" : " (", held_back, held_back.empty() ? "" : ")");
}

void Scheduler::deadline_passed(std::uint32_t task, Moment now) {
    const auto g = plan_.group_of(task);
    const BarrierSpec* late = nullptr;
    std::int64_t wanted = 0;
    for (std::size_t k = 0; k < spec(g).wait.size(); ++k) {
        const auto& barrier = spec(g).wait[k];
        if (groups_[g].barriers[k].open || !barrier.deadline || (late != nullptr && *late->deadline <= *barrier.deadline)) continue;
        late = &barrier;
        wanted = plan_.groups[g].wanted[k];
    }
    if (late == nullptr) return;
    auto& row = rows_[task];
    row.more().words = fmt::format("after {}: {}", to_text(*late->deadline), missing_text(*late, wanted));
    touch(task);
    switch (late->on_timeout) {
    case OnTimeout::fail:
        row.error = ErrorClass::timeout;
        row.ended = now.wall;
        end_badly(task, TaskState::failed, now);
        return;
    case OnTimeout::ask: row.waits = Waits::decision; return;
    case OnTimeout::go_on:
        row.lapsed = true;
        consider(task, now);
        return;
    }
}

Scheduler::BarrierView Scheduler::barrier(std::uint32_t group, std::size_t index) const {
    const auto& wants = spec(group).wait[index];
    BarrierView view;
    auto members = membership_.members(wants.service, wants.tag);
    if (members.ok())
        view.seen =
            std::count_if(members->begin(), members->end(), [&](const Member& member) { return member.state >= wants.state; });
    view.met = groups_[group].barriers[index].open;
    return view;
}

Scheduler::BarrierView Scheduler::done_barrier(std::size_t index) const {
    const auto& wants = plan_.spec.done[index];
    BarrierView view;
    auto members = membership_.members(wants.service, wants.tag);
    if (members.ok())
        view.seen =
            std::count_if(members->begin(), members->end(), [&](const Member& member) { return member.state >= wants.state; });
    view.met = view.seen && *view.seen >= plan_.done_wanted[index];
    return view;
}

void Scheduler::membership_changed(std::string_view service, Moment now) {
    if (is_over(head_.state) || head_.state == JobState::cancelling || head_.state == JobState::planned) return;
    const auto look = [&](std::uint32_t g) {
        look_at_barriers(g, now);
        if (!spec(g).rerun_on.empty()) look_for_rerun(g, now);
    };
    if (service.empty()) {
        for (std::uint32_t g = 0; g < groups_.size(); ++g) look(g);
    } else if (const auto found = by_service_.find(service); found != by_service_.end()) {
        for (const auto g : found->second) look(g);
    }
    for (const auto task : std::exchange(evidence_waiting_, {}))
        if (rows_[task].state == TaskState::waiting && rows_[task].waits == Waits::evidence) consider(task, now);
    if (service.empty() || done_services_.contains(service)) unsettled_ = true;
}

} // namespace orrery::jobs
