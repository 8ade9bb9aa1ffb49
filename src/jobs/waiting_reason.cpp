#include "jobs/waiting_reason.h"

#include "core/json_fields.h"
#include "jobs/live_job.h"
#include "jobs/planned_membership.h"
#include "jobs/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace orrery::jobs {

namespace {

std::string edges_text(const JobRun& run, std::uint32_t task) {
    const auto& plan = run.plan;
    const auto g = plan.group_of(task);
    std::string out;
    for (const auto& edge : plan.groups[g].after) {
        if (edge.same_host) {
            const auto other = plan.task_on(edge.group, plan.host_in(g, task));
            const auto& record = run.scheduler->record(other);
            if (!record.done_once)
                out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", plan.task_name(other), name_of(record.state));
            continue;
        }
        std::uint32_t left = 0;
        const auto& of = plan.groups[edge.group];
        for (std::uint32_t i = 0; i < of.count; ++i) left += run.scheduler->record(of.first + i).done_once ? 0 : 1;
        if (left > 0)
            out += fmt::format("{}{} ({} of {} to go)", out.empty() ? "" : ", ", plan.spec.tasks[edge.group].name, left, of.count);
    }
    return out;
}

} // namespace

std::string task_message(const TaskRecord& record) {
    if (!record.message().empty()) return std::string(record.message());
    if (record.state == TaskState::cancelled) return record.attempt == 0 ? "it never started" : "it was ended with its job";
    if (record.state == TaskState::undone) return "its undo succeeded";
    return {};
}

std::string waits_for(const JobRun& run, std::uint32_t task) {
    const auto& record = run.scheduler->record(task);
    const auto g = run.plan.group_of(task);
    switch (record.state) {
    case TaskState::pending: {
        if (run.scheduler->job().state == JobState::planned) return "the approval of its plan";
        const auto edges = edges_text(run, task);
        return edges.empty() ? std::string() : "the end of " + edges;
    }
    case TaskState::ready: return run.scheduler->blocked_reason(task); // limits, waves, rolling slots: scheduler/dispatcher.cpp
    case TaskState::running: {
        const auto problem = run.problem(task);
        return problem.empty() ? std::string() : "its node: " + problem;
    }
    case TaskState::waiting: break;
    default: return {};
    }
    switch (record.waits) {
    case Waits::approval: return "the approval of a person";
    case Waits::decision: return fmt::format("the decision of a person: {}", record.message());
    case Waits::backoff: return fmt::format("the next try: {}", record.message());
    case Waits::evidence: return fmt::format("evidence: {}", record.message());
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

namespace {

/// The job's own tasks that provide what a barrier waits for: "start@db-1 (succeeded)".
json::array providers_view(const JobRun& run, const BarrierSpec& barrier) {
    constexpr std::size_t max_shown = 20;
    json::array out;
    for (const auto g : providers_of(run.plan, barrier.service, barrier.tag))
        for (std::uint32_t i = 0; i < run.plan.groups[g].count && out.size() < max_shown; ++i) {
            const auto provider = run.plan.groups[g].first + i;
            out.emplace_back(fmt::format("{} ({})", run.plan.task_name(provider), name_of(run.scheduler->record(provider).state)));
        }
    return out;
}

/// Which providers could still open a closed barrier, in one sentence.
std::string who_provides(const JobRun& run, const BarrierSpec& barrier, const Result<Members>& members) {
    if (barrier.is_dns()) return "the DNS servers of that name";
    const auto providers = providers_view(run, barrier);
    const bool unregistered = members.ok() && members->all.empty();
    if (providers.empty())
        return fmt::format("no task of this job provides it: it is an external service{}",
                           unregistered ? ", and no instance of it is registered" : "");
    std::string out;
    for (const auto& one : providers) out += (out.empty() ? "" : ", ") + std::string(std::string_view(one.as_string()));
    return fmt::format("{}{}", out, unregistered ? "; no instance of it is registered" : "");
}

json::array instances_view(const Members& members) {
    constexpr std::size_t max_shown = 50;
    json::array out;
    for (const auto& member : members.all) {
        if (out.size() == max_shown) break;
        json::object object{{"node", member.node}, {"state", name_of(member.state)}};
        if (!member.why.empty()) object["message"] = member.why;
        if (member.evidence != Evidence::confirmed) object["evidence"] = "not confirmed since this server started";
        out.push_back(std::move(object));
    }
    return out;
}

json::array barriers_view(const JobRun& run, std::uint32_t group, const Membership& catalog) {
    const PlannedMembership membership(catalog, run.plan, run.scheduler->records());
    const auto& waits = run.plan.spec.tasks[group].wait;
    json::array out;
    for (std::size_t k = 0; k < waits.size(); ++k) {
        const bool met = run.scheduler->barrier(group, k).met;
        json::object one{{"barrier", waits[k].text()}, {"wanted", run.plan.groups[group].wanted[k]}, {"met", met}};
        const auto members = membership.members(waits[k].service, waits[k].tag);
        one["providers"] = providers_view(run, waits[k]);
        if (!met) one["provided_by"] = who_provides(run, waits[k], members);
        if (members.ok())
            one["instances"] = instances_view(*members);
        else
            one["evidence"] = "none: " + members.error().message;
        out.push_back(std::move(one));
    }
    return out;
}

/// The tasks whose end made this one skip, the nearest first.
json::array blocking_tasks(const JobRun& run, std::uint32_t task) {
    constexpr std::size_t max_shown = 100;
    json::array out;
    for (auto at = run.scheduler->record(task).blocked_by; at < run.plan.tasks && out.size() < max_shown;
         at = run.scheduler->record(at).blocked_by)
        out.push_back(json::object{{"task", run.plan.task_name(at)},
                                   {"state", name_of(run.scheduler->record(at).state)},
                                   {"message", run.scheduler->record(at).message()}});
    return out;
}

} // namespace

json::object why(const JobRun& run, std::uint32_t task, const Membership& catalog) {
    const auto& record = run.scheduler->record(task);
    auto out = task_view(run, task, true);
    auto barriers = barriers_view(run, run.plan.group_of(task), catalog);
    auto chain = blocking_tasks(run, task);
    auto message = fmt::format("{} is {}", run.plan.task_name(task), name_of(record.state));
    if (const auto reason = waits_for(run, task); !reason.empty())
        message += fmt::format(": {}{}", record.state == TaskState::ready ? "" : "it waits for ", reason);
    else if (!chain.empty())
        message +=
            fmt::format(", because {} {}", text_at(chain.back().as_object(), "task"), text_at(chain.back().as_object(), "state"));
    else if (const auto end = task_message(record); !end.empty())
        message += fmt::format(": {}", end);
    out["message"] = message;
    if (!barriers.empty()) out["barriers"] = std::move(barriers);
    if (!chain.empty()) out["blocked_by_chain"] = std::move(chain);
    return out;
}

namespace {

/// `done` is met: what of it must still hold for some time.
void add_holds_of_done(const JobSpec& job, const std::function<void(std::string, std::string)>& add) {
    for (const auto& barrier : job.done)
        if (barrier.hold > Duration::zero())
            add(barrier.service, fmt::format("{}: met, but not for {} yet", barrier.text(), to_text(barrier.hold)));
    if (job.done_hold > Duration::zero())
        add("job", fmt::format("all of \"done\" is met, and must hold for {}", to_text(job.done_hold)));
}

} // namespace

json::array missing(const JobRun& run, std::size_t max) {
    json::array out;
    const auto& job = run.scheduler->job();
    const auto add = [&](std::string name, std::string message) {
        if (out.size() < max) out.push_back(json::object{{"name", std::move(name)}, {"message", std::move(message)}});
    };
    if (job.state == JobState::succeeded || job.state == JobState::converged) return out;
    if (job.paused) add("job", "it is " + job.text());
    for (std::uint32_t task = 0; task < run.plan.tasks && out.size() < max; ++task) {
        const auto& record = run.scheduler->record(task);
        if (record.state == TaskState::succeeded) continue;
        auto reason = waits_for(run, task);
        if (reason.empty()) reason = std::string(record.message());
        add(run.plan.task_name(task), fmt::format("{}{}{}", name_of(record.state), reason.empty() ? "" : ": ", reason));
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
    if (out.empty() && job.state == JobState::running) add_holds_of_done(run.plan.spec, add);
    if (out.empty()) add("job", fmt::format("it is {}{}{}", name_of(job.state), job.message.empty() ? "" : ": ", job.message));
    return out;
}

} // namespace orrery::jobs
