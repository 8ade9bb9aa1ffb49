#include "api/facades/consul/facade_state.h"
#include "core/ascii.h"
#include "core/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

/// Handlers of /v1/catalog and /v1/health.
namespace orrery::api::consul {

namespace {

bool has_tags(const InstanceView& instance, const std::vector<std::string>& wanted) {
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& tag) {
        return std::any_of(instance.tags.begin(), instance.tags.end(),
                           [&](const std::string& own) { return ascii_lower(own) == ascii_lower(tag); });
    });
}

/// Sorts instances in the order of Consul: by node, then by id.
std::vector<InstancePtr> in_order(std::vector<InstancePtr> instances) {
    std::sort(instances.begin(), instances.end(), [](const InstancePtr& a, const InstancePtr& b) {
        return std::pair(ascii_lower(a->node), a->id) < std::pair(ascii_lower(b->node), b->id);
    });
    return instances;
}

} // namespace

Task<Unit> ConsulFacade::State::catalog_datacenters(Call& call) { return send_json(call, json::array{options.datacenter}); }

Task<Unit> ConsulFacade::State::catalog_nodes(Call& call) {
    return blocking_read(call, {.index = [this] { return catalog.revisions().nodes; },
                                .render =
                                    [this, meta = call.queries("node-meta")] {
                                        json::array out;
                                        for (const auto& node : catalog.nodes())
                                            if (has_meta(*node, meta)) out.push_back(node_json(*node));
                                        return out;
                                    }});
}

Task<Unit> ConsulFacade::State::catalog_services(Call& call) {
    return blocking_read(call, {.index = [this] { return catalog.revisions().services; },
                                .render =
                                    [this, meta = call.queries("node-meta")] {
                                        json::object out;
                                        for (const auto& service : catalog.services()) {
                                            std::vector<std::string> tags;
                                            bool any = false;
                                            for (const auto& instance : catalog.instances(service)) {
                                                if (!meta.empty() && !has_meta(*node_of(*instance), meta)) continue;
                                                any = true;
                                                for (const auto& tag : instance->tags)
                                                    if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
                                            }
                                            std::sort(tags.begin(), tags.end());
                                            if (any) out[service] = json::array(tags.begin(), tags.end());
                                        }
                                        return out;
                                    }});
}

Task<Unit> ConsulFacade::State::catalog_service(Call& call) {
    return blocking_read(call, {.index = [this, service = call.path[0]] { return catalog.service_revision(service); },
                                .render =
                                    [this, service = call.path[0], tags = call.queries("tag"), meta = call.queries("node-meta")] {
                                        json::array out;
                                        for (const auto& instance : in_order(catalog.instances(service)))
                                            if (has_tags(*instance, tags) && has_meta(*node_of(*instance), meta))
                                                out.push_back(catalog_service_json(*instance));
                                        return out;
                                    }});
}

Task<Unit> ConsulFacade::State::catalog_node(Call& call) {
    return blocking_read(
        call, {.index = [this, name = call.path[0]]() -> Revision { return catalog.node(name) ? catalog.node_revision(name) : 1; },
               .render = [this, name = call.path[0]]() -> json::value {
                   const auto node = catalog.node(name);
                   if (!node) return nullptr;
                   json::object services;
                   for (const auto& instance : in_order(catalog.instances_on(name)))
                       services[instance->id] = service_json(*instance);
                   return json::object{{"Node", node_json(*node)}, {"Services", std::move(services)}};
               }});
}

Task<Unit> ConsulFacade::State::catalog_node_services(Call& call) {
    return blocking_read(
        call, {.index = [this, name = call.path[0]]() -> Revision { return catalog.node(name) ? catalog.node_revision(name) : 1; },
               .render = [this, name = call.path[0]]() -> json::value {
                   const auto node = catalog.node(name);
                   if (!node) return json::object{{"Node", nullptr}, {"Services", nullptr}};
                   json::array services;
                   for (const auto& instance : in_order(catalog.instances_on(name))) services.push_back(service_json(*instance));
                   return json::object{{"Node", node_json(*node)}, {"Services", std::move(services)}};
               }});
}

Task<Unit> ConsulFacade::State::catalog_register(Call& call) {
    CO_TRY(auto body, co_await object_of(call));
    CO_TRY(std::ignore, co_await register_from_catalog(call.writer(), std::move(body)));
    co_return co_await send_json(call, true);
}

Task<Unit> ConsulFacade::State::catalog_deregister(Call& call) {
    CO_TRY(const auto body, co_await object_of(call));
    const auto node = text_at(body, "node"), service = text_at(body, "serviceid"), check = text_at(body, "checkid");
    if (node.empty()) co_return Error{Code::internal, "Must provide node"};
    if (!service.empty()) {
        if (const auto instance = catalog.find(node, service)) {
            CO_TRY(std::ignore, co_await remove_resource(call.writer(), "Instance", instance->resource));
        }
    } else if (!check.empty()) {
        if (const auto holder = holder_of_check(node, check); !holder.empty()) {
            CO_TRY(std::ignore, co_await remove_check(call.writer(), holder, check));
        }
    } else {
        CO_TRY(std::ignore, co_await deregister_node(call.writer(), node));
    }
    co_return co_await send_json(call, true);
}

Task<Unit> ConsulFacade::State::health_service(Call& call) {
    bool passing = call.has("passing");
    if (passing) {
        const auto value = call.query("passing");
        if (value == "0" || value == "false")
            passing = false;
        else if (!value.empty() && value != "1" && value != "true")
            co_return co_await send_text(call, 400, "Invalid value for ?passing");
    }
    co_return co_await blocking_read(
        call, {.index = [this, service = call.path[0]] { return catalog.service_revision(service); },
               .render =
                   [this, passing, service = call.path[0], tags = call.queries("tag"), meta = call.queries("node-meta")] {
                       json::array out;
                       for (const auto& instance : in_order(catalog.instances(service))) {
                           if (!has_tags(*instance, tags) || (passing && instance->worst != catalog::CheckStatus::passing))
                               continue;
                           const auto node = node_of(*instance);
                           if (!has_meta(*node, meta)) continue;
                           out.push_back(json::object{{"Node", node_json(*node)},
                                                      {"Service", service_json(*instance)},
                                                      {"Checks", all_checks(*instance)}});
                       }
                       return out;
                   }});
}

Task<Unit> ConsulFacade::State::health_node(Call& call) {
    return blocking_read(call, {.index = [this, name = call.path[0]] { return catalog.node_revision(name); },
                                .render =
                                    [this, name = call.path[0]] {
                                        json::array out;
                                        if (const auto node = catalog.node(name)) out = node_checks(*node);
                                        for (const auto& instance : in_order(catalog.instances_on(name)))
                                            for (auto& check : instance_checks(*instance)) out.push_back(std::move(check));
                                        std::sort(out.begin(), out.end(), [](const json::value& a, const json::value& b) {
                                            return a.at("CheckID").as_string() < b.at("CheckID").as_string();
                                        });
                                        return out;
                                    }});
}

Task<Unit> ConsulFacade::State::health_checks(Call& call) {
    return blocking_read(call, {.index = [this, service = call.path[0]] { return catalog.service_revision(service); },
                                .render =
                                    [this, service = call.path[0], meta = call.queries("node-meta")] {
                                        json::array out;
                                        for (const auto& instance : in_order(catalog.instances(service)))
                                            if (has_meta(*node_of(*instance), meta))
                                                for (auto& check : instance_checks(*instance)) out.push_back(std::move(check));
                                        return out;
                                    }});
}

Task<Unit> ConsulFacade::State::health_state(Call& call) {
    return blocking_read(call, {.index = [this] { return catalog.revisions().checks; },
                                .render =
                                    [this, state = call.path[0], meta = call.queries("node-meta")] {
                                        json::array out;
                                        std::set<std::string> names;
                                        for (const auto& node : catalog.nodes()) names.insert(ascii_lower(node->name));
                                        for (const auto& service : catalog.services())
                                            for (const auto& instance : catalog.instances(service))
                                                names.insert(ascii_lower(instance->node));
                                        for (const auto& name : names) {
                                            json::array here;
                                            const auto node = catalog.node(name);
                                            if (node && !has_meta(*node, meta)) continue;
                                            if (!node && !meta.empty()) continue;
                                            if (node) here = node_checks(*node);
                                            for (const auto& instance : in_order(catalog.instances_on(name)))
                                                for (auto& check : instance_checks(*instance)) here.push_back(std::move(check));
                                            std::sort(here.begin(), here.end(), [](const json::value& a, const json::value& b) {
                                                return a.at("CheckID").as_string() < b.at("CheckID").as_string();
                                            });
                                            for (auto& check : here)
                                                if (state == "any" || check.at("Status").as_string() == state)
                                                    out.push_back(std::move(check));
                                        }
                                        return out;
                                    }});
}

} // namespace orrery::api::consul
