#include "core/json_fields.h"
#include "jobs/engine.h"
#include "jobs/journal.h"
#include "jobs/live_job.h"
#include "jobs/values.h"

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

/// Which unfinished jobs use a Service or a Node, so that these are not removed.
namespace orrery::jobs {

namespace {

/// From the text of the record: most jobs have ended, and need not be parsed.
bool may_be_unfinished(const store::Record& record) {
    const auto status = std::string_view(record.value).substr(std::min(record.value.rfind("\"status\":"), record.value.size()));
    const auto has_state = [&](std::string_view state) {
        return status.find(fmt::format("\"state\":\"{}\"", state)) != std::string_view::npos;
    };
    for (std::size_t i = 0; i < job_states; ++i)
        if (const auto state = static_cast<JobState>(i); is_terminal(state) && has_state(name_of(state))) return false;
    return !has_state("refused");
}

using HowUsed = std::function<std::string(const resource::Object& job, const JobSpec& spec)>;

/// "Job/upgrade (task keystone waits for it)" for each unfinished job for which `how` returns a text.
std::vector<std::string> jobs_that(const resource::Resources& resources, std::size_t limit, const HowUsed& how) {
    std::vector<std::string> out;
    resource::ListQuery query;
    query.limit = 1000;
    for (;;) {
        const auto page = resources.list(*resources.registry().find("Job"), query);
        if (!page.ok()) return out;
        for (const auto& record : page->records) {
            if (out.size() >= limit) return out;
            if (!may_be_unfinished(*record)) continue;
            const auto object = resource::from_stored(*record);
            if (!object.ok()) continue;
            const auto spec = read_job(object->spec);
            if (!spec.ok()) continue;
            if (const auto used = how(*object, *spec); !used.empty()) out.push_back(fmt::format("Job/{} ({})", object->name, used));
        }
        if (page->next.empty()) return out;
        query.after = page->next;
    }
}

bool uses_value(const json::value& value, std::string_view service) {
    const auto references = references_in(value);
    return std::any_of(references.begin(), references.end(), [&](const std::string& text) {
        const auto reference = parse_reference(text);
        return reference.ok() && reference->type == Reference::Type::service && reference->name == service;
    });
}

std::string how_service_is_used(const JobSpec& spec, std::string_view service) {
    for (const auto& task : spec.tasks) {
        for (const auto& barrier : task.wait)
            if (barrier.service == service) return fmt::format("task {} waits for it", task.name);
        for (const auto& offered : task.provides)
            if (offered.service == service) return fmt::format("task {} provides it", task.name);
        for (const auto& rerun : task.rerun_on)
            if (rerun.of.service == service) return fmt::format("task {} follows it", task.name);
        for (const auto* body : {&task.run.body, &task.check.body, &task.verify.body, &task.undo.body})
            if (uses_value(*body, service)) return fmt::format("task {} takes values from it", task.name);
        if (uses_value(json::value(task.with), service)) return fmt::format("task {} takes values from it", task.name);
        for (const auto& [name, text] : task.environment)
            if (uses_value(json::value(text), service)) return fmt::format("task {} takes values from it", task.name);
    }
    for (const auto& barrier : spec.done)
        if (barrier.service == service) return "its `done` waits for it";
    return {};
}

/// By its placement, which is stored when it starts; before that, by its selectors.
std::string how_node_is_used(const resource::Resources& resources, const resource::Object& job, const JobSpec& spec,
                             const resource::Object& node) {
    std::string placement;
    for (const auto& record : resources.store().range(Journal::plan_prefix(text_at(job.status, "uid")), 1000).records)
        placement += record->value;
    if (!placement.empty()) {
        const auto plan = plan_from(job.name, spec, placement);
        if (!plan.ok()) return {};
        for (std::uint32_t g = 0; g < plan->groups.size(); ++g)
            for (const auto host : plan->groups[g].hosts)
                if (plan->hosts[host] == node.name) return fmt::format("task {} runs on it", plan->spec.tasks[g].name);
        return {};
    }
    for (const auto& task : spec.tasks) {
        const auto selector = resource::LabelSelector::parse(task.on.labels);
        const bool chosen = task.on.type == OnSpec::Type::nodes
                                ? std::find(task.on.nodes.begin(), task.on.nodes.end(), node.name) != task.on.nodes.end()
                                : task.on.type == OnSpec::Type::labels && selector.ok() && selector->matches(node.labels);
        if (chosen) return fmt::format("task {} runs on it", task.name);
    }
    return {};
}

} // namespace

void add_users(resource::Registry& registry) {
    registry.add_users("Service", [](const resource::Resources& resources, std::string_view name, std::size_t limit) {
        return jobs_that(resources, limit,
                         [&](const resource::Object&, const JobSpec& spec) { return how_service_is_used(spec, name); });
    });
    registry.add_users("Node", [](const resource::Resources& resources, std::string_view name, std::size_t limit) {
        const auto node = resources.get(*resources.registry().find("Node"), name);
        if (!node.ok()) return std::vector<std::string>{};
        return jobs_that(resources, limit, [&](const resource::Object& job, const JobSpec& spec) {
            return how_node_is_used(resources, job, spec, *node);
        });
    });
}

} // namespace orrery::jobs
