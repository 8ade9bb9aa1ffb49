#include "catalog/catalog.h"

#include "catalog/json_read.h"
#include "catalog/registered.h"
#include "core/context.h"
#include "core/log.h"
#include "resource/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>

namespace orrery::catalog {

namespace {

using store::Revision;

struct NodeSource {
    std::optional<resource::Node> node;
    Revision node_created = 0, node_modified = 0;
    struct Foreign {
        std::string resource;
        NodeView view;
        std::vector<Check> checks;
        std::map<std::string, CheckResult> results;
    };
    std::optional<Foreign> foreign;
    NodePtr view;
    Revision revision = 1;
    std::map<std::string, InstancePtr> instances; ///< by id
};

struct ServiceSpec {
    std::uint16_t port = 0;
    std::vector<Check> checks;
    std::optional<Wanted> wanted;
};

struct ServiceSource {
    std::string name; ///< as first registered
    std::optional<ServiceSpec> spec;
    std::map<std::pair<std::string, std::string>, InstancePtr> instances; ///< by node and id
    Revision revision = 1;
};

} // namespace

struct Catalog::State_ {
    explicit State_(store::Store& store) {
        revisions.services = revisions.nodes = revisions.checks = revisions.all = std::max<Revision>(1, store.revision());
        loading = true;
        observers.push_back(store.observe("nodes/", [this](const store::Event& event) { node_changed(event); }));
        observers.push_back(store.observe("catalognodes/", [this](const store::Event& event) { foreign_changed(event); }));
        observers.push_back(store.observe("services/", [this](const store::Event& event) { service_changed(event); }));
        observers.push_back(store.observe("instances/", [this](const store::Event& event) { instance_changed(event); }));
        loading = false;
        for (auto& [name, node] : nodes) join_node(node, false);
    }

    static std::optional<resource::Object> read(const store::Event& event) {
        if (!event.record) return std::nullopt;
        auto object = resource::from_stored(*event.record);
        if (object.ok()) return std::move(*object);
        log::warn(Context::background(), "{} does not read and is left out of the catalog: {}", event.key, object.error().message);
        return std::nullopt;
    }
    static std::string name_in(const store::Event& event) { return event.key.substr(event.key.find('/') + 1); }

    void touch(Revision revision) { revisions.all = std::max(revisions.all, revision); }

    void node_changed(const store::Event& event) {
        const auto name = name_in(event);
        auto& source = nodes[lowered(name)];
        const auto object = read(event);
        if (object)
            source.node = resource::Node::from(*object);
        else
            source.node.reset();
        if (event.record) {
            source.node_created = event.record->created;
            source.node_modified = event.record->modified;
        }
        node_source_changed(lowered(name), revision_of(event), true);
        count_roles(name, object ? object->labels : std::map<std::string, std::string>{}, revision_of(event));
    }

    static Revision revision_of(const store::Event& event) {
        return std::max<Revision>(1, event.revision != 0 ? event.revision : event.record ? event.record->modified : 0);
    }

    void foreign_changed(const store::Event& event) {
        const auto resource = name_in(event);
        const auto object = read(event);
        const auto now = revision_of(event);
        const auto name = object ? lowered(text_at(object->spec, "node")) : std::string();
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
        foreign.view.meta = texts_by_name(object->spec, "meta");
        foreign.view.tagged_addresses = texts_by_name(object->spec, "tagged_addresses");
        const auto* maintenance = object->spec.if_contains("maintenance");
        foreign.view.maintenance = maintenance != nullptr && maintenance->is_bool() && maintenance->get_bool();
        foreign.view.maintenance_reason = text_at(object->spec, "maintenance_reason");
        foreign.view.created = event.record->created;
        foreign.view.modified = event.record->modified;
        foreign.checks = checks_of(object->spec);
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
                return; // only words of its status
        }
        source.foreign = std::move(foreign);
        node_source_changed(name, now, registration);
    }

    void node_source_changed(const std::string& name, Revision now, bool registration) {
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

    /// Makes the node's view, and its instances' again.
    void join_node(NodeSource& source, bool announce, Revision now = 0) {
        make_node_view(source);
        std::set<std::string> services_here;
        for (auto& [id, instance] : source.instances) {
            const auto& registered = instances.at(instance->resource);
            auto& service = services[lowered(instance->service)];
            instance = join_instance(registered, service, source);
            service.instances[{lowered(instance->node), instance->id}] = instance;
            by_resource[instance->resource] = instance;
            if (now != 0) service.revision = std::max(service.revision, now);
            services_here.insert(instance->service);
        }
        if (announce)
            for (const auto& service : services_here) tell(service);
    }

    void make_node_view(NodeSource& source) {
        if (!source.node && !source.foreign) {
            source.view.reset();
            return;
        }
        auto view = std::make_shared<NodeView>();
        if (source.foreign) {
            *view = source.foreign->view;
            view->resource = source.foreign->resource;
            for (const auto& check : source.foreign->checks) {
                auto shown = make_check_view(check, source.foreign->results, "catalognodes/" + source.foreign->resource);
                shown.created = view->created;
                shown.modified = source.revision;
                view->checks.push_back(std::move(shown));
            }
            std::sort(view->checks.begin(), view->checks.end(),
                      [](const CheckView& a, const CheckView& b) { return a.check.id < b.check.id; });
        }
        if (source.node) {
            view->managed = true;
            if (view->name.empty()) view->name = source.node->name;
            if (view->address.empty()) view->address = source.node->address;
            if (!source.foreign) {
                view->created = source.node_created;
                view->modified = source.node_modified;
            }
        }
        source.view = std::move(view);
    }

    CheckView make_check_view(const Check& check, const std::map<std::string, CheckResult>& results, const std::string& key) const {
        CheckView view;
        view.check = check;
        view.result.status = check.initial;
        if (const auto known = results.find(check.id); known != results.end()) {
            view.result = known->second;
            view.stale = check.kind != Check::Kind::external && suspects.contains(key + " " + check.id);
        }
        return view;
    }

    InstancePtr join_instance(const Registered& registered, const ServiceSource& service, const NodeSource& node) const {
        auto view = std::make_shared<InstanceView>(registered.view);
        view->on = node.view;
        if (view->port == 0 && service.spec) view->port = service.spec->port;
        view->address = view->own_address;
        if (view->address.empty() && node.view) view->address = node.view->address;
        std::vector<Check> all;
        if (service.spec)
            for (auto check : service.spec->checks) {
                if (!check.id.empty()) check.id += ":" + view->id; // several instances of a node have it
                all.push_back(std::move(check));
            }
        all.insert(all.end(), registered.own_checks.begin(), registered.own_checks.end());
        std::size_t number = 0;
        for (auto& check : all) {
            ++number;
            if (check.id.empty())
                check.id = all.size() == 1 ? "service:" + view->id : fmt::format("service:{}:{}", view->id, number);
            if (check.name.empty()) check.name = fmt::format("Service '{}' check", view->service);
            auto shown = make_check_view(check, registered.results, "instances/" + view->resource);
            shown.created = view->created;
            shown.modified = std::max(view->created, check_revision(view->resource));
            view->checks.push_back(std::move(shown));
        }
        judge(*view);
        return view;
    }

    Revision check_revision(const std::string& resource) const {
        const auto at = check_revisions.find(resource);
        return at == check_revisions.end() ? 0 : at->second;
    }

    void service_changed(const store::Event& event) {
        const auto name = name_in(event);
        auto& service = services[lowered(name)];
        const auto now = revision_of(event);
        const auto object = read(event);
        std::optional<ServiceSpec> spec;
        if (object) {
            spec.emplace();
            spec->port = static_cast<std::uint16_t>(number_at(object->spec, "port", 0));
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
            if (!spec && service.instances.empty()) services.erase(lowered(name));
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
        if (!service.spec && service.instances.empty()) services.erase(lowered(name));
        tell(shown);
    }

    void leave(const InstancePtr& old, Revision now) {
        if (auto at = services.find(lowered(old->service)); at != services.end()) {
            at->second.instances.erase({lowered(old->node), old->id});
            at->second.revision = std::max(at->second.revision, now);
            if (at->second.instances.empty()) {
                extinct = std::max(extinct, now);
                if (!at->second.spec) services.erase(at);
            }
        }
        if (auto at = nodes.find(lowered(old->node)); at != nodes.end()) {
            at->second.revision = std::max(at->second.revision, now);
            if (auto mine = at->second.instances.find(old->id);
                mine != at->second.instances.end() && mine->second->resource == old->resource)
                at->second.instances.erase(mine);
            if (!at->second.node && !at->second.foreign && at->second.instances.empty()) nodes.erase(at);
        }
        by_resource.erase(old->resource);
    }

    void instance_changed(const store::Event& event) {
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
            leave(old, now);
            revisions.services = std::max(revisions.services, now);
            revisions.checks = std::max(revisions.checks, now);
            tell(old->service);
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
        if (!changed && !checks) return; // only words of its status
        if (changed) revisions.services = std::max(revisions.services, now);
        if (checks) {
            revisions.checks = std::max(revisions.checks, now);
            check_revisions[resource] = now;
        }
        if (old && (lowered(old->service) != lowered(registered.view.service) ||
                    lowered(old->node) != lowered(registered.view.node) || old->id != registered.view.id)) {
            leave(old, now);
            tell(old->service);
        }
        const auto& kept = instances.insert_or_assign(resource, std::move(registered)).first->second;
        auto& service = services[lowered(kept.view.service)];
        if (service.name.empty() || service.instances.empty()) service.name = kept.view.service;
        auto& node = nodes[lowered(kept.view.node)];
        service.revision = std::max(service.revision, now);
        node.revision = std::max(node.revision, now);
        const auto view = join_instance(kept, service, node);
        service.instances[{lowered(view->node), view->id}] = view;
        node.instances[view->id] = view;
        by_resource[resource] = view;
        tell(view->service);
    }

    /// How many Nodes have which role, for hosts(role).
    void count_roles(const std::string& name, const std::map<std::string, std::string>& labels, Revision now) {
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
        for (const auto& one : concerned) tell(one);
    }

    void tell(const std::string& service) {
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

    bool loading = false;
    std::map<std::string, NodeSource> nodes;       ///< by lower-case name
    std::map<std::string, ServiceSource> services; ///< by lower-case name
    std::map<std::string, Registered> instances;   ///< by resource
    std::map<std::string, InstancePtr> by_resource;
    std::map<std::string, Revision> check_revisions;  ///< by resource of an Instance
    std::map<std::string, std::string> foreign_names; ///< resource of a CatalogNode → lower-case node
    std::map<std::string, std::string> role_of;       ///< Node → its role
    std::map<std::string, std::int64_t> roles;
    std::unordered_set<std::string> suspects; ///< "instances/x check"
    Revisions revisions;
    Revision extinct = 1; ///< when a service last lost its last instance
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers;
    std::vector<std::shared_ptr<void>> observers;
};

Catalog::Catalog(store::Store& store) : state_(std::make_unique<State_>(store)) {}
Catalog::~Catalog() { state_->observers.clear(); }

Result<Members> Catalog::members(std::string_view service, std::string_view tag) const {
    Members out;
    out.revision = service_revision(service);
    if (const auto at = state_->services.find(lowered(service)); at != state_->services.end())
        for (const auto& [key, instance] : at->second.instances)
            if (instance->has_tag(tag)) out.all.push_back(instance->member());
    std::sort(out.all.begin(), out.all.end(),
              [](const Member& a, const Member& b) { return std::tie(a.node, a.id) < std::tie(b.node, b.id); });
    return out;
}

std::shared_ptr<void> Catalog::subscribe(std::function<void(const std::string&)> changed) {
    auto handle = std::make_shared<std::function<void(const std::string&)>>(std::move(changed));
    state_->subscribers.push_back(handle);
    return handle;
}

std::shared_ptr<void> Catalog::follow(std::string_view) { return {}; }

std::vector<InstancePtr> Catalog::instances(std::string_view service) const {
    std::vector<InstancePtr> out;
    if (const auto at = state_->services.find(lowered(service)); at != state_->services.end())
        for (const auto& [key, instance] : at->second.instances) out.push_back(instance);
    return out;
}

std::vector<InstancePtr> Catalog::instances_on(std::string_view node) const {
    std::vector<InstancePtr> out;
    if (const auto at = state_->nodes.find(lowered(node)); at != state_->nodes.end())
        for (const auto& [id, instance] : at->second.instances) out.push_back(instance);
    return out;
}

InstancePtr Catalog::find(std::string_view node, std::string_view id) const {
    const auto at = state_->nodes.find(lowered(node));
    if (at == state_->nodes.end()) return {};
    const auto mine = at->second.instances.find(std::string(id));
    return mine == at->second.instances.end() ? nullptr : mine->second;
}

InstancePtr Catalog::find_resource(std::string_view resource) const {
    const auto at = state_->by_resource.find(std::string(resource));
    return at == state_->by_resource.end() ? nullptr : at->second;
}

NodePtr Catalog::node(std::string_view name) const {
    const auto at = state_->nodes.find(lowered(name));
    return at == state_->nodes.end() ? nullptr : at->second.view;
}

NodePtr Catalog::find_node_resource(std::string_view resource) const {
    const auto at = state_->foreign_names.find(std::string(resource));
    return at == state_->foreign_names.end() ? nullptr : node(at->second);
}

std::vector<NodePtr> Catalog::nodes() const {
    std::vector<NodePtr> out;
    for (const auto& [name, node] : state_->nodes)
        if (node.view) out.push_back(node.view);
    return out;
}

std::vector<std::string> Catalog::services() const {
    std::vector<std::string> out;
    for (const auto& [key, service] : state_->services)
        if (!service.instances.empty()) out.push_back(service.name);
    return out;
}

std::optional<Wanted> Catalog::wanted_rule(std::string_view service) const {
    const auto at = state_->services.find(lowered(service));
    if (at == state_->services.end() || !at->second.spec) return std::nullopt;
    return at->second.spec->wanted;
}

std::optional<std::int64_t> Catalog::wanted(std::string_view service) const {
    const auto rule = wanted_rule(service);
    if (!rule) return std::nullopt;
    auto number = rule->number;
    for (const auto& role : rule->roles)
        if (const auto at = state_->roles.find(role); at != state_->roles.end()) number += at->second;
    return number;
}

const Catalog::Revisions& Catalog::revisions() const { return state_->revisions; }

store::Revision Catalog::service_revision(std::string_view service) const {
    const auto at = state_->services.find(lowered(service));
    // One without instances may have been there: then it changed when the last service went.
    if (at == state_->services.end() || at->second.instances.empty())
        return std::max(state_->extinct, at == state_->services.end() ? store::Revision{1} : at->second.revision);
    return at->second.revision;
}

store::Revision Catalog::node_revision(std::string_view node) const {
    const auto at = state_->nodes.find(lowered(node));
    return at == state_->nodes.end() ? state_->revisions.all : at->second.revision;
}

void Catalog::suspect_all() {
    for (const auto& [resource, registered] : state_->instances)
        for (const auto& [id, result] : registered.results) state_->suspects.insert("instances/" + resource + " " + id);
    for (const auto& [name, node] : state_->nodes)
        if (node.foreign)
            for (const auto& [id, result] : node.foreign->results)
                state_->suspects.insert("catalognodes/" + node.foreign->resource + " " + id);
    for (auto& [name, node] : state_->nodes) state_->join_node(node, false);
}

void Catalog::confirm(std::string_view resource_key, std::string_view check) {
    if (state_->suspects.empty() || state_->suspects.erase(fmt::format("{} {}", resource_key, check)) == 0) return;
    const auto slash = resource_key.find('/');
    const auto resource = std::string(resource_key.substr(slash + 1));
    std::string node;
    if (resource_key.starts_with("instances/")) {
        if (const auto at = state_->instances.find(resource); at != state_->instances.end()) node = lowered(at->second.view.node);
    } else if (const auto at = state_->foreign_names.find(resource); at != state_->foreign_names.end()) {
        node = at->second;
    }
    if (const auto at = state_->nodes.find(node); at != state_->nodes.end()) state_->join_node(at->second, false);
}

} // namespace orrery::catalog
