#include "gslb/model/migrations.h"

#include <boost/json/array.hpp>

#include <string_view>
#include <utility>

namespace orrery::gslb {

namespace {

void rename_key(json::object& object, std::string_view from, std::string_view to) {
    const auto old = object.find(from);
    if (old == object.end()) return;
    auto value = std::move(old->value());
    object.erase(old);
    if (!object.contains(to)) object[to] = std::move(value);
}

json::object* object_in(json::object& holder, std::string_view key) {
    auto* value = holder.if_contains(key);
    return value == nullptr ? nullptr : value->if_object();
}

/// Calls `migrate` with each object of a list.
template <class Migrate> void for_objects(json::object& holder, std::string_view key, Migrate migrate) {
    auto* value = holder.if_contains(key);
    auto* list = value == nullptr ? nullptr : value->if_array();
    if (list == nullptr) return;
    for (auto& item : *list)
        if (auto* object = item.if_object()) migrate(*object);
}

void migrate_withheld(json::object& holder) {
    for_objects(holder, "withheld", [](json::object& one) { rename_key(one, "words", "message"); });
}

void migrate_classes(json::object& holder) {
    for_objects(holder, "classes", [](json::object& one) {
        rename_key(one, "picking", "policy");
        rename_key(one, "most", "max_answers");
    });
}

void migrate_trigger(json::object& trigger) {
    rename_key(trigger, "words", "message");
    rename_key(trigger, "said", "override");
    rename_key(trigger, "taken_back", "cleared");
    if (auto* cleared = object_in(trigger, "cleared")) rename_key(*cleared, "said", "override");
    for_objects(trigger, "evidence", [](json::object& one) {
        rename_key(one, "says", "state");
        rename_key(one, "text", "message");
        rename_key(one, "set_aside", "quarantined");
        rename_key(one, "would_say", "ignored_state");
        rename_key(one, "left_out", "excluded");
    });
    for_objects(trigger, "also", [](json::object& one) { migrate_trigger(one); });
}

void migrate_task(json::object& task) {
    for (const auto* part : {"run", "check", "verify", "undo"})
        if (auto* run = object_in(task, part)) {
            rename_key(*run, "names", "gslb");
            if (auto* body = object_in(*run, "gslb")) rename_key(*body, "return", "undrain");
        }
}

} // namespace

void migrate_load_balancer_status(json::object& status) {
    migrate_withheld(status);
    migrate_classes(status);
    for_objects(status, "published", [](json::object& one) {
        rename_key(one, "path", "target");
        rename_key(one, "why", "message");
    });
}

void migrate_pool_status(json::object& status) { migrate_withheld(status); }

void migrate_inputs(json::object& inputs) {
    rename_key(inputs, "rule", "spec");
    rename_key(inputs, "places", "geo_source");
    rename_key(inputs, "memory", "state");
    for_objects(inputs, "pools", [](json::object& pool) {
        for_objects(pool, "members", [](json::object& member) {
            rename_key(member, "why", "message");
            rename_key(member, "held", "held_in");
        });
    });
}

void migrate_tasks(json::object& spec) {
    for_objects(spec, "tasks", migrate_task);
    if (auto* named = object_in(spec, "tasks"))
        for (auto& task : *named)
            if (auto* object = task.value().if_object()) migrate_task(*object);
}

void migrate_decision(json::object& spec) {
    rename_key(spec, "because", "messages");
    migrate_withheld(spec);
    if (auto* trigger = object_in(spec, "trigger")) migrate_trigger(*trigger);
    if (auto* after = object_in(spec, "after")) migrate_classes(*after);
    if (auto* inputs = object_in(spec, "inputs")) migrate_inputs(*inputs);
}

} // namespace orrery::gslb
