#include "jobs/job_migration.h"

#include <boost/json/array.hpp>

#include <string_view>
#include <utility>

namespace orrery::jobs {

namespace {

void rename_key(boost::json::object& object, std::string_view from, std::string_view to) {
    auto* value = object.if_contains(from);
    if (value == nullptr || object.contains(to)) return;
    auto moved = std::move(*value);
    object.erase(from);
    object[to] = std::move(moved);
}

void migrate_task(boost::json::value& task) {
    auto* object = task.if_object();
    auto* retries = object == nullptr ? nullptr : object->if_contains("retries");
    if (retries == nullptr || !retries->is_object()) return;
    rename_key(retries->get_object(), "first", "delay");
    rename_key(retries->get_object(), "longest", "max_delay");
}

} // namespace

void migrate_job_spec(boost::json::object& spec) {
    auto* tasks = spec.if_contains("tasks");
    if (tasks == nullptr) return;
    if (auto* list = tasks->if_array())
        for (auto& task : *list) migrate_task(task);
    if (auto* named = tasks->if_object())
        for (auto& [name, task] : *named) migrate_task(task);
}

} // namespace orrery::jobs
