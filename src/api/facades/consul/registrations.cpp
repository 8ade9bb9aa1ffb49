#include "api/facades/consul/facade_state.h"
#include "core/json_fields.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>

/// Registrations of clients as Instance and CatalogNode resources.
namespace orrery::api::consul {

namespace {

using catalog::Check;
using catalog::CheckStatus;

json::object map_to_json(const std::map<std::string, std::string>& map) {
    json::object out;
    for (const auto& [key, value] : map) out[key] = value;
    return out;
}

json::value tagged_from(const json::object& body) {
    json::object out;
    for (const auto& [name, value] : object_at(body, "taggedaddresses"))
        if (value.is_object())
            out[name] = json::object{{"address", text_at(value.get_object(), "address")},
                                     {"port", integer_at(value.get_object(), "port", 0)}};
    if (out.empty()) return nullptr;
    return out;
}

} // namespace

json::object list_of(const std::vector<Check>& checks) {
    json::array list;
    for (const auto& check : checks) list.push_back(check.to_json());
    return {{"checks", std::move(list)}};
}

std::vector<Check> own_checks(const json::object& spec, std::string_view id) {
    std::vector<Check> out;
    const auto* list = spec.if_contains("checks");
    if (list == nullptr || !list->is_array()) return out;
    for (const auto& item : list->get_array()) out.push_back(Check::from(item.as_object()));
    for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i].id.empty())
            out[i].id = out.size() == 1 ? fmt::format("service:{}", id) : fmt::format("service:{}:{}", id, i + 1);
    return out;
}

Result<json::object> service_spec(const json::object& body, const std::string& name, const std::string& node,
                                  const std::string& id) {
    json::object spec{{"service", name}, {"node", node}, {"id", id}};
    const auto address = text_at(body, "address");
    if (!address.empty()) spec["address"] = address;
    const auto port = integer_at(body, "port", 0);
    if (port < 0 || port > 65535) return Error{Code::invalid, fmt::format("Invalid port: {}", port)};
    if (port > 0) spec["port"] = port;
    if (const auto tags = texts_at(body, "tags"); !tags.empty()) spec["tags"] = json::array(tags.begin(), tags.end());
    if (const auto meta = text_map_at(body, "meta"); !meta.empty()) {
        if (meta.size() > 64)
            return Error{Code::invalid, "Invalid Service Meta: Node metadata cannot contain more than 64 key/value pairs"};
        spec["meta"] = map_to_json(meta);
    }
    const auto& weights = object_at(body, "weights");
    if (!weights.empty()) {
        const auto passing = integer_at(weights, "passing", 1), warning = integer_at(weights, "warning", 1);
        if (passing < 1) return Error{Code::invalid, "Invalid Weights: passing must be greater than 0"};
        spec["weights"] = json::object{{"passing", passing}, {"warning", warning}};
    }
    if (flag_at(body, "enabletagoverride")) spec["tag_override"] = true;
    if (auto tagged = tagged_from(body); !tagged.is_null()) spec["tagged_addresses"] = std::move(tagged);
    return spec;
}

namespace {

/// The spec of a node after a registration.
json::object merged_node(const json::object& now, json::object wanted, bool keep_checks) {
    if (keep_checks && now.contains("checks")) wanted["checks"] = now.at("checks");
    for (const auto* kept : {"node", "id", "maintenance", "maintenance_reason"})
        if (!wanted.contains(kept) && now.contains(kept)) wanted[kept] = now.at(kept);
    return wanted;
}

/// The spec of an instance after a registration.
json::object merged_instance(const json::object& now, json::object wanted, const std::string& id, bool keep_checks) {
    for (const auto* kept : {"maintenance", "maintenance_reason"})
        if (!wanted.contains(kept) && now.contains(kept)) wanted[kept] = now.at(kept);
    if (!keep_checks) return wanted;
    auto checks = own_checks(now, id);
    for (auto& fresh : own_checks(wanted, id)) {
        const auto same = std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.id == fresh.id; });
        if (same == checks.end())
            checks.push_back(std::move(fresh));
        else
            *same = std::move(fresh);
    }
    if (!checks.empty()) wanted["checks"] = list_of(checks)["checks"];
    return wanted;
}

/// Adds or replaces an external check. Its initial status, which holds before the first report, stays.
void put_external_check(json::object& spec, std::string_view id, const Check& check) {
    auto all = own_checks(spec, id);
    const auto same = std::find_if(all.begin(), all.end(), [&](const Check& one) { return one.id == check.id; });
    if (same == all.end()) {
        all.push_back(check);
    } else {
        const auto initial = same->initial;
        *same = check;
        same->initial = initial;
    }
    spec["checks"] = list_of(all)["checks"];
}

/// A resource of the catalog with the changes of a registration.
struct Staged {
    const resource::Kind* kind = nullptr;
    std::string name;
    std::optional<resource::Object> before;
    json::object spec, status;

    /// Writes the result of a check as Checker::report does. Returns an event if the status changes.
    std::optional<resource::EventDraft> report(const std::string& check, CheckStatus reported, std::string output, WallTime now,
                                               const std::string& peer) {
        auto results = object_at(status, "checks");
        const bool known = results.contains(check);
        const auto last = known ? catalog::CheckResult::from(object_at(results, check)) : catalog::CheckResult{};
        catalog::CheckResult result{reported, std::move(output), now, {}};
        if (known && last.status == reported) result.since = last.since;
        if (known && last.status == reported && last.output == result.output) return {};
        results[check] = result.to_json();
        status["checks"] = std::move(results);
        if (!known || last.status == reported) return {};
        return resource::EventDraft{.subject = fmt::format("{}/{}", kind->name(), name),
                                    .action = fmt::format("check-{}", name_of(reported)),
                                    .reason = {},
                                    .evidence = json::object{{"check", check}, {"before", name_of(last.status)}, {"peer", peer}}};
    }
};

/// The changes of one registration, written in one transaction, so that blocking queries wake once.
class Registration {
public:
    Registration(resource::Resources& resources, const catalog::Catalog& catalog, std::string node)
        : resources_(resources), catalog_(catalog), node_(std::move(node)) {}

    Staged& node() {
        const auto known = catalog_.node(node_);
        auto& staged =
            stage("CatalogNode", known && !known->resource.empty() ? known->resource : catalog::resource_name(node_, ""));
        if (!staged.spec.contains("node")) staged.spec["node"] = node_;
        return staged;
    }
    Staged& instance(const std::string& id) {
        const auto known = catalog_.find(node_, id);
        return stage("Instance", known ? known->resource : catalog::resource_name(node_, id));
    }
    Result<std::vector<resource::Resources::JointWrite>> writes() const {
        std::vector<resource::Resources::JointWrite> out;
        for (const auto& [key, staged] : staged_) {
            TRY(auto object,
                resource::read_object(*staged.kind, staged.name,
                                      json::object{{"kind", staged.kind->name()}, {"name", staged.name}, {"spec", staged.spec}}));
            if (staged.before) object.labels = staged.before->labels;
            out.push_back({staged.kind, std::move(object), staged.before ? staged.before->revision : 0, staged.status});
        }
        return out;
    }

private:
    Staged& stage(std::string_view kind, const std::string& name) {
        auto& staged = staged_[fmt::format("{}/{}", kind, name)];
        if (staged.kind != nullptr) return staged;
        staged.kind = resources_.registry().find(kind);
        staged.name = name;
        if (auto before = resources_.get(*staged.kind, name); before.ok()) {
            staged.spec = before->spec;
            staged.status = before->status;
            staged.before = std::move(*before);
        }
        return staged;
    }

    resource::Resources& resources_;
    const catalog::Catalog& catalog_;
    std::string node_;
    std::map<std::string, Staged> staged_;
};

/// Name and id of the service of a registration.
std::pair<std::string, std::string> registered_service(const json::object& service) {
    const auto name = text_at(service, service.contains("service") ? "service" : "name"), id = text_at(service, "id");
    return {name, id.empty() ? name : id};
}

json::object registered_node(const json::object& body) {
    json::object spec{{"node", text_at(body, "node")}};
    if (const auto address = text_at(body, "address"); !address.empty()) spec["address"] = address;
    if (const auto id = text_at(body, "id"); !id.empty()) spec["id"] = id;
    if (const auto meta = text_map_at(body, "nodemeta"); !meta.empty()) spec["meta"] = map_to_json(meta);
    if (const auto tagged = text_map_at(body, "taggedaddresses"); !tagged.empty()) spec["tagged_addresses"] = map_to_json(tagged);
    return spec;
}

/// A check with a status from the client; without one it is critical.
Check external_check(const json::object& given) {
    Check check;
    check.id = text_at(given, text_at(given, "checkid").empty() ? "name" : "checkid");
    check.name = text_at(given, "name");
    check.notes = text_at(given, "notes");
    check.kind = Check::Kind::external;
    check.initial = catalog::parse_check_status(text_at(given, "status")).value_or(CheckStatus::critical);
    return check;
}

/// The checks of a registration.
json::array registered_checks(const json::object& body) {
    json::array out;
    if (const auto* one = body.if_contains("check"); one != nullptr && one->is_object()) out.push_back(*one);
    if (const auto* several = body.if_contains("checks"); several != nullptr && several->is_array())
        for (const auto& one : several->get_array())
            if (one.is_object()) out.push_back(one);
    return out;
}

} // namespace

Task<resource::Outcome> ConsulFacade::State::write(Writer by, const resource::Kind& kind, resource::Object object,
                                                   Revision expected) {
    if (expected == 0) co_return co_await resources.create(by.ctx, kind, std::move(object), by.options());
    co_return co_await resources.replace(by.ctx, kind, std::move(object), by.options(expected));
}

Task<Unit> ConsulFacade::State::put_instance(Writer by, std::string node, std::string id, json::object spec, bool keep_checks) {
    const auto& kind = *resources.registry().find("Instance");
    for (int attempt = 0; attempt < 8; ++attempt) {
        const auto known = catalog.find(node, id);
        const auto name = known ? known->resource : catalog::resource_name(node, id);
        const auto existing = resources.get(kind, name);
        const auto wanted = existing.ok() ? merged_instance(existing->spec, spec, id, keep_checks) : spec;
        CO_TRY(auto object,
               resource::read_object(kind, name, json::object{{"kind", "Instance"}, {"name", name}, {"spec", wanted}}));
        if (existing.ok()) object.labels = existing->labels;
        auto done = co_await write(by, kind, std::move(object), existing.ok() ? existing->revision : 0);
        if (done.ok()) co_return Unit{};
        if (done.error().code != Code::conflict) co_return std::move(done).error();
    }
    co_return Error{Code::conflict, "this instance changes too often"};
}

Task<Unit> ConsulFacade::State::change_instance(Writer by, std::string resource, std::function<void(json::object&)> change) {
    const auto& kind = *resources.registry().find("Instance");
    for (int attempt = 0; attempt < 8; ++attempt) {
        CO_TRY(auto object, resources.get(kind, resource));
        auto spec = object.spec;
        change(spec);
        CO_TRY(auto wanted,
               resource::read_object(kind, resource, json::object{{"kind", "Instance"}, {"name", resource}, {"spec", spec}}));
        wanted.labels = object.labels;
        auto done = co_await resources.replace(by.ctx, kind, std::move(wanted), by.options(object.revision));
        if (done.ok()) co_return Unit{};
        if (done.error().code != Code::conflict) co_return std::move(done).error();
    }
    co_return Error{Code::conflict, "this instance changes too often"};
}

Task<Unit> ConsulFacade::State::change_node(Writer by, std::string node, std::function<void(json::object&)> change) {
    const auto& kind = *resources.registry().find("CatalogNode");
    for (int attempt = 0; attempt < 8; ++attempt) {
        const auto known = catalog.node(node);
        const auto name = known && !known->resource.empty() ? known->resource : catalog::resource_name(node, "");
        const auto existing = resources.get(kind, name);
        json::object spec = existing.ok() ? existing->spec : json::object{{"node", node}};
        change(spec);
        if (!spec.contains("node")) spec["node"] = node;
        CO_TRY(auto object,
               resource::read_object(kind, name, json::object{{"kind", "CatalogNode"}, {"name", name}, {"spec", spec}}));
        if (existing.ok()) object.labels = existing->labels;
        auto done = co_await write(by, kind, std::move(object), existing.ok() ? existing->revision : 0);
        if (done.ok()) co_return Unit{};
        if (done.error().code != Code::conflict) co_return std::move(done).error();
    }
    co_return Error{Code::conflict, "this node changes too often"};
}

Task<Unit> ConsulFacade::State::remove_resource(Writer by, std::string_view kind_name, std::string name) {
    auto done = co_await resources.remove(by.ctx, *resources.registry().find(kind_name), std::move(name), by.options());
    if (!done.ok() && done.error().code != Code::not_found) co_return std::move(done).error();
    co_return Unit{};
}

Task<Unit> ConsulFacade::State::deregister_node(Writer by, std::string node) {
    for (const auto& instance : catalog.instances_on(node)) {
        CO_TRY(std::ignore, co_await remove_resource(by, "Instance", instance->resource));
    }
    if (const auto known = catalog.node(node); known && !known->resource.empty()) {
        CO_TRY(std::ignore, co_await remove_resource(by, "CatalogNode", known->resource));
    }
    co_return Unit{};
}

std::string ConsulFacade::State::holder_of_check(std::string_view node, std::string_view check) const {
    for (const auto& instance : catalog.instances_on(node))
        for (const auto& one : instance->checks)
            if (one.check.id == check) return "instances/" + instance->resource;
    if (const auto known = catalog.node(node))
        for (const auto& one : known->checks)
            if (one.check.id == check) return "catalognodes/" + known->resource;
    return {};
}

Task<Unit> ConsulFacade::State::remove_check(Writer by, std::string holder, std::string check) {
    const auto name = holder.substr(holder.find('/') + 1);
    if (holder.starts_with("instances/")) {
        const auto view = catalog.find_resource(name);
        if (!view) co_return Unit{};
        co_return co_await change_instance(by, name, [check, id = view->id](json::object& spec) {
            auto checks = own_checks(spec, id);
            std::erase_if(checks, [&](const Check& one) { return one.id == check; });
            spec["checks"] = list_of(checks)["checks"];
        });
    }
    const auto view = catalog.find_node_resource(name);
    if (!view) co_return Unit{};
    co_return co_await change_node(by, view->name, [check](json::object& spec) {
        auto checks = own_checks(spec, "");
        std::erase_if(checks, [&](const Check& one) { return one.id == check; });
        spec["checks"] = list_of(checks)["checks"];
    });
}

Task<Unit> ConsulFacade::State::record_check(Writer by, std::string holder, std::string check, catalog::CheckStatus status,
                                             std::string output) {
    const auto name = holder.substr(holder.find('/') + 1);
    const bool of_instance = holder.starts_with("instances/");
    std::vector<CheckView> known;
    if (const auto instance = of_instance ? catalog.find_resource(name) : nullptr) known = instance->checks;
    if (const auto node = of_instance ? nullptr : catalog.find_node_resource(name)) known = node->checks;
    const auto at = std::find_if(known.begin(), known.end(), [&](const CheckView& one) { return one.check.id == check; });
    CO_TRY(std::ignore, co_await checker.report(by.ctx, std::move(holder), check, status, std::move(output)));
    if (at == known.end() || at->result.status == status) co_return Unit{};
    // The result is stored already: a lost event is logged and does not fail the request.
    resource::EventDraft news;
    news.subject = fmt::format("{}/{}", of_instance ? "Instance" : "CatalogNode", name);
    news.action = fmt::format("check-{}", name_of(status));
    news.evidence = json::object{{"check", check}, {"before", name_of(at->result.status)}, {"peer", by.peer}};
    std::ignore = co_await resources.record(by.ctx, std::move(news));
    co_return Unit{};
}

Result<Unit> ConsulFacade::State::check_registration(const json::object& body) const {
    const auto node = text_at(body, "node");
    if (node.empty()) return Error{Code::internal, "Must provide node"};
    if (text_at(body, "address").empty() && !flag_at(body, "skipnodeupdate"))
        return Error{Code::internal, "Must provide address if SkipNodeUpdate is not set"};
    std::string service_id;
    if (const auto* service = body.if_contains("service"); service != nullptr && service->is_object()) {
        service_id = registered_service(service->get_object()).second;
        if (service_id.empty() || registered_service(service->get_object()).first.empty())
            return Error{Code::internal, "Must provide service name (Service.Service) when service ID is provided"};
    }
    for (const auto& item : registered_checks(body)) {
        const auto& given = item.get_object();
        const auto of = text_at(given, "serviceid"), status = text_at(given, "status");
        if (text_at(given, "checkid").empty() && text_at(given, "name").empty())
            return Error{Code::internal, "Must provide check ID or name"};
        if (!status.empty() && !catalog::parse_check_status(status).ok())
            return Error{Code::internal, fmt::format("invalid check status: {}", status)};
        if (!of.empty() && of != service_id && !catalog.find(node, of))
            return Error{Code::internal, "failed inserting check: Missing service registration"};
    }
    return Unit{};
}

Task<Unit> ConsulFacade::State::register_from_catalog(Writer by, json::object body) {
    CO_TRY(std::ignore, check_registration(body));
    const auto node = text_at(body, "node");
    for (int attempt = 0; attempt < 8; ++attempt) {
        Registration registration(resources, catalog, node);
        std::vector<resource::EventDraft> events;
        if (!flag_at(body, "skipnodeupdate") || !catalog.node(node)) {
            auto& staged = registration.node();
            staged.spec = merged_node(staged.spec, registered_node(body), true);
        }
        if (const auto* service = body.if_contains("service"); service != nullptr && service->is_object()) {
            const auto [name, id] = registered_service(service->get_object());
            CO_TRY(auto spec, service_spec(service->get_object(), name, node, id));
            auto& staged = registration.instance(id);
            staged.spec = merged_instance(staged.spec, std::move(spec), id, true);
        }
        for (const auto& item : registered_checks(body)) {
            const auto& given = item.get_object();
            const auto of = text_at(given, "serviceid");
            const auto check = external_check(given);
            auto& staged = of.empty() ? registration.node() : registration.instance(of);
            put_external_check(staged.spec, of, check);
            if (auto news = staged.report(check.id, check.initial, text_at(given, "output"), clock.wall(), by.peer))
                events.push_back(std::move(*news));
        }
        CO_TRY(auto writes, registration.writes());
        auto done = co_await resources.write_together(by.ctx, std::move(writes), std::move(events), by.options());
        if (done.ok() || done.error().code != Code::conflict) co_return std::move(done);
        CO_TRY(std::ignore, co_await resources.store().catch_up(by.ctx));
    }
    co_return Error{Code::conflict, "this node and its services change too often"};
}

} // namespace orrery::api::consul
