#include "jobs/view.h"

#include "core/text.h"
#include "jobs/engine_state.h"

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

std::string edges_text(const JobRun& run, std::uint32_t task) {
    const auto& plan = run.plan;
    const auto g = plan.group_of(task);
    std::string out;
    for (const auto& edge : plan.groups[g].after) {
        if (edge.same_host) {
            const auto other = plan.task_on(edge.group, plan.host_in(g, task));
            const auto& row = run.scheduler->row(other);
            if (!row.done_once) out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", plan.task_name(other), name_of(row.state));
            continue;
        }
        std::uint32_t left = 0;
        const auto& of = plan.groups[edge.group];
        for (std::uint32_t i = 0; i < of.count; ++i) left += run.scheduler->row(of.first + i).done_once ? 0 : 1;
        if (left > 0)
            out += fmt::format("{}{} ({} of {} to go)", out.empty() ? "" : ", ", plan.spec.tasks[edge.group].name, left, of.count);
    }
    return out;
}

} // namespace

std::string waits_for(const JobRun& run, std::uint32_t task) {
    const auto& row = run.scheduler->row(task);
    const auto g = run.plan.group_of(task);
    switch (row.state) {
    case TaskState::pending: {
        if (run.scheduler->head().state == JobState::planned) return "the approval of its plan";
        const auto edges = edges_text(run, task);
        return edges.empty() ? std::string() : "the end of " + edges;
    }
    case TaskState::ready: return run.scheduler->why_not_begun(task);
    case TaskState::running: {
        const auto trouble = run.trouble(task);
        return trouble.empty() ? std::string() : "its machine: " + trouble;
    }
    case TaskState::waiting: break;
    default: return {};
    }
    switch (row.waits) {
    case Waits::approval: return "the approval of a person";
    case Waits::decision: return fmt::format("the decision of a person: {}", row.words());
    case Waits::backoff: return fmt::format("the next try: {}", row.words());
    case Waits::evidence: return fmt::format("evidence: {}", row.words());
    default: break;
    }
    std::string out;
    const auto& barriers = run.plan.spec.tasks[g].wait;
    for (std::size_t k = 0; k < barriers.size(); ++k) {
        const auto seen = run.scheduler->barrier(g, k);
        if (seen.met) continue;
        out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", barriers[k].text(),
                           seen.seen ? fmt::format("{} of {} seen", *seen.seen, run.plan.groups[g].wanted[k]) : "no evidence");
    }
    return out;
}

json::object task_view(const JobRun& run, std::uint32_t task, bool full) {
    const auto& row = run.scheduler->row(task);
    const auto g = run.plan.group_of(task);
    const auto host = run.plan.host_in(g, task);
    json::object out{{"task", run.plan.task_name(task)}, {"name", run.plan.spec.tasks[g].name}, {"state", name_of(row.state)}};
    if (host != Plan::none) out["node"] = run.plan.hosts[host];
    if (row.attempt > 0) {
        out["attempt"] = row.attempt;
        out["started_at"] = moment_text(row.started);
        if (row.state != TaskState::running) out["ended_at"] = moment_text(row.ended);
        out["phase"] = name_of(row.phase);
    }
    if (is_over(row.state) && row.attempt > 0) {
        out["change"] = name_of(row.change);
        out["exit_code"] = row.exit_code;
        if (row.error != ErrorClass::none) out["error"] = name_of(row.error);
    }
    if (row.undone) out["undone"] = true;
    if (!row.words().empty()) out["words"] = row.words();
    if (auto waits = waits_for(run, task); !waits.empty()) out["waits_for"] = std::move(waits);
    if (row.blocked_by < run.plan.tasks) out["blocked_by"] = run.plan.task_name(row.blocked_by);
    if (!full) return out;
    out["since"] = moment_text(row.since);
    if (row.inputs != 0) out["inputs_digest"] = fmt::format("{:016x}", row.inputs);
    if (!row.detail) return out;
    if (!row.detail->inputs.is_null()) out["inputs"] = row.detail->inputs;
    if (!row.detail->values.empty()) out["values"] = row.detail->values;
    json::array past;
    for (const auto& one : row.detail->past)
        past.push_back(json::object{{"attempt", one.number},
                                    {"ended", name_of(one.ended)},
                                    {"error", name_of(one.error)},
                                    {"exit_code", one.exit_code},
                                    {"started_at", moment_text(one.started)},
                                    {"ended_at", moment_text(one.over)},
                                    {"words", one.words}});
    if (!past.empty()) out["earlier"] = std::move(past);
    return out;
}

json::object why(const JobRun& run, std::uint32_t task, const Membership& membership) {
    const auto& plan = run.plan;
    const auto g = plan.group_of(task);
    auto out = task_view(run, task, true);
    json::array barriers;
    const auto& waits = plan.spec.tasks[g].wait;
    for (std::size_t k = 0; k < waits.size(); ++k) {
        json::object one{
            {"barrier", waits[k].text()}, {"wanted", plan.groups[g].wanted[k]}, {"met", run.scheduler->barrier(g, k).met}};
        auto members = membership.members(waits[k].service, waits[k].tag);
        if (!members.ok()) {
            one["evidence"] = "none: " + members.error().message;
        } else {
            std::sort(members->begin(), members->end(), [](const Member& a, const Member& b) { return a.node < b.node; });
            json::array seen;
            for (const auto& member : *members) {
                if (seen.size() == 50) break;
                json::object object{{"node", member.node}, {"state", name_of(member.state)}};
                if (!member.why.empty()) object["why"] = member.why;
                seen.push_back(std::move(object));
            }
            one["instances"] = std::move(seen);
        }
        barriers.push_back(std::move(one));
    }
    if (!barriers.empty()) out["barriers"] = std::move(barriers);
    json::array chain;
    for (auto at = run.scheduler->row(task).blocked_by; at < plan.tasks && chain.size() < 100;
         at = run.scheduler->row(at).blocked_by)
        chain.push_back(json::object{{"task", plan.task_name(at)},
                                     {"state", name_of(run.scheduler->row(at).state)},
                                     {"words", run.scheduler->row(at).words()}});
    if (!chain.empty()) out["blocked_by_chain"] = std::move(chain);
    std::string sentence;
    const auto& row = run.scheduler->row(task);
    if (auto reason = waits_for(run, task); !reason.empty())
        sentence = fmt::format("{} is {}: it waits for {}", plan.task_name(task), name_of(row.state), reason);
    else if (out.contains("blocked_by_chain"))
        sentence = fmt::format("{} is {}, because {} {}", plan.task_name(task), name_of(row.state),
                               text_in(out["blocked_by_chain"].as_array().back().as_object(), "task"),
                               text_in(out["blocked_by_chain"].as_array().back().as_object(), "state"));
    else
        sentence =
            fmt::format("{} is {}{}{}", plan.task_name(task), name_of(row.state), row.words().empty() ? "" : ": ", row.words());
    out["why"] = std::move(sentence);
    return out;
}

json::array missing(const JobRun& run, std::size_t most) {
    json::array out;
    const auto& head = run.scheduler->head();
    const auto add = [&](std::string what, std::string why_) {
        if (out.size() < most) out.push_back(json::object{{"what", std::move(what)}, {"why", std::move(why_)}});
    };
    if (head.state == JobState::succeeded || head.state == JobState::converged) return out;
    if (head.paused) add("job", fmt::format("it is paused {}", head.words));
    for (std::uint32_t task = 0; task < run.plan.tasks && out.size() < most; ++task) {
        const auto& row = run.scheduler->row(task);
        if (row.state == TaskState::succeeded) continue;
        auto reason = waits_for(run, task);
        if (reason.empty()) reason = std::string(row.words());
        add(run.plan.task_name(task), fmt::format("{}{}{}", name_of(row.state), reason.empty() ? "" : ": ", reason));
    }
    for (std::uint32_t g = 0; g < run.plan.groups.size(); ++g)
        if (run.scheduler->rerun_pending(g))
            add(run.plan.spec.tasks[g].name, "a service it follows has changed, and it may have to run again");
    for (std::size_t k = 0; k < run.plan.spec.done.size(); ++k) {
        const auto seen = run.scheduler->done_barrier(k);
        if (!seen.met)
            add(run.plan.spec.done[k].service,
                fmt::format("{}: {}", run.plan.spec.done[k].text(),
                            seen.seen ? fmt::format("{} of {} seen", *seen.seen, run.plan.done_wanted[k]) : "no evidence"));
    }
    if (out.empty()) add("job", fmt::format("it is {}{}{}", name_of(head.state), head.words.empty() ? "" : ": ", head.words));
    return out;
}

json::object progress(const JobRun& run, std::size_t most) {
    auto out = status_of(run);
    out["name"] = run.name;
    json::array running, waiting, failed;
    std::uint32_t deepest = Plan::none;
    for (std::uint32_t g = 0; g < run.plan.groups.size(); ++g) {
        const auto& of = run.plan.groups[g];
        bool open = false;
        for (std::uint32_t i = 0; i < of.count; ++i) {
            const auto task = of.first + i;
            const auto state = run.scheduler->row(task).state;
            open = open || !is_over(state);
            if (state == TaskState::running && running.size() < most) running.push_back(task_view(run, task, false));
            if ((state == TaskState::waiting || state == TaskState::ready) && waiting.size() < most)
                waiting.push_back(task_view(run, task, false));
            if ((state == TaskState::failed || state == TaskState::lost) && failed.size() < most)
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
            barriers.push_back(json::object{{"text", spec.wait[k].text()}, {"wanted", plan.groups[i].wanted[k]}});
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
    return {{"name", plan.name},   {"digest", plan.digest},         {"tasks", std::move(tasks)},
            {"total", plan.tasks}, {"machines", plan.hosts.size()}, {"warnings", std::move(warnings)}};
}

json::object simulation_view(const Plan& plan, const Simulation& simulation) {
    json::array path, groups, stuck;
    for (const auto& step : simulation.critical_path)
        path.push_back(json::object{{"task", plan.task_name(step.task)},
                                    {"start_ms", in_milliseconds(step.span.start)},
                                    {"end_ms", in_milliseconds(step.span.end)},
                                    {"because", step.because}});
    for (std::size_t i = 0; i < plan.groups.size(); ++i)
        groups.push_back(json::object{{"name", plan.spec.tasks[i].name},
                                      {"start_ms", in_milliseconds(simulation.groups[i].start)},
                                      {"end_ms", in_milliseconds(simulation.groups[i].end)}});
    for (const auto& one : simulation.stuck) stuck.emplace_back(one);
    return {{"makespan_ms", in_milliseconds(simulation.makespan)},
            {"end", name_of(simulation.end)},
            {"most_running", simulation.most_running},
            {"attempts", simulation.attempts},
            {"critical_path", std::move(path)},
            {"tasks", std::move(groups)},
            {"stuck", std::move(stuck)}};
}

} // namespace orrery::jobs
