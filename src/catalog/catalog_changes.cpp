#include "catalog/catalog_state.h"
#include "core/ascii.h"
#include "core/context.h"
#include "core/json_fields.h"
#include "core/log.h"

#include <algorithm>
#include <tuple>

/// Changes of the store: Nodes, CatalogNodes, Services and Instances.
namespace orrery::catalog {

Catalog::State_::State_(store::Store& store) {
    revisions.services = revisions.nodes = revisions.checks = revisions.all = std::max<Revision>(1, store.revision());
    loading = true;
    observers.push_back(store.observe("nodes/", [this](const store::Event& event) { node_changed(event); }));
    observers.push_back(store.observe("catalognodes/", [this](const store::Event& event) { foreign_changed(event); }));
    observers.push_back(store.observe("services/", [this](const store::Event& event) { service_changed(event); }));
    observers.push_back(store.observe("instances/", [this](const store::Event& event) { instance_changed(event); }));
    loading = false;
    // Earlier removals are unknown, so blocking queries with an older index must return at once.
    for (auto& [name, service] : services) service.revision = revisions.all;
    for (auto& [name, node] : nodes) {
        node.revision = revisions.all;
        join_node(node, false);
    }
}

std::optional<resource::Object> Catalog::State_::read(const store::Event& event) {
    if (!event.record) return std::nullopt;
    auto object = resource::from_stored(*event.record);
    if (object.ok()) return std::move(*object);
    log::warn(Context::background(), "{} does not read and is left out of the catalog: {}", event.key, object.error().message);
    return std::nullopt;
}

void Catalog::State_::node_changed(const store::Event& event) {
    const auto name = name_in(event);
    auto& source = nodes[ascii_lower(name)];
    const auto object = read(event);
    if (object)
        source.node = resource::Node::from(*object);
    else
        source.node.reset();
    if (event.record) {
        source.node_created = event.record->created;
        source.node_modified = event.record->modified;
    }
    node_source_changed(ascii_lower(name), revision_of(event), true);
    count_roles(name, object ? object->labels : std::map<std::string, std::string>{}, revision_of(event));
}

void Catalog::State_::foreign_changed(const store::Event& event) {
    const auto resource = name_in(event);
    const auto object = read(event);
    const auto now = revision_of(event);
    const auto name = object ? ascii_lower(text_at(object->spec, "node")) : std::string();
    if (const auto was = foreign_names.find(resource); was != foreign_names.end() && was->second != name) {
        auto& old = nodes[was->second];
        if (old.foreign && old.foreign->resource == resource) old.foreign.reset();
        const auto old_name = was->second;
        foreign_names.erase(was);
        node_source_changed(old_name, now, true);
    }
    if (!object) return;
    foreign_names[resource] = name;
    auto& source = nodes[name];
    NodeSource::Foreign foreign;
    foreign.resource = resource;
    foreign.view.name = text_at(object->spec, "node");
    foreign.view.id = text_at(object->spec, "id");
    foreign.view.address = text_at(object->spec, "address");
    foreign.view.meta = text_map_at(object->spec, "meta");
    foreign.view.tagged_addresses = text_map_at(object->spec, "tagged_addresses");
    const auto* maintenance = object->spec.if_contains("maintenance");
    foreign.view.maintenance = maintenance != nullptr && maintenance->is_bool() && maintenance->get_bool();
    foreign.view.maintenance_reason = text_at(object->spec, "maintenance_reason");
    foreign.view.created = event.record->created;
    foreign.view.modified = event.record->modified;
    foreign.checks = checks_of(object->spec);
    for (auto& check : foreign.checks) check.registered = true;
    foreign.results = results_of(object->status);
    bool registration = true;
    if (source.foreign && source.foreign->resource == resource) {
        const auto& before = source.foreign->view;
        const auto& after = foreign.view;
        registration = std::tie(before.name, before.id, before.address, before.meta, before.tagged_addresses) !=
                       std::tie(after.name, after.id, after.address, after.meta, after.tagged_addresses);
        if (!registration) foreign.view.modified = before.modified;
        if (!registration && source.foreign->checks == foreign.checks && source.foreign->results == foreign.results &&
            before.maintenance == after.maintenance && before.maintenance_reason == after.maintenance_reason)
            return; // only the message of its status
        trust_changed("catalognodes/" + resource, source.foreign->results, foreign.results);
    }
    source.foreign = std::move(foreign);
    node_source_changed(name, now, registration);
}

/// A result that was written while this server runs the checks is from its own time.
void Catalog::State_::trust_changed(const std::string& key, const std::map<std::string, CheckResult>& before,
                                    const std::map<std::string, CheckResult>& after) {
    if (suspects.empty()) return;
    for (const auto& [id, result] : after)
        if (const auto was = before.find(id); was == before.end() || !(was->second == result)) suspects.erase(key + " " + id);
}

void Catalog::State_::node_source_changed(const std::string& name, Revision now, bool registration) {
    auto& source = nodes[name];
    touch(now);
    revisions.checks = std::max(revisions.checks, now);
    if (registration) revisions.nodes = std::max(revisions.nodes, now);
    source.revision = std::max(source.revision, now);
    if (loading) return;
    join_node(source, true, now);
    if (!source.node && !source.foreign && source.instances.empty()) {
        nodes.erase(name);
    }
}

void Catalog::State_::service_changed(const store::Event& event) {
    const auto name = name_in(event);
    auto& service = services[ascii_lower(name)];
    const auto now = revision_of(event);
    const auto object = read(event);
    std::optional<ServiceSpec> spec;
    if (object) {
        spec.emplace();
        spec->port = static_cast<std::uint16_t>(integer_at(object->spec, "port", 0));
        spec->checks = checks_of(object->spec);
        if (const auto* wanted = object->spec.if_contains("wanted"))
            if (auto rule = Wanted::parse(*wanted); rule.ok()) spec->wanted = std::move(*rule);
    }
    const auto same = [](const std::optional<ServiceSpec>& a, const std::optional<ServiceSpec>& b) {
        if (!a || !b) return !a && !b;
        return a->port == b->port && a->checks == b->checks && a->wanted.has_value() == b->wanted.has_value() &&
               (!a->wanted || a->wanted->text() == b->wanted->text());
    };
    if (service.name.empty()) service.name = name;
    if (same(service.spec, spec)) { // only its status
        if (!spec && service.instances.empty()) services.erase(ascii_lower(name));
        return;
    }
    service.spec = std::move(spec);
    touch(now);
    service.revision = std::max(service.revision, now);
    if (loading) return;
    for (auto& [key, instance] : service.instances) {
        auto& node = nodes[key.first];
        instance = join_instance(instances.at(instance->resource), service, node);
        node.instances[instance->id] = instance;
        by_resource[instance->resource] = instance;
    }
    const auto shown = service.name;
    if (!service.spec && service.instances.empty()) services.erase(ascii_lower(name));
    notify(shown);
}

void Catalog::State_::remove_instance(const InstancePtr& old, Revision now) {
    if (auto at = services.find(ascii_lower(old->service)); at != services.end()) {
        at->second.instances.erase({ascii_lower(old->node), old->id});
        at->second.revision = std::max(at->second.revision, now);
        if (at->second.instances.empty()) {
            extinct = std::max(extinct, now);
            if (!at->second.spec) services.erase(at);
        }
    }
    if (auto at = nodes.find(ascii_lower(old->node)); at != nodes.end()) {
        at->second.revision = std::max(at->second.revision, now);
        if (auto mine = at->second.instances.find(old->id);
            mine != at->second.instances.end() && mine->second->resource == old->resource)
            at->second.instances.erase(mine);
        if (!at->second.node && !at->second.foreign && at->second.instances.empty()) nodes.erase(at);
    }
    by_resource.erase(old->resource);
}

void Catalog::State_::instance_changed(const store::Event& event) {
    const auto resource = name_in(event);
    const auto now = revision_of(event);
    touch(now);
    const auto object = read(event);
    InstancePtr old;
    if (const auto at = by_resource.find(resource); at != by_resource.end()) old = at->second;
    if (!object) {
        instances.erase(resource);
        check_revisions.erase(resource);
        if (!old) return;
        remove_instance(old, now);
        revisions.services = std::max(revisions.services, now);
        revisions.checks = std::max(revisions.checks, now);
        notify(old->service);
        return;
    }
    auto registered = read_instance(*object);
    registered.view.created = event.record->created;
    registered.view.modified = event.record->modified;
    const auto before = instances.find(resource);
    const bool changed = before == instances.end() || !same_registration(before->second, registered);
    if (!changed) registered.view.modified = before->second.view.modified;
    const bool checks = before == instances.end() || before->second.own_checks != registered.own_checks ||
                        before->second.results != registered.results ||
                        before->second.view.maintenance != registered.view.maintenance ||
                        before->second.view.maintenance_reason != registered.view.maintenance_reason;
    if (!changed && !checks) return; // only the message of its status
    if (changed) revisions.services = std::max(revisions.services, now);
    if (before != instances.end()) trust_changed("instances/" + resource, before->second.results, registered.results);
    if (checks) {
        revisions.checks = std::max(revisions.checks, now);
        check_revisions[resource] = now;
    }
    if (old && (ascii_lower(old->service) != ascii_lower(registered.view.service) ||
                ascii_lower(old->node) != ascii_lower(registered.view.node) || old->id != registered.view.id)) {
        remove_instance(old, now);
        notify(old->service);
    }
    const auto& kept = instances.insert_or_assign(resource, std::move(registered)).first->second;
    auto& service = services[ascii_lower(kept.view.service)];
    if (service.name.empty() || service.instances.empty()) service.name = kept.view.service;
    auto& node = nodes[ascii_lower(kept.view.node)];
    service.revision = std::max(service.revision, now);
    node.revision = std::max(node.revision, now);
    const auto view = join_instance(kept, service, node);
    service.instances[{ascii_lower(view->node), view->id}] = view;
    node.instances[view->id] = view;
    by_resource[resource] = view;
    notify(view->service);
}

void Catalog::State_::count_roles(const std::string& name, const std::map<std::string, std::string>& labels, Revision now) {
    const auto at = labels.find("role");
    const std::string role = at == labels.end() ? "" : at->second;
    auto& was = role_of[name];
    if (was == role) {
        if (role.empty()) role_of.erase(name);
        return;
    }
    std::set<std::string> changed{was, role};
    if (!was.empty() && --roles[was] == 0) roles.erase(was);
    was = role;
    if (!role.empty())
        ++roles[role];
    else
        role_of.erase(name);
    if (loading) return;
    std::vector<std::string> concerned;
    for (auto& [key, service] : services) {
        if (!service.spec || !service.spec->wanted) continue;
        for (const auto& one : service.spec->wanted->roles)
            if (changed.contains(one)) {
                service.revision = std::max(service.revision, now);
                concerned.push_back(service.name);
                break;
            }
    }
    for (const auto& one : concerned) notify(one);
}

void Catalog::State_::notify(const std::string& service) {
    if (loading) return;
    const auto all = subscribers;
    bool some_gone = false;
    for (const auto& weak : all) {
        if (const auto subscriber = weak.lock())
            (*subscriber)(service);
        else
            some_gone = true;
    }
    if (some_gone) std::erase_if(subscribers, [](const auto& weak) { return weak.expired(); });
}

} // namespace orrery::catalog
