#include "jobs/view.h"

#include "core/text.h"
#include "jobs/live_job.h"
#include "jobs/waiting_reason.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

json::value moment_text(std::int64_t milliseconds) {
    if (milliseconds == 0) return nullptr;
    return json::value(to_rfc3339(WallTime(std::chrono::milliseconds(milliseconds))));
}

std::int64_t in_milliseconds(Duration time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); }

json::array hosts_of(const Plan& plan, const Group& group) {
    json::array out;
    for (const auto host : group.hosts) out.emplace_back(plan.hosts[host]);
    return out;
}

} // namespace

json::object task_view(const JobRun& run, std::uint32_t task, bool full) {
    const auto& record = run.scheduler->record(task);
    const auto g = run.plan.group_of(task);
    const auto host = run.plan.host_in(g, task);
    json::object out{{"task", run.plan.task_name(task)}, {"name", run.plan.spec.tasks[g].name}, {"state", name_of(record.state)}};
    if (host != Plan::none) out["node"] = run.plan.hosts[host];
    if (record.attempt > 0) {
        out["attempt"] = record.attempt;
        out["started_at"] = moment_text(record.started);
        if (record.state != TaskState::running) out["ended_at"] = moment_text(record.ended);
        out["phase"] = name_of(record.phase);
    }
    if (is_terminal(record.state) && record.attempt > 0) {
        out["change"] = name_of(record.change);
        out["exit_code"] = record.exit_code;
        if (record.error != ErrorClass::none) out["error"] = name_of(record.error);
    }
    if (record.undone) out["undone"] = true;
    if (const auto message = task_message(record); !message.empty()) out["message"] = message;
    if (const auto waits = waits_for(run, task); !waits.empty()) out["waits_for"] = waits;
    if (record.blocked_by < run.plan.tasks) out["blocked_by"] = run.plan.task_name(record.blocked_by);
    if (!full) return out;
    out["since"] = moment_text(record.since);
    if (record.inputs != 0) out["inputs_digest"] = fmt::format("{:016x}", record.inputs);
    if (!record.detail) return out;
    if (!record.detail->inputs.is_null()) out["inputs"] = record.detail->inputs;
    if (!record.detail->values.empty()) out["values"] = record.detail->values;
    json::array past;
    for (const auto& one : record.detail->past)
        past.push_back(json::object{{"attempt", one.number},
                                    {"ended", name_of(one.ended)},
                                    {"error", name_of(one.error)},
                                    {"exit_code", one.exit_code},
                                    {"started_at", moment_text(one.started)},
                                    {"ended_at", moment_text(one.ended_at)},
                                    {"message", one.message}});
    if (!past.empty()) out["earlier"] = std::move(past);
    return out;
}

json::object progress(const JobRun& run, std::size_t max) {
    auto out = status_of(run);
    out["name"] = run.name;
    json::array running, waiting, failed;
    std::uint32_t deepest = Plan::none;
    for (std::uint32_t g = 0; g < run.plan.groups.size(); ++g) {
        const auto& of = run.plan.groups[g];
        bool open = false;
        for (std::uint32_t i = 0; i < of.count; ++i) {
            const auto task = of.first + i;
            const auto state = run.scheduler->record(task).state;
            open = open || !is_terminal(state);
            if (state == TaskState::running && running.size() < max) running.push_back(task_view(run, task, false));
            if ((state == TaskState::waiting || state == TaskState::ready) && waiting.size() < max)
                waiting.push_back(task_view(run, task, false));
            if ((state == TaskState::failed || state == TaskState::lost || state == TaskState::undo_failed) && failed.size() < max)
                failed.push_back(task_view(run, task, false));
        }
        if (open && (deepest == Plan::none || of.depth > run.plan.groups[deepest].depth)) deepest = g;
    }
    json::array path;
    while (deepest != Plan::none) {
        path.emplace_back(run.plan.spec.tasks[deepest].name);
        std::uint32_t next = Plan::none;
        for (const auto& edge : run.plan.groups[deepest].before)
            if (run.plan.groups[edge.group].depth + 1 == run.plan.groups[deepest].depth) next = edge.group;
        deepest = next;
    }
    out["running"] = std::move(running);
    out["waiting"] = std::move(waiting);
    out["failed"] = std::move(failed);
    out["critical_path"] = std::move(path);
    return out;
}

json::object plan_view(const Plan& plan) {
    json::array tasks, warnings;
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
        const auto& spec = plan.spec.tasks[i];
        json::array after, barriers;
        for (const auto& edge : plan.groups[i].after)
            after.push_back(json::object{{"task", plan.spec.tasks[edge.group].name}, {"same_host", edge.same_host}});
        for (std::size_t k = 0; k < spec.wait.size(); ++k)
            barriers.push_back(json::object{{"barrier", spec.wait[k].text()}, {"wanted", plan.groups[i].wanted[k]}});
        json::object one{{"name", spec.name},
                         {"count", plan.groups[i].count},
                         {"nodes", hosts_of(plan, plan.groups[i])},
                         {"after", std::move(after)},
                         {"wait", std::move(barriers)}};
        if (spec.run.given()) one["executor"] = spec.run.executor;
        if (!plan.groups[i].waves.empty()) one["waves"] = plan.groups[i].waves.size();
        tasks.push_back(std::move(one));
    }
    for (const auto& warning : plan.warnings) warnings.emplace_back(warning);
    return {{"name", plan.name},   {"digest", plan.digest},      {"tasks", std::move(tasks)},
            {"total", plan.tasks}, {"nodes", plan.hosts.size()}, {"warnings", std::move(warnings)}};
}

json::object simulation_view(const Plan& plan, const Simulation& simulation) {
    json::array path, groups, stuck;
    for (const auto& step : simulation.critical_path)
        path.push_back(json::object{{"task", plan.task_name(step.task)},
                                    {"start_ms", in_milliseconds(step.span.start)},
                                    {"end_ms", in_milliseconds(step.span.end)},
                                    {"message", step.message}});
    for (std::size_t i = 0; i < plan.groups.size(); ++i)
        groups.push_back(json::object{{"name", plan.spec.tasks[i].name},
                                      {"start_ms", in_milliseconds(simulation.groups[i].start)},
                                      {"end_ms", in_milliseconds(simulation.groups[i].end)}});
    for (const auto& one : simulation.stuck) stuck.emplace_back(one);
    return {{"makespan_ms", in_milliseconds(simulation.makespan)},
            {"end", name_of(simulation.end)},
            {"max_running", simulation.max_running},
            {"attempts", simulation.attempts},
            {"critical_path", std::move(path)},
            {"tasks", std::move(groups)},
            {"stuck", std::move(stuck)}};
}

} // namespace orrery::jobs
