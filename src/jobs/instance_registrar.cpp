#include "jobs/instance_registrar.h"

#include "catalog/kinds.h"
#include "core/json_fields.h"
#include "core/log.h"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace orrery::jobs {

namespace {

/// An Instance of the service on the node; with the tag, where the service has one.
std::optional<resource::Object> find_instance(const resource::Resources& resources, const resource::Kind& kind,
                                              const ServiceRef& service, const std::string& node) {
    resource::ListQuery query;
    query.fields = {{"node", node}, {"service", service.service}};
    const auto page = resources.list(kind, query);
    if (!page.ok()) return {};
    for (const auto& record : page->records) {
        auto object = resource::from_stored(*record);
        if (!object.ok()) continue;
        const auto* tags = object->spec.if_contains("tags");
        const bool tagged = tags != nullptr && tags->is_array() &&
                            std::any_of(tags->get_array().begin(), tags->get_array().end(),
                                        [&](const json::value& tag) { return tag.is_string() && tag.get_string() == service.tag; });
        if (service.tag.empty() || tagged) return std::move(*object);
    }
    return {};
}

} // namespace

void InstanceRegistrar::enqueue_all(const std::shared_ptr<JobRun>& run) {
    for (std::uint32_t g = 0; g < run->plan.groups.size(); ++g)
        if (!run->plan.spec.tasks[g].provides.empty())
            for (std::uint32_t i = 0; i < run->plan.groups[g].count; ++i) queue_.emplace_back(run, run->plan.groups[g].first + i);
    if (!queue_.empty()) wake_.notify_all();
}

void InstanceRegistrar::enqueue(const std::shared_ptr<JobRun>& run, std::uint32_t task) {
    queue_.emplace_back(run, task);
    wake_.notify_all();
}

asio::awaitable<void> InstanceRegistrar::run(Context ctx, store::Fence fence) {
    constexpr auto retry_after = std::chrono::seconds(5);
    for (;;) {
        while (!queue_.empty()) {
            const auto [run, task] = queue_.front();
            auto done = co_await register_task(run->context(), fence, *run, task);
            if (!done.ok()) {
                if (done.error().code == Code::cancelled || !engine_.leadership.leads()) co_return;
                log::warn(run->context(), "instances not registered task={} retry_in={} error=\"{}\"", run->plan.task_name(task),
                          to_text(retry_after), done.error().text());
                const auto slept = co_await engine_.clock.sleep(retry_after);
                if (!slept.ok()) co_return;
                continue;
            }
            if (!queue_.empty()) queue_.pop_front();
        }
        const auto signalled = co_await wake_.wait(ctx);
        if (!signalled.ok()) co_return;
    }
}

Task<Unit> InstanceRegistrar::register_task(Context ctx, store::Fence fence, const JobRun& run, std::uint32_t task) {
    if (engine_.resources.registry().find("Instance") == nullptr) co_return Unit{};
    const auto g = run.plan.group_of(task);
    const auto host = run.plan.host_in(g, task);
    for (const auto& service : run.plan.spec.tasks[g].provides) {
        if (!engine_.membership.declared(service.service)) continue; // no Service declares its port: others register it
        for (const auto one : run.plan.groups[g].hosts) {
            if (host != Plan::none && one != host) continue;
            CO_TRY(std::ignore, co_await register_instance(ctx, fence, run, task, service, run.plan.hosts[one]));
        }
    }
    co_return Unit{};
}

Task<Unit> InstanceRegistrar::register_instance(Context ctx, store::Fence fence, const JobRun& run, std::uint32_t task,
                                                const ServiceRef& service, std::string node) {
    const auto& instances = engine_.kind("Instance");
    const auto job = run.scheduler->job().state;
    const auto& record = run.scheduler->record(task);
    const bool started = record.done_once && !record.undone;
    const auto known = find_instance(engine_.resources, instances, service, node);
    const bool ours = known && text_at(known->spec, "provided_by") == run.name;
    resource::WriteOptions how;
    how.reason = fmt::format("job {}: {}", run.name, run.plan.task_name(task));
    how.fence = &fence;
    const auto tolerate = [](const Result<resource::Outcome>& done, Code expected) -> Result<Unit> {
        if (!done.ok() && done.error().code != expected) return done.error();
        return Unit{};
    };
    if (job == JobState::cancelled || job == JobState::undone || job == JobState::undo_failed) {
        if (!ours || started) co_return Unit{};
        co_return tolerate(co_await engine_.resources.remove(ctx, instances, known->name, how), Code::not_found);
    }
    if (job == JobState::planned || is_unwinding(job)) co_return Unit{};
    if (known) {
        if (!ours || !started || !flag_at(known->spec, "planned")) co_return Unit{};
        const json::value patch{{"spec", {{"planned", nullptr}}}};
        co_return tolerate(co_await engine_.resources.patch(ctx, instances, known->name, patch, how), Code::not_found);
    }
    if (is_terminal(job)) co_return Unit{}; // an operator has removed it since
    const auto id = service.tag.empty() ? service.service : fmt::format("{}-{}", service.service, service.tag);
    resource::Object object;
    object.kind = instances.name();
    object.name = catalog::resource_name(node, id);
    object.spec = {{"service", service.service}, {"node", node}, {"id", id}, {"provided_by", run.name}};
    if (!service.tag.empty()) object.spec["tags"] = json::array{json::string(service.tag)};
    if (!started) object.spec["planned"] = true;
    auto made = co_await engine_.resources.create(ctx, instances, std::move(object), how);
    if (!made.ok() && (made.error().code == Code::invalid || made.error().code == Code::conflict)) {
        log::warn(ctx, "instance not registered service={} node={} job={} error=\"{}\"", service.service, node, run.name,
                  made.error().text());
        co_return Unit{}; // another instance has that id there, or the Service was removed: `why` shows that there is none
    }
    if (!made.ok()) co_return std::move(made).error();
    co_return Unit{};
}

Task<Unit> InstanceRegistrar::remove_planned(Context ctx, store::Fence fence, std::string job) {
    const auto* instances = engine_.resources.registry().find("Instance");
    if (instances == nullptr) co_return Unit{};
    resource::ListQuery query;
    query.fields = {{"provided_by", job}};
    query.limit = 5000;
    CO_TRY(const auto page, engine_.resources.list(*instances, query));
    for (const auto& record : page.records) {
        auto object = resource::from_stored(*record);
        if (!object.ok() || !flag_at(object->spec, "planned")) continue;
        auto removed = co_await engine_.resources.remove(
            ctx, *instances, object->name,
            {.reason = fmt::format("job {} was deleted before it was started", job), .fence = &fence});
        if (!removed.ok() && removed.error().code != Code::not_found) co_return std::move(removed).error();
    }
    co_return Unit{};
}

} // namespace orrery::jobs
