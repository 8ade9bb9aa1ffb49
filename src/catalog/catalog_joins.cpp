#include "catalog/catalog_state.h"
#include "core/ascii.h"

#include <fmt/format.h>

#include <algorithm>

/// Builds views: nodes from Node and CatalogNode, instances from Instance, Service and node.
namespace orrery::catalog {

void Catalog::State_::join_node(NodeSource& source, bool announce, Revision now) {
    make_node_view(source);
    std::set<std::string> services_here;
    for (auto& [id, instance] : source.instances) {
        const auto& registered = instances.at(instance->resource);
        auto& service = services[ascii_lower(instance->service)];
        instance = join_instance(registered, service, source);
        service.instances[{ascii_lower(instance->node), instance->id}] = instance;
        by_resource[instance->resource] = instance;
        if (now != 0) service.revision = std::max(service.revision, now);
        services_here.insert(instance->service);
    }
    if (announce)
        for (const auto& service : services_here) notify(service);
}

void Catalog::State_::make_node_view(NodeSource& source) {
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

CheckView Catalog::State_::make_check_view(const Check& check, const std::map<std::string, CheckResult>& results,
                                           const std::string& key) const {
    CheckView view;
    view.check = check;
    view.result.status = check.initial;
    if (const auto known = results.find(check.id); known != results.end()) {
        view.result = known->second;
        view.stale = check.kind != Check::Kind::external && suspects.contains(key + " " + check.id);
    }
    return view;
}

InstancePtr Catalog::State_::join_instance(const Registered& registered, const ServiceSource& service,
                                           const NodeSource& node) const {
    auto view = std::make_shared<InstanceView>(registered.view);
    view->on = node.view;
    view->declared = service.spec.has_value();
    if (view->port == 0 && service.spec) view->port = service.spec->port;
    view->address = view->own_address;
    if (view->address.empty() && node.view) view->address = node.view->address;
    view->invalid = member_problem(view->node, view->address);
    if (!view->invalid.empty()) invalid_members.note(view->service, view->member());
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
        if (check.id.empty()) check.id = all.size() == 1 ? "service:" + view->id : fmt::format("service:{}:{}", view->id, number);
        if (check.name.empty()) check.name = fmt::format("Service '{}' check", view->service);
        auto shown = make_check_view(check, registered.results, "instances/" + view->resource);
        shown.created = view->created;
        shown.modified = std::max(view->created, check_revision(view->resource));
        view->checks.push_back(std::move(shown));
    }
    judge(*view);
    return view;
}

} // namespace orrery::catalog
