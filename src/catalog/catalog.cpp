#include "catalog/catalog_state.h"
#include "core/ascii.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace orrery::catalog {

Catalog::Catalog(store::Store& store) : state_(std::make_unique<State_>(store)) {}
Catalog::~Catalog() { state_->observers.clear(); }

Result<Members> Catalog::members(std::string_view service, std::string_view tag) const {
    if (state_->closed && state_->closed())
        return Error{Code::unavailable, "this server has just become the leader, and its checks have not started"};
    Members out;
    out.revision = service_revision(service);
    if (const auto at = state_->services.find(ascii_lower(service)); at != state_->services.end())
        for (const auto& [key, instance] : at->second.instances) {
            if (!instance->declared || !instance->has_tag(tag)) continue;
            if (!instance->invalid.empty()) {
                out.add_invalid(instance->member(), instance->invalid);
                continue;
            }
            out.all.push_back(instance->member());
            out.all.back().evidence = state_->evidence_of(*instance);
        }
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
    if (const auto at = state_->services.find(ascii_lower(service)); at != state_->services.end())
        for (const auto& [key, instance] : at->second.instances) out.push_back(instance);
    return out;
}

std::vector<InstancePtr> Catalog::instances_on(std::string_view node) const {
    std::vector<InstancePtr> out;
    if (const auto at = state_->nodes.find(ascii_lower(node)); at != state_->nodes.end())
        for (const auto& [id, instance] : at->second.instances) out.push_back(instance);
    return out;
}

InstancePtr Catalog::find(std::string_view node, std::string_view id) const {
    const auto at = state_->nodes.find(ascii_lower(node));
    if (at == state_->nodes.end()) return {};
    const auto mine = at->second.instances.find(std::string(id));
    return mine == at->second.instances.end() ? nullptr : mine->second;
}

InstancePtr Catalog::find_resource(std::string_view resource) const {
    const auto at = state_->by_resource.find(std::string(resource));
    return at == state_->by_resource.end() ? nullptr : at->second;
}

NodePtr Catalog::node(std::string_view name) const {
    const auto at = state_->nodes.find(ascii_lower(name));
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
    const auto at = state_->services.find(ascii_lower(service));
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

std::optional<DeclaredService> Catalog::declared(std::string_view service) const {
    const auto at = state_->services.find(ascii_lower(service));
    if (at == state_->services.end() || !at->second.spec) return std::nullopt;
    return DeclaredService{at->second.spec->port, !at->second.spec->checks.empty(), wanted(service)};
}

Evidence Catalog::evidence(std::string_view node, std::string_view id) const {
    const auto instance = find(node, id);
    return instance ? state_->evidence_of(*instance) : Evidence::confirmed;
}

const Catalog::Revisions& Catalog::revisions() const { return state_->revisions; }

store::Revision Catalog::service_revision(std::string_view service) const {
    const auto at = state_->services.find(ascii_lower(service));
    // One without instances may have been there: then it changed when the last service went.
    if (at == state_->services.end() || at->second.instances.empty())
        return std::max(state_->extinct, at == state_->services.end() ? store::Revision{1} : at->second.revision);
    return at->second.revision;
}

store::Revision Catalog::node_revision(std::string_view node) const {
    const auto at = state_->nodes.find(ascii_lower(node));
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
    state_->first_round = true;
    state_->notify("");
}

void Catalog::end_first_round() {
    if (!std::exchange(state_->first_round, false)) return;
    state_->notify("");
}

void Catalog::close_while(std::function<bool()> closed) { state_->closed = std::move(closed); }

void Catalog::confirm(std::string_view resource_key, std::string_view check) {
    if (state_->suspects.empty() || state_->suspects.erase(fmt::format("{} {}", resource_key, check)) == 0) return;
    const auto slash = resource_key.find('/');
    const auto resource = std::string(resource_key.substr(slash + 1));
    std::string node;
    if (resource_key.starts_with("instances/")) {
        if (const auto at = state_->instances.find(resource); at != state_->instances.end())
            node = ascii_lower(at->second.view.node);
    } else if (const auto at = state_->foreign_names.find(resource); at != state_->foreign_names.end()) {
        node = at->second;
    }
    if (const auto at = state_->nodes.find(node); at != state_->nodes.end()) state_->join_node(at->second, true);
}

} // namespace orrery::catalog
