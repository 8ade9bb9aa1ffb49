#include "jobs/explain.h"

#include "core/json_fields.h"
#include "jobs/live_job.h"
#include "jobs/view.h"
#include "jobs/waiting_reason.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::jobs {

namespace {

constexpr std::size_t max_jobs = 100; ///< unfinished jobs in one explanation
constexpr std::size_t max_explained_tasks = 200;

struct JobsExplainer {
    const resource::Resources& resources;
    const Engine& engine;

    Result<json::object> job(const resource::ExplainRequest& request) const {
        TRY(const auto object, resources.get(*resources.registry().find("Job"), request.name));
        if (text_at(object.status, "state") == "refused") {
            json::object out{{"state", "refused"},
                             {"context", context_id_of(object.status)},
                             {"message", fmt::format("job {} was refused: {}", request.name, text_at(object.status, "message"))}};
            if (const auto* problems = object.status.if_contains("problems")) out["problems"] = *problems;
            return out;
        }
        TRY(const auto run, engine.find(request.name));
        if (!request.part.empty()) return task(*run, request.part);
        auto out = progress(*run);
        out["context"] = run->context_id;
        auto lacking = missing(*run);
        const auto& job_record = run->scheduler->job();
        std::string first;
        if (!lacking.empty())
            first = fmt::format("; {}: {}", text_at(lacking.front().get_object(), "name"),
                                text_at(lacking.front().get_object(), "message"));
        out["message"] =
            fmt::format("job {} is {}{}, {} tasks ended{}", request.name, name_of(job_record.state),
                        job_record.text().empty() ? "" : fmt::format(" ({})", job_record.text()), text_at(out, "progress"), first);
        out["missing"] = std::move(lacking);
        return out;
    }

    Result<json::object> task(const JobRun& run, const std::string& name) const {
        const auto found = run.plan.find(name);
        if (!found)
            return Error{Code::not_found, fmt::format("job {} has no task {}", run.name, name.substr(0, 256)),
                         "orrery job show lists them; write it as task@node"};
        auto out = why(run, *found, engine.membership());
        out["context"] = run.context_id;
        return out;
    }

    /// Unfinished jobs, by name.
    std::vector<std::shared_ptr<const JobRun>> open_jobs(bool& more) const {
        std::vector<std::shared_ptr<const JobRun>> out;
        resource::ListQuery query;
        query.limit = 500;
        for (;;) {
            const auto page = resources.list(*resources.registry().find("Job"), query);
            if (!page.ok()) return out;
            for (const auto& record : page->records) {
                const auto object = resource::from_stored(*record);
                if (!object.ok()) continue;
                const auto state = text_at(object->status, "state");
                const auto known = job_state_named(state);
                if (state == "refused" || (known && is_terminal(*known))) continue;
                if (out.size() == max_jobs) {
                    more = true;
                    return out;
                }
                if (auto run = engine.find(object->name); run.ok()) out.push_back(std::move(*run));
            }
            if (page->next.empty()) return out;
            query.after = page->next;
        }
    }

    Result<json::object> service(const resource::ExplainRequest& request) const {
        json::array providers, waiting;
        bool more = false;
        for (const auto& run : open_jobs(more))
            for (std::uint32_t g = 0; g < run->plan.groups.size(); ++g) {
                const auto& spec = run->plan.spec.tasks[g];
                const auto& group = run->plan.groups[g];
                const bool provides = std::any_of(spec.provides.begin(), spec.provides.end(),
                                                  [&](const ServiceRef& one) { return one.service == request.name; });
                std::vector<std::size_t> barriers;
                for (std::size_t k = 0; k < spec.wait.size(); ++k)
                    if (spec.wait[k].service == request.name && !run->scheduler->barrier(g, k).met) barriers.push_back(k);
                if (!provides && barriers.empty()) continue;
                for (std::uint32_t i = 0; i < group.count; ++i) {
                    const auto& record = run->scheduler->record(group.first + i);
                    json::object one{
                        {"task", run->plan.task_name(group.first + i)}, {"job", run->name}, {"state", name_of(record.state)}};
                    if (provides && providers.size() < max_explained_tasks) providers.push_back(one);
                    if (barriers.empty() || is_terminal(record.state) || waiting.size() >= max_explained_tasks) continue;
                    const auto seen = run->scheduler->barrier(g, barriers.front());
                    one["message"] = fmt::format(
                        "{}: {}", spec.wait[barriers.front()].text(),
                        seen.seen ? fmt::format("{} of {} seen", *seen.seen, group.wanted[barriers.front()]) : "no evidence");
                    waiting.push_back(std::move(one));
                }
            }
        json::object out{{"message", waiting.empty() ? std::string("no task waits for it")
                                                     : fmt::format("tasks that wait for it: {}", waiting.size())},
                         {"waiting_tasks", std::move(waiting)},
                         {"provided_by", std::move(providers)}};
        if (more) out["jobs_left_out"] = true;
        return out;
    }

    Result<json::object> node(const resource::ExplainRequest& request) const {
        json::array tasks;
        std::size_t running = 0;
        bool more = false;
        for (const auto& run : open_jobs(more)) {
            const auto& hosts = run->plan.hosts;
            const auto host = std::find(hosts.begin(), hosts.end(), request.name);
            if (host == hosts.end()) continue;
            for (std::uint32_t g = 0; g < run->plan.groups.size(); ++g) {
                const auto number = run->plan.task_on(g, static_cast<std::uint32_t>(host - hosts.begin()));
                if (number == Plan::none || is_terminal(run->scheduler->record(number).state)) continue;
                running += run->scheduler->record(number).state == TaskState::running ? 1 : 0;
                if (tasks.size() == max_explained_tasks) continue;
                auto one = task_view(*run, number, false);
                one["job"] = run->name;
                tasks.push_back(std::move(one));
            }
        }
        json::object out{{"message", tasks.empty()
                                         ? std::string("no task runs or waits on it")
                                         : fmt::format("tasks on it: {} running, {} waiting", running, tasks.size() - running)},
                         {"tasks", std::move(tasks)}};
        if (more) out["jobs_left_out"] = true;
        return out;
    }
};

} // namespace

void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Engine& engine) {
    using History = resource::Explainers::History;
    const JobsExplainer with{resources, engine};
    explainers.add("Job", History::no, [with](const auto& request) { return with.job(request); });
    explainers.contribute("Service", "Job", [with](const auto& request) { return with.service(request); });
    explainers.contribute("Node", "Job", [with](const auto& request) { return with.node(request); });
}

} // namespace orrery::jobs
