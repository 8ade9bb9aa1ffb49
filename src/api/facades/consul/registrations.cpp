#include "api/facades/consul/state.h"
#include "catalog/json_read.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>

/// What clients write, made into resources.
namespace orrery::api::consul {

namespace {

using catalog::Check;
using catalog::CheckStatus;
using catalog::number_at;
using catalog::object_at;
using catalog::text_at;
using catalog::texts_at;
using catalog::texts_by_name;

json::object map_to_json(const std::map<std::string, std::string>& map) {
    json::object out;
    for (const auto& [key, value] : map) out[key] = value;
    return out;
}

bool flag_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    return value != nullptr && value->is_bool() && value->get_bool();
}

/// A duration, written "10s" or as nanoseconds.
Result<std::optional<Duration>> duration_at(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || value->is_null()) return std::optional<Duration>{};
    if (value->is_string()) {
        if (value->get_string().empty()) return std::optional<Duration>{};
        const auto parsed = parse_go_duration(value->get_string());
        if (!parsed)
            return Error{Code::invalid, fmt::format("Request decode failed: time: invalid duration \"{}\"",
                                                    std::string_view(value->get_string()))};
        return parsed;
    }
    if (value->is_int64())
        return std::optional<Duration>(std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(value->get_int64())));
    return Error{Code::invalid, fmt::format("Request decode failed: {} is no duration", key)};
}

/// Of a body whose keys are plain.
Result<Check> check_definition(const json::object& body, std::string_view name_otherwise) {
    Check out;
    out.id = text_at(body, body.contains("checkid") ? "checkid" : "id");
    out.name = text_at(body, "name");
    if (out.name.empty()) out.name = name_otherwise;
    out.notes = text_at(body, "notes");
    out.rise = static_cast<int>(std::clamp<std::int64_t>(number_at(body, "successbeforepassing", 0), 0, 99)) + 1;
    out.fall = static_cast<int>(std::clamp<std::int64_t>(number_at(body, "failuresbeforecritical", 0), 0, 99)) + 1;
    if (const auto status = text_at(body, "status"); !status.empty()) {
        const auto parsed = catalog::parse_check_status(status);
        if (!parsed.ok()) return Error{Code::invalid, "Bad check status"};
        out.initial = *parsed;
    }
    TRY(const auto ttl, duration_at(body, "ttl"));
    TRY(const auto interval, duration_at(body, "interval"));
    TRY(const auto timeout, duration_at(body, "timeout"));
    TRY(const auto remove_after, duration_at(body, "deregistercriticalserviceafter"));
    if (remove_after && *remove_after > Duration::zero())
        out.remove_after = std::max<Duration>(*remove_after, std::chrono::minutes(1));
    for (const auto* other : {"grpc", "udp", "h2ping", "dockercontainerid", "aliasnode", "aliasservice", "osservice"})
        if (!text_at(body, other).empty()) return Error{Code::invalid, fmt::format("{} checks are not supported here", other)};
    if (!texts_at(body, "args").empty() || !texts_at(body, "scriptargs").empty() || !text_at(body, "script").empty())
        return Error{Code::invalid,
                     "Scripts are disabled on this agent; commands on managed nodes are checks of a Service (kind: command)"};
    const auto http = text_at(body, "http"), tcp = text_at(body, "tcp");
    if (!http.empty() || !tcp.empty()) {
        if (!interval || *interval <= Duration::zero())
            return Error{Code::invalid, "Invalid check: TTL must be > 0 for TTL checks, or Interval must be > 0 for the others"};
        out.interval = std::max<Duration>(*interval, std::chrono::seconds(1));
        out.timeout =
            std::min<Duration>(timeout && *timeout > Duration::zero() ? *timeout : std::chrono::seconds(10), out.interval);
    }
    if (!http.empty()) {
        if (flag_at(body, "tlsskipverify"))
            return Error{Code::invalid, "TLSSkipVerify is not supported here: certificates are always verified"};
        out.kind = Check::Kind::http;
        out.url = http;
        out.method = text_at(body, "method").empty() ? "GET" : text_at(body, "method");
        out.body = text_at(body, "body");
        for (const auto& [name, values] : object_at(body, "header"))
            if (values.is_array() && !values.get_array().empty() && values.get_array()[0].is_string())
                out.headers[std::string(name)] = std::string(std::string_view(values.get_array()[0].get_string()));
    } else if (!tcp.empty()) {
        out.kind = Check::Kind::tcp;
        const auto colon = tcp.rfind(':');
        if (colon == std::string::npos)
            return Error{Code::invalid, fmt::format("Invalid check: address {}: missing port in address", tcp)};
        auto host = tcp.substr(0, colon);
        if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
        out.address = host.empty() ? "127.0.0.1" : host;
        const auto port = tcp.substr(colon + 1);
        if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) < 1 ||
            std::stoi(port) > 65535)
            return Error{Code::invalid, fmt::format("Invalid check: \"{}\" is no port", port)};
        out.port = static_cast<std::uint16_t>(std::stoi(port));
    } else if (ttl && *ttl > Duration::zero()) {
        out.kind = Check::Kind::ttl;
        out.ttl = *ttl;
    } else {
        return Error{Code::invalid, "Invalid check: TTL must be > 0 for TTL checks"};
    }
    return out;
}

json::object list_of(const std::vector<Check>& checks) {
    json::array list;
    for (const auto& check : checks) list.push_back(check.to_json());
    return {{"checks", std::move(list)}};
}

/// The checks of a spec, with ids as the catalog shows them.
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

json::value tagged_from(const json::object& body) {
    json::object out;
    for (const auto& [name, value] : object_at(body, "taggedaddresses"))
        if (value.is_object())
            out[name] = json::object{{"address", text_at(value.get_object(), "address")},
                                     {"port", number_at(value.get_object(), "port", 0)}};
    if (out.empty()) return nullptr;
    return out;
}

/// What an agent adds: under which names an IP address can be found.
json::value tagged_for(const std::string& address, std::int64_t port) {
    boost::system::error_code error;
    const auto parsed = asio::ip::make_address(address, error);
    if (error) return nullptr;
    const auto family = parsed.is_v4() ? "ipv4" : "ipv6";
    const json::object one{{"address", address}, {"port", port}};
    return json::object{{fmt::format("lan_{}", family), one}, {fmt::format("wan_{}", family), one}};
}

/// The fields a service has in both kinds of registration.
Result<json::object> service_spec(const json::object& body, const std::string& name, const std::string& node,
                                  const std::string& id) {
    json::object spec{{"service", name}, {"node", node}, {"id", id}};
    const auto address = text_at(body, "address");
    if (!address.empty()) spec["address"] = address;
    const auto port = number_at(body, "port", 0);
    if (port < 0 || port > 65535) return Error{Code::invalid, fmt::format("Invalid port: {}", port)};
    if (port > 0) spec["port"] = port;
    if (const auto tags = texts_at(body, "tags"); !tags.empty()) spec["tags"] = json::array(tags.begin(), tags.end());
    if (const auto meta = texts_by_name(body, "meta"); !meta.empty()) {
        if (meta.size() > 64)
            return Error{Code::invalid, "Invalid Service Meta: Node metadata cannot contain more than 64 key/value pairs"};
        spec["meta"] = map_to_json(meta);
    }
    const auto& weights = object_at(body, "weights");
    if (!weights.empty()) {
        const auto passing = number_at(weights, "passing", 1), warning = number_at(weights, "warning", 1);
        if (passing < 1) return Error{Code::invalid, "Invalid Weights: passing must be greater than 0"};
        spec["weights"] = json::object{{"passing", passing}, {"warning", warning}};
    }
    if (flag_at(body, "enabletagoverride")) spec["tag_override"] = true;
    if (auto tagged = tagged_from(body); !tagged.is_null()) spec["tagged_addresses"] = std::move(tagged);
    return spec;
}

} // namespace

Task<resource::Outcome> View::State::write(Writer by, const resource::Kind& kind, resource::Object object, Revision stands_at) {
    if (stands_at == 0) co_return co_await resources.create(by.ctx, kind, std::move(object), by.options());
    co_return co_await resources.replace(by.ctx, kind, std::move(object), by.options(stands_at));
}

Task<Unit> View::State::put_node(Writer by, std::string node, json::object spec, bool keep_checks) {
    co_return co_await change_node(std::move(by), std::move(node), [spec, keep_checks](json::object& now) {
        auto wanted = spec;
        if (keep_checks && now.contains("checks")) wanted["checks"] = now.at("checks");
        for (const auto* kept : {"node", "id", "maintenance", "maintenance_reason"})
            if (!wanted.contains(kept) && now.contains(kept)) wanted[kept] = now.at(kept);
        now = std::move(wanted);
    });
}

Task<Unit> View::State::put_instance(Writer by, std::string node, std::string id, json::object spec, bool keep_checks) {
    const auto& kind = *resources.registry().find("Instance");
    for (int attempt = 0; attempt < 8; ++attempt) {
        const auto known = catalog.find(node, id);
        const auto name = known ? known->resource : catalog::resource_name(node, id);
        const auto existing = resources.get(kind, name);
        auto wanted = spec;
        if (existing.ok()) {
            for (const auto* kept : {"maintenance", "maintenance_reason"})
                if (!wanted.contains(kept) && existing->spec.contains(kept)) wanted[kept] = existing->spec.at(kept);
            if (keep_checks) {
                auto checks = own_checks(existing->spec, id);
                for (auto& fresh : own_checks(wanted, id)) {
                    const auto same =
                        std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.id == fresh.id; });
                    if (same == checks.end())
                        checks.push_back(std::move(fresh));
                    else
                        *same = std::move(fresh);
                }
                if (!checks.empty()) wanted["checks"] = list_of(checks)["checks"];
            }
        }
        CO_TRY(auto object,
               resource::read_object(kind, name, json::object{{"kind", "Instance"}, {"name", name}, {"spec", wanted}}));
        if (existing.ok()) object.labels = existing->labels;
        auto done = co_await write(by, kind, std::move(object), existing.ok() ? existing->revision : 0);
        if (done.ok()) co_return Unit{};
        if (done.error().code != Code::conflict) co_return std::move(done).error();
    }
    co_return Error{Code::conflict, "this instance changes too often"};
}

Task<Unit> View::State::change_instance(Writer by, std::string resource, std::function<void(json::object&)> change) {
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

Task<Unit> View::State::change_node(Writer by, std::string node, std::function<void(json::object&)> change) {
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

Task<Unit> View::State::remove_resource(Writer by, std::string_view kind_name, std::string name) {
    auto done = co_await resources.remove(by.ctx, *resources.registry().find(kind_name), std::move(name), by.options());
    if (!done.ok() && done.error().code != Code::not_found) co_return std::move(done).error();
    co_return Unit{};
}

Task<Unit> View::State::deregister_node(Writer by, std::string node) {
    for (const auto& instance : catalog.instances_on(node)) {
        CO_TRY(std::ignore, co_await remove_resource(by, "Instance", instance->resource));
    }
    if (const auto known = catalog.node(node); known && !known->resource.empty()) {
        CO_TRY(std::ignore, co_await remove_resource(by, "CatalogNode", known->resource));
    }
    co_return Unit{};
}

std::string View::State::holder_of_check(std::string_view node, std::string_view check) const {
    for (const auto& instance : catalog.instances_on(node))
        for (const auto& one : instance->checks)
            if (one.check.id == check) return "instances/" + instance->resource;
    if (const auto known = catalog.node(node))
        for (const auto& one : known->checks)
            if (one.check.id == check) return "catalognodes/" + known->resource;
    return {};
}

Task<Unit> View::State::remove_check(Writer by, std::string holder, std::string check) {
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

Task<Unit> View::State::say_of_check(Writer by, std::string holder, std::string check, catalog::CheckStatus status,
                                     std::string output) {
    const auto name = holder.substr(holder.find('/') + 1);
    const bool of_instance = holder.starts_with("instances/");
    std::vector<CheckView> known;
    if (const auto instance = of_instance ? catalog.find_resource(name) : nullptr) known = instance->checks;
    if (const auto node = of_instance ? nullptr : catalog.find_node_resource(name)) known = node->checks;
    const auto at = std::find_if(known.begin(), known.end(), [&](const CheckView& one) { return one.check.id == check; });
    CO_TRY(std::ignore, co_await checker.report(by.ctx, std::move(holder), check, status, std::move(output)));
    if (at == known.end() || at->result.status == status) co_return Unit{};
    // Its result stands already: a lost event is logged, and no reason to say that this failed.
    resource::EventDraft news;
    news.subject = fmt::format("{}/{}", of_instance ? "Instance" : "CatalogNode", name);
    news.what = fmt::format("check-{}", name_of(status));
    news.evidence = json::object{{"check", check}, {"before", name_of(at->result.status)}, {"peer", by.peer}};
    std::ignore = co_await resources.record(by.ctx, std::move(news));
    co_return Unit{};
}

Task<Unit> View::State::register_from_catalog(Writer by, json::object body) {
    const auto node = text_at(body, "node"), address = text_at(body, "address");
    const bool skip_node = flag_at(body, "skipnodeupdate");
    if (node.empty()) co_return Error{Code::internal, "Must provide node"};
    if (address.empty() && !skip_node) co_return Error{Code::internal, "Must provide address if SkipNodeUpdate is not set"};
    // All of it or nothing: what cannot be is seen before anything is written.
    const auto* service = body.if_contains("service");
    const bool has_service = service != nullptr && service->is_object();
    std::string service_name, service_id;
    if (has_service) {
        const auto& given = service->get_object();
        service_name = text_at(given, given.contains("service") ? "service" : "name");
        service_id = text_at(given, "id").empty() ? service_name : text_at(given, "id");
        if (service_name.empty())
            co_return Error{Code::internal, "Must provide service name (Service.Service) when service ID is provided"};
    }
    json::array checks;
    if (const auto* one = body.if_contains("check"); one != nullptr && one->is_object()) checks.push_back(*one);
    if (const auto* several = body.if_contains("checks"); several != nullptr && several->is_array())
        for (const auto& one : several->get_array())
            if (one.is_object()) checks.push_back(one);
    for (const auto& item : checks) {
        const auto& given = item.get_object();
        const auto of = text_at(given, "serviceid"), status = text_at(given, "status");
        if (text_at(given, "checkid").empty() && text_at(given, "name").empty())
            co_return Error{Code::internal, "Must provide check ID or name"};
        if (!status.empty() && !catalog::parse_check_status(status).ok())
            co_return Error{Code::internal, fmt::format("invalid check status: {}", status)};
        if (!of.empty() && of != service_id && !catalog.find(node, of))
            co_return Error{Code::internal, "failed inserting check: Missing service registration"};
    }
    if (!skip_node || !catalog.node(node)) {
        json::object spec;
        if (!address.empty()) spec["address"] = address;
        if (const auto id = text_at(body, "id"); !id.empty()) spec["id"] = id;
        if (const auto meta = texts_by_name(body, "nodemeta"); !meta.empty()) spec["meta"] = map_to_json(meta);
        if (const auto tagged = texts_by_name(body, "taggedaddresses"); !tagged.empty())
            spec["tagged_addresses"] = map_to_json(tagged);
        CO_TRY(std::ignore, co_await put_node(by, node, std::move(spec), true));
    }
    if (has_service) {
        CO_TRY(auto spec, service_spec(service->get_object(), service_name, node, service_id));
        CO_TRY(std::ignore, co_await put_instance(by, node, service_id, std::move(spec), true));
    }
    for (const auto& item : checks) {
        const auto& given = item.get_object();
        auto id = text_at(given, "checkid"), name = text_at(given, "name"), of = text_at(given, "serviceid");
        if (id.empty()) id = name;
        Check check;
        check.id = id;
        check.name = name;
        check.notes = text_at(given, "notes");
        check.kind = Check::Kind::external;
        const auto status = catalog::parse_check_status(text_at(given, "status").empty() ? "critical" : text_at(given, "status"));
        if (!status.ok()) co_return Error{Code::internal, fmt::format("invalid check status: {}", text_at(given, "status"))};
        check.initial = *status;
        const auto add = [check](json::object& spec, std::string_view instance_id) {
            auto all = own_checks(spec, instance_id);
            const auto same = std::find_if(all.begin(), all.end(), [&](const Check& one) { return one.id == check.id; });
            if (same == all.end())
                all.push_back(check);
            else { // what holds before the first word does not change with each word
                const auto initial = same->initial;
                *same = check;
                same->initial = initial;
            }
            spec["checks"] = list_of(all)["checks"];
        };
        std::string holder;
        if (of.empty()) {
            CO_TRY(std::ignore, co_await change_node(by, node, [add](json::object& spec) { add(spec, ""); }));
            holder = "catalognodes/" + catalog.node(node)->resource;
        } else {
            const auto instance = catalog.find(node, of);
            if (!instance) co_return Error{Code::internal, fmt::format("failed inserting check: Missing service registration")};
            CO_TRY(std::ignore, co_await change_instance(by, instance->resource, [add, of](json::object& spec) { add(spec, of); }));
            holder = "instances/" + instance->resource;
        }
        CO_TRY(std::ignore, co_await say_of_check(by, holder, id, *status, text_at(given, "output")));
    }
    co_return Unit{};
}

Task<Unit> View::State::register_agent_service(Writer by, json::object body, bool replace_checks) {
    const auto name = text_at(body, "name");
    if (name.empty()) co_return Error{Code::invalid, "Missing service name"};
    auto id = text_at(body, "id");
    if (id.empty()) id = name;
    CO_TRY(auto spec, service_spec(body, name, options.node, id));
    if (!spec.contains("tagged_addresses") && spec.contains("address"))
        if (auto tagged = tagged_for(text_at(body, "address"), number_at(body, "port", 0)); !tagged.is_null())
            spec["tagged_addresses"] = std::move(tagged);
    json::array given;
    if (const auto* one = body.if_contains("check"); one != nullptr && one->is_object()) given.push_back(*one);
    if (const auto* several = body.if_contains("checks"); several != nullptr && several->is_array())
        for (const auto& one : several->get_array())
            if (one.is_object()) given.push_back(one);
    std::vector<Check> checks;
    for (std::size_t i = 0; i < given.size(); ++i) {
        CO_TRY(auto check, check_definition(given[i].get_object(), fmt::format("Service '{}' check", name)));
        if (check.id.empty()) check.id = given.size() == 1 ? "service:" + id : fmt::format("service:{}:{}", id, i + 1);
        checks.push_back(std::move(check));
    }
    if (!checks.empty()) spec["checks"] = list_of(checks)["checks"];
    co_return co_await put_instance(by, options.node, id, std::move(spec), !replace_checks);
}

Task<Unit> View::State::register_agent_check(Writer by, json::object body) {
    if (text_at(body, "name").empty()) co_return Error{Code::invalid, "Missing check name"};
    CO_TRY(auto check, check_definition(body, ""));
    if (check.id.empty()) check.id = check.name;
    const auto add = [check](json::object& spec, std::string_view id) {
        auto all = own_checks(spec, id);
        const auto same = std::find_if(all.begin(), all.end(), [&](const Check& one) { return one.id == check.id; });
        if (same == all.end())
            all.push_back(check);
        else
            *same = check;
        spec["checks"] = list_of(all)["checks"];
    };
    const auto of = text_at(body, "serviceid");
    if (of.empty()) co_return co_await change_node(by, options.node, [add](json::object& spec) { add(spec, ""); });
    const auto instance = catalog.find(options.node, of);
    if (!instance) co_return Error{Code::not_found, fmt::format("ServiceID \"{}\" does not exist", of)};
    co_return co_await change_instance(by, instance->resource, [add, of](json::object& spec) { add(spec, of); });
}

} // namespace orrery::api::consul
