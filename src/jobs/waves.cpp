#include "jobs/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

/// Batches: which machines' turn it is, when the next come, and when failures stop the rest.
namespace orrery::jobs {

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

} // namespace orrery::jobs
