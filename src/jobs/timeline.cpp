#include "jobs/timeline.h"

#include "jobs/waiting_reason.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

WallTime wall_of(std::int64_t milliseconds) { return WallTime(std::chrono::milliseconds(milliseconds)); }

std::string with_reason(std::string text, std::string_view reason) {
    if (!reason.empty()) text += fmt::format(": {}", reason);
    return text;
}

const RunSpec& spec_of(const TaskSpec& spec, Phase phase) {
    return phase == Phase::check ? spec.check : phase == Phase::verify ? spec.verify : phase == Phase::undo ? spec.undo : spec.run;
}

} // namespace

std::vector<TimelineEntry> timeline(const JobRun& run, WallTime since) {
    std::vector<TimelineEntry> out;
    for (std::uint32_t task = 0; task < run.plan.tasks; ++task) {
        const auto& record = run.scheduler->record(task);
        const auto add = [&](std::int64_t at, int attempt, bool failed, std::string_view type, std::string message) {
            if (at == 0 || wall_of(at) < since) return;
            out.push_back({fmt::format("task/{}/{}/{}/{}/{}", run.uid, task, attempt, type, at), wall_of(at),
                           run.plan.task_name(task), attempt, failed, std::move(message)});
        };
        if (record.detail)
            for (const auto& past : record.detail->past) {
                add(past.started, past.number, false, "started", fmt::format("attempt {} started", past.number));
                add(past.ended_at, past.number, past.ended != Outcome::Ended::succeeded, "ended",
                    with_reason(fmt::format("attempt {} {}", past.number, name_of(past.ended)), past.message));
            }
        const auto number = static_cast<int>(record.attempt);
        if (record.attempt > 0) add(record.started, number, false, "started", fmt::format("attempt {} started", number));
        const bool failed =
            record.state == TaskState::failed || record.state == TaskState::lost || record.state == TaskState::undo_failed;
        if (is_terminal(record.state) && record.attempt > 0)
            add(record.ended, number, failed, "ended",
                with_reason(fmt::format("attempt {} {}", number, name_of(record.state)), record.message()));
        else if (record.state == TaskState::waiting || record.state == TaskState::ready)
            add(record.since, number, false, "waiting", with_reason(std::string(name_of(record.state)), waits_for(run, task)));
        else if (is_terminal(record.state))
            add(record.since, 0, false, "over", with_reason(std::string(name_of(record.state)), record.message()));
    }
    return out;
}

std::vector<TaskOutput> outputs(const JobRun& run, WallTime since, std::size_t max, bool& more) {
    std::vector<TaskOutput> out;
    for (std::uint32_t task = 0; task < run.plan.tasks; ++task) {
        const auto& record = run.scheduler->record(task);
        if (record.attempt == 0) continue;
        const auto& spec = run.plan.spec.tasks[run.plan.group_of(task)];
        const auto add = [&](int attempt, std::int64_t started, bool complete) {
            for (const auto phase : {Phase::check, Phase::run, Phase::verify, Phase::undo})
                if (spec_of(spec, phase).given())
                    out.push_back({{run.uid, task, attempt, phase}, run.plan.task_name(task), wall_of(started), complete});
        };
        if (record.detail)
            for (const auto& past : record.detail->past)
                if (wall_of(past.ended_at) >= since) add(past.number, past.started, true);
        const bool running = record.state == TaskState::running;
        if (running || wall_of(record.ended) >= since) add(static_cast<int>(record.attempt), record.started, !running);
    }
    std::sort(out.begin(), out.end(), [](const TaskOutput& a, const TaskOutput& b) { return a.started > b.started; });
    more = more || out.size() > max;
    if (out.size() > max) out.resize(max);
    return out;
}

} // namespace orrery::jobs
