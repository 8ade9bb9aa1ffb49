#include "jobs/scheduler/wave_tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::jobs {

WaveTracker::WaveTracker(TaskTable& table, TimerQueue& timers)
    : table_(table), timers_(timers), groups_(table.plan.groups.size()), counted_in_(table.plan.groups.size()) {
    for (std::uint32_t g = 0; g < groups_.size(); ++g)
        if (table.spec(g).batch) counted_in_[table.plan.groups[g].through.value_or(g)].push_back(g);
}

void WaveTracker::reset() {
    for (auto& group : groups_) {
        group.failed = 0;
        group.postponed.clear();
        group.stopped = group.canary_failed = false;
    }
}

void WaveTracker::clear_postponed() {
    for (auto& group : groups_) group.postponed.clear();
}

bool WaveTracker::must_stop(std::uint32_t g) const {
    return groups_[g].canary_failed || groups_[g].failed > table_.spec(g).batch->max_fail.of(table_.plan.groups[g].count);
}

void WaveTracker::open_after_hold(std::uint32_t g, Moment now) {
    groups_[g].opens = now.steady + table_.spec(g).batch->hold;
    timers_.set(*groups_[g].opens, TimerType::wave, g);
}

void WaveTracker::restore(std::uint32_t g, Moment now) {
    auto& group = groups_[g];
    const auto& of = table_.plan.groups[g];
    group.wave = 0;
    group.ended = 0;
    group.opens.reset();
    std::uint32_t from = 0, started = 0; // tasks before `started` may have been started
    for (std::uint32_t i = 0; i < of.count; ++i)
        if (table_.records[of.first + i].attempt > 0) started = i + 1;
    for (; group.wave < of.waves.size(); ++group.wave) {
        group.ended = 0;
        for (std::uint32_t i = from; i < of.waves[group.wave]; ++i) {
            const auto& record = table_.records[end_of(of, i)];
            if (!is_terminal(record.state) && !record.done_once) continue;
            ++group.ended;
            if (record.done_once) continue;
            ++group.failed;
            if (group.wave == 0 && table_.spec(g).batch->canary > 0) group.canary_failed = true;
        }
        const bool later_started = started > of.waves[group.wave];
        const bool ended = group.ended == of.waves[group.wave] - from;
        if (ended && !later_started && group.wave + 1 < of.waves.size()) open_after_hold(g, now); // the hold starts again
        if (!ended || !later_started) break;
        from = of.waves[group.wave];
    }
    group.wave = std::min<std::uint32_t>(group.wave, static_cast<std::uint32_t>(of.waves.size()) - 1);
    if (must_stop(g)) group.stopped = true;
}

bool WaveTracker::count_end(std::uint32_t g, std::uint32_t task, Moment now) {
    auto& group = groups_[g];
    const auto& of = table_.plan.groups[g];
    const auto own = of.through ? table_.plan.task_on(g, table_.plan.host_of(task)) : task;
    if (own == Plan::none || group.stopped) return false;
    if (own - of.first >= of.waves[group.wave]) return false; // counted when its wave opens
    ++group.ended;
    if (table_.records[task].state != TaskState::succeeded) {
        ++group.failed;
        // A canary exists to stop the change: `max_fail` is for the waves after it.
        if (group.wave == 0 && table_.spec(g).batch->canary > 0) group.canary_failed = true;
    }
    if (must_stop(g)) return true;
    const auto from = group.wave == 0 ? 0 : of.waves[group.wave - 1];
    if (group.ended == of.waves[group.wave] - from && group.wave + 1 < of.waves.size()) open_after_hold(g, now);
    return false;
}

std::optional<std::vector<std::uint32_t>> WaveTracker::open_next(std::uint32_t g) {
    auto& group = groups_[g];
    group.opens.reset();
    if (group.stopped || group.wave + 1 >= table_.plan.groups[g].waves.size()) return {};
    ++group.wave;
    group.ended = 0;
    return std::exchange(group.postponed, {});
}

std::vector<std::uint32_t> WaveTracker::ended_early(std::uint32_t g) const {
    const auto& of = table_.plan.groups[g];
    const auto wave = groups_[g].wave;
    std::vector<std::uint32_t> out;
    for (auto i = wave == 0 ? 0 : of.waves[wave - 1]; i < of.waves[wave]; ++i)
        if (const auto end = end_of(of, i); is_terminal(table_.records[end].state)) out.push_back(end);
    return out;
}

void WaveTracker::stop(std::uint32_t g) {
    groups_[g].stopped = true;
    groups_[g].postponed.clear();
}

std::string WaveTracker::stop_message(std::uint32_t g) const {
    const auto& max_fail = table_.spec(g).batch->max_fail;
    if (groups_[g].canary_failed) return "stopped: a canary failed";
    return fmt::format("stopped: {} failed, and max_fail is {}{}", groups_[g].failed, max_fail.number, max_fail.percent ? "%" : "");
}

std::string WaveTracker::blocked_reason(std::uint32_t g, std::uint32_t task) const {
    const auto& of = table_.plan.groups[g];
    const auto& group = groups_[g];
    if (of.waves.empty() || table_.records[task].done_once || task - of.first < of.waves[group.wave]) return {};
    if (!group.opens) return fmt::format("wave {} of {} has not ended", group.wave + 1, of.waves.size());
    return fmt::format("wave {} of {} has ended and is held for {}", group.wave + 1, of.waves.size(),
                       to_text(table_.spec(g).batch->hold));
}

} // namespace orrery::jobs
