#include "catalog/explain.h"

#include "core/json_fields.h"

#include <fmt/format.h>

namespace orrery::catalog {

namespace {

constexpr std::size_t max_explained = 200; ///< instances in one explanation

json::object explain_check(const CheckView& view, const store::Leadership& leadership) {
    const bool run_by_leader =
        view.check.kind == Check::Kind::tcp || view.check.kind == Check::Kind::http || view.check.kind == Check::Kind::command;
    json::object out{{"check", view.check.name.empty() ? view.check.id : view.check.name},
                     {"type", name_of(view.check.kind)},
                     {"status", name_of(view.result.status)},
                     {"vantage", run_by_leader ? fmt::format("server {}", leadership.leader()) : "reported from outside"}};
    if (view.result.since != WallTime{}) out["since"] = to_rfc3339(view.result.since);
    if (view.result.renewed != WallTime{}) out["reported_at"] = to_rfc3339(view.result.renewed);
    if (!view.result.output.empty()) out["result"] = view.result.output.substr(0, 1024);
    if (view.result.since == WallTime{}) out["result"] = "no result yet";
    if (!view.result.error.empty()) out["error"] = fmt::format("cannot run, no evidence: {}", view.result.error);
    if (view.stale) out["stale"] = "not confirmed since this server became the leader";
    return out;
}

json::array explain_checks(const std::vector<CheckView>& checks, const store::Leadership& leadership) {
    json::array out;
    for (const auto& check : checks) out.push_back(explain_check(check, leadership));
    return out;
}

json::object explain_instance(const InstanceView& view, const store::Leadership& leadership) {
    json::object out{{"instance", view.resource}, {"service", view.service},
                     {"node", view.node},         {"address", view.address},
                     {"port", view.port},         {"state", name_of(view.state)},
                     {"message", view.message},   {"checks", explain_checks(view.checks, leadership)}};
    if (const auto reason = view.why_not_a_member(); !reason.empty()) {
        out["state"] = name_of(State::registered);
        out["not_a_member"] = reason;
    }
    if (view.maintenance) out["maintenance"] = view.maintenance_reason.empty() ? "yes" : view.maintenance_reason;
    if (view.on && !view.on->checks.empty()) out["node_checks"] = explain_checks(view.on->checks, leadership);
    if (view.on && view.on->maintenance)
        out["node_maintenance"] = view.on->maintenance_reason.empty() ? "yes" : view.on->maintenance_reason;
    return out;
}

/// Instances that are not members, because their node name or address is not valid.
void explain_invalid(const Members& members, json::object& out) {
    if (members.invalid_count == 0) return;
    json::array instances;
    for (const auto& one : members.invalid)
        instances.push_back(json::object{{"instance", one.id}, {"node", one.node}, {"address", one.address}, {"message", one.why}});
    out["invalid_instances"] = members.invalid_count;
    out["not_members"] = std::move(instances);
    out["message"] = fmt::format("{}; {}", std::string_view(out["message"].get_string()), members.invalid_text());
}

struct CatalogExplainer {
    const resource::Resources& resources;
    const Catalog& catalog;
    const Membership& membership;
    const store::Leadership& leadership;

    Result<json::object> service(const resource::ExplainRequest& request) const {
        const auto object = resources.get(*resources.registry().find("Service"), request.name);
        const auto members = membership.members(request.name, "");
        if (!members.ok()) {
            if (!object.ok()) return object.error();
            return json::object{{"message", fmt::format("no evidence for service {}: {}", request.name, members.error().message)}};
        }
        if (!object.ok() && members->all.empty() && members->invalid.empty()) return object.error();
        const auto wanted = catalog.wanted(request.name);
        json::object out{{"registered", members->count(State::registered)},
                         {"usable", members->count(State::usable)},
                         {"passing", members->count(State::passing)}};
        if (wanted) out["wanted"] = *wanted;
        out["message"] =
            fmt::format("service {}: {} of {} registered instances pass{}", request.name, members->count(State::passing),
                        members->all.size(), wanted ? fmt::format(", {} are wanted", *wanted) : std::string());
        explain_invalid(*members, out);
        if (object.ok()) {
            out["state"] = text_at(object->status, "state");
            if (const auto* needed = object->spec.if_contains("needed_by")) out["needed_by"] = *needed;
            const auto* checks = object->spec.if_contains("checks");
            if (checks == nullptr || !checks->is_array() || checks->get_array().empty())
                out["checks"] = "none: an instance passes unless its own checks or its node's fail";
        } else {
            out["state"] = "no Service of this name exists";
        }
        json::array instances;
        const bool own = &membership == &catalog;
        for (const auto& member : members->all) {
            if (instances.size() == max_explained) break;
            if (const auto view = own ? catalog.find(member.node, member.id) : nullptr)
                instances.push_back(explain_instance(*view, leadership));
            else
                instances.push_back(json::object{{"instance", member.id},
                                                 {"node", member.node},
                                                 {"address", member.address},
                                                 {"port", member.port},
                                                 {"state", name_of(member.state)},
                                                 {"message", member.why}});
        }
        if (members->all.size() > instances.size()) out["instances_left_out"] = members->all.size() - instances.size();
        out["instances"] = std::move(instances);
        return out;
    }

    Result<json::object> instance(const resource::ExplainRequest& request) const {
        TRY(const auto object, resources.get(*resources.registry().find("Instance"), request.name));
        const auto view = catalog.find_resource(request.name);
        if (!view) return Error{Code::unavailable, fmt::format("instance {} is not in the catalog's copy yet", object.name)};
        auto out = explain_instance(*view, leadership);
        const auto reason = view->why_not_a_member();
        out["message"] = reason.empty()
                             ? fmt::format("instance {} of service {} is {}: {}", request.name, view->service, name_of(view->state),
                                           view->message)
                             : fmt::format("instance {} is not a member of service {}: {}", request.name, view->service, reason);
        return out;
    }

    Result<json::object> node(const resource::ExplainRequest& request) const {
        const auto view = catalog.node(request.name);
        if (!view) return Error{Code::not_found, fmt::format("the catalog has no node {}", request.name)};
        const auto all = catalog.instances_on(request.name);
        json::array instances;
        std::size_t passing = 0;
        for (const auto& one : all) {
            passing += one->state == State::passing && one->why_not_a_member().empty() ? 1 : 0;
            if (instances.size() < max_explained) instances.push_back(explain_instance(*one, leadership));
        }
        json::object out{{"message", all.empty() ? std::string("it has no instances of services")
                                                 : fmt::format("{} of its {} instances pass", passing, all.size())},
                         {"instances", std::move(instances)}};
        if (!view->checks.empty()) out["checks"] = explain_checks(view->checks, leadership);
        return out;
    }
};

} // namespace

void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Catalog& catalog,
                    const Membership& membership, const store::Leadership& leadership) {
    using History = resource::Explainers::History;
    const CatalogExplainer with{resources, catalog, membership, leadership};
    explainers.add("Service", History::no, [with](const auto& request) { return with.service(request); });
    explainers.add("Instance", History::no, [with](const auto& request) { return with.instance(request); });
    explainers.add("Node", History::no, [with](const auto& request) { return with.node(request); });
}

} // namespace orrery::catalog
