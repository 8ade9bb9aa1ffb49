#include "api/facades/consul/facade_state.h"
#include "core/ascii.h"
#include "core/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

/// Handlers of /v1/agent and /v1/status.
namespace orrery::api::consul {

namespace {

using catalog::CheckStatus;

constexpr std::size_t max_output = 4096;
constexpr std::string_view consul_version = "1.16.3"; ///< the version whose API the facade implements

std::string truncate_output(std::string text) {
    if (text.size() <= max_output) return text;
    const auto whole = text.size();
    text.resize(max_output);
    return text + fmt::format(" ... (captured {} of {} bytes)", max_output, whole);
}

Error unknown_check(std::string_view id) {
    return {Code::not_found, fmt::format("Unknown check ID \"{}\". Ensure that the check ID is passed, not the check name.", id)};
}
Error unknown_service(std::string_view id) {
    return {Code::not_found,
            fmt::format("Unknown service ID \"{}\". Ensure that the service ID is passed, not the service name.", id)};
}

/// The aggregated status of an instance: the worst of its checks and those of its node; maintenance has precedence.
std::string aggregated(const InstanceView& instance) {
    if (instance.maintenance || (instance.on && instance.on->maintenance)) return "maintenance";
    return std::string(name_of(instance.worst));
}

int status_for(std::string_view aggregated_status) {
    if (aggregated_status == "passing") return 200;
    return aggregated_status == "warning" ? 429 : 503;
}

/// A check in the format of Consul's structs.HealthCheck, with all fields of its definition.
json::object health_check_json(json::object check) {
    for (const auto* field : {"Interval", "Timeout"}) check.erase(field);
    if (check["ServiceTags"].as_array().empty()) check["ServiceTags"] = nullptr;
    check["Type"] = "";
    check["Definition"] = json::object{{"Interval", "0s"}, {"Timeout", "0s"},     {"DeregisterCriticalServiceAfter", "0s"},
                                       {"HTTP", ""},       {"Header", nullptr},   {"Method", ""},
                                       {"Body", ""},       {"TLSServerName", ""}, {"TLSSkipVerify", false},
                                       {"TCP", ""},        {"TCPUseTLS", false},  {"UDP", ""},
                                       {"GRPC", ""},       {"OSService", ""},     {"GRPCUseTLS", false}};
    check["CreateIndex"] = 0;
    check["ModifyIndex"] = 0;
    return check;
}

/// The server address of the Raft protocol, as Consul's status routes show it.
std::string raft_address(const ConsulFacadeOptions& options) { return fmt::format("{}:8300", options.address); }

Result<bool> enable_flag(const Call& call) {
    const auto value = call.query("enable");
    if (!call.has("enable")) return Error{Code::invalid, "Missing value for enable"};
    if (value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return Error{Code::invalid, fmt::format("Invalid value for enable: \"{}\"", value)};
}

} // namespace

Task<Unit> ConsulFacade::State::agent_self(Call& call) {
    const auto id = uuid_of(options.node);
    json::object member{
        {"Name", options.node},
        {"Addr", options.address},
        {"Port", 8301},
        {"Tags",
         json::object{{"dc", options.datacenter}, {"id", id}, {"role", "consul"}, {"build", fmt::format("{}:", consul_version)}}},
        {"Status", 1},
        {"ProtocolMin", 1},
        {"ProtocolMax", 5},
        {"ProtocolCur", 2},
        {"DelegateMin", 2},
        {"DelegateMax", 5},
        {"DelegateCur", 4}};
    return send_json(call,
                     json::object{{"Config", json::object{{"Datacenter", options.datacenter},
                                                          {"PrimaryDatacenter", options.datacenter},
                                                          {"NodeName", options.node},
                                                          {"NodeID", id},
                                                          {"Revision", "orrery " + options.version},
                                                          {"Server", true},
                                                          {"Version", consul_version},
                                                          {"BuildDate", "1970-01-01T00:00:01Z"}}},
                                  {"DebugConfig", json::object()},
                                  {"Coord", nullptr},
                                  {"Member", std::move(member)},
                                  {"Stats", json::object()},
                                  {"Meta", json::object{{"consul-network-segment", ""}, {"consul-version", consul_version}}}});
}

Task<Unit> ConsulFacade::State::agent_members(Call& call) {
    json::array out;
    for (const auto& node : catalog.nodes()) {
        const bool serves = std::any_of(node->checks.begin(), node->checks.end(),
                                        [](const CheckView& check) { return check.check.id == "serfHealth"; });
        if (!serves) continue;
        out.push_back(json::object{{"Name", node->name},
                                   {"Addr", node->address},
                                   {"Port", 8301},
                                   {"Tags", json::object{{"acls", "1"},
                                                         {"build", fmt::format("{}:", consul_version)},
                                                         {"dc", options.datacenter},
                                                         {"id", node->id},
                                                         {"port", "8300"},
                                                         {"raft_vsn", "3"},
                                                         {"role", "consul"},
                                                         {"segment", ""},
                                                         {"vsn", "2"},
                                                         {"vsn_max", "3"},
                                                         {"vsn_min", "2"}}},
                                   {"Status", 1},
                                   {"ProtocolMin", 1},
                                   {"ProtocolMax", 5},
                                   {"ProtocolCur", 2},
                                   {"DelegateMin", 2},
                                   {"DelegateMax", 5},
                                   {"DelegateCur", 4}});
    }
    return send_json(call, std::move(out));
}

Task<Unit> ConsulFacade::State::agent_services(Call& call) {
    auto filter = Filter::parse(call.query("filter"));
    if (!filter.ok()) co_return co_await send_text(call, 500, filter.error().message);
    json::value out = json::object();
    for (const auto& instance : catalog.instances_on(options.node)) out.as_object()[instance->id] = agent_service_json(*instance);
    filter->apply(out);
    co_return co_await send_json(call, std::move(out));
}

Task<Unit> ConsulFacade::State::agent_service(Call& call) {
    const auto instance = catalog.find(options.node, call.path[0]);
    if (!instance) co_return co_await send_text(call, 404, fmt::format("unknown service ID: {}", call.path[0]));
    auto out = agent_service_json(*instance);
    const auto sum = uuid_of(fmt::format("{} {}", instance->resource, instance->modified)).substr(0, 8);
    out["ContentHash"] = sum;
    co_return co_await send_json(call, std::move(out), 200, {{"X-Consul-Contenthash", sum}});
}

Task<Unit> ConsulFacade::State::agent_checks(Call& call) {
    auto filter = Filter::parse(call.query("filter"));
    if (!filter.ok()) co_return co_await send_text(call, 500, filter.error().message);
    json::array all;
    if (const auto node = catalog.node(options.node)) all = node_checks(*node);
    for (const auto& instance : catalog.instances_on(options.node))
        for (auto& check : instance_checks(*instance)) all.push_back(std::move(check));
    json::value out = json::object();
    for (auto& check : all) {
        const std::string id(check.at("CheckID").as_string());
        if (id == "serfHealth") continue; // a check of the cluster, not of the agent
        check.as_object()["CreateIndex"] = 0;
        check.as_object()["ModifyIndex"] = 0;
        out.as_object()[id] = std::move(check);
    }
    filter->apply(out);
    co_return co_await send_json(call, std::move(out));
}

Task<Unit> ConsulFacade::State::agent_service_register(Call& call) {
    CO_TRY(auto body, co_await object_of(call));
    const auto replace = call.query("replace-existing-checks");
    CO_TRY(std::ignore, co_await register_agent_service(call.writer(), std::move(body),
                                                        call.has("replace-existing-checks") && replace != "false"));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_service_deregister(Call& call) {
    const auto instance = catalog.find(options.node, call.path[0]);
    if (!instance) co_return unknown_service(call.path[0]);
    CO_TRY(std::ignore, co_await remove_resource(call.writer(), "Instance", instance->resource));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_service_maintenance(Call& call) {
    CO_TRY(const bool enable, enable_flag(call));
    const auto instance = catalog.find(options.node, call.path[0]);
    if (!instance) co_return unknown_service(call.path[0]);
    CO_TRY(std::ignore,
           co_await change_instance(call.writer(), instance->resource, [enable, reason = call.query("reason")](json::object& spec) {
               spec.erase("maintenance");
               spec.erase("maintenance_reason");
               if (!enable) return;
               spec["maintenance"] = true;
               if (!reason.empty()) spec["maintenance_reason"] = reason;
           }));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_maintenance(Call& call) {
    CO_TRY(const bool enable, enable_flag(call));
    CO_TRY(std::ignore,
           co_await change_node(call.writer(), options.node, [enable, reason = call.query("reason")](json::object& spec) {
               spec["maintenance"] = enable;
               spec["maintenance_reason"] = enable ? reason : "";
           }));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_check_register(Call& call) {
    CO_TRY(auto body, co_await object_of(call));
    CO_TRY(std::ignore, co_await register_agent_check(call.writer(), std::move(body)));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_check_deregister(Call& call) {
    const auto holder = holder_of_check(options.node, call.path[0]);
    if (holder.empty() || call.path[0] == "serfHealth") co_return unknown_check(call.path[0]);
    CO_TRY(std::ignore, co_await remove_check(call.writer(), holder, call.path[0]));
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::report_check(Call& call, CheckStatus status, std::string output) {
    const auto holder = holder_of_check(options.node, call.path[0]);
    if (holder.empty() || call.path[0] == "serfHealth") co_return unknown_check(call.path[0]);
    auto done = co_await record_check(call.writer(), holder, call.path[0], status, truncate_output(std::move(output)));
    if (!done.ok() && done.error().code == Code::invalid)
        co_return Error{Code::internal, fmt::format("CheckID \"{}\" does not have associated TTL", call.path[0])};
    if (!done.ok()) co_return std::move(done).error();
    co_return co_await send_empty(call);
}

Task<Unit> ConsulFacade::State::agent_check_pass(Call& call) {
    return report_check(call, CheckStatus::passing, call.query("note"));
}

Task<Unit> ConsulFacade::State::agent_check_warn(Call& call) {
    return report_check(call, CheckStatus::warning, call.query("note"));
}

Task<Unit> ConsulFacade::State::agent_check_fail(Call& call) {
    return report_check(call, CheckStatus::critical, call.query("note"));
}

Task<Unit> ConsulFacade::State::agent_check_update(Call& call) {
    CO_TRY(const auto body, co_await object_of(call));
    const auto status = catalog::parse_check_status(text_at(body, "status"));
    if (!status.ok()) co_return Error{Code::invalid, fmt::format("Invalid check status: '{}'", text_at(body, "status"))};
    co_return co_await report_check(call, *status, text_at(body, "output"));
}

json::object ConsulFacade::State::agent_health_json(const InstanceView& instance) const {
    json::array checks;
    if (instance.on)
        for (auto& check : node_checks(*instance.on))
            if (check.at("CheckID").as_string() != "serfHealth") checks.push_back(health_check_json(std::move(check.as_object())));
    for (auto& check : instance_checks(instance)) checks.push_back(health_check_json(std::move(check.as_object())));
    return {{"AggregatedStatus", aggregated(instance)}, {"Service", agent_service_json(instance)}, {"Checks", std::move(checks)}};
}

Task<Unit> ConsulFacade::State::agent_health_by_id(Call& call) {
    const auto instance = catalog.find(options.node, call.path[0]);
    const bool as_text = call.query("format") == "text";
    if (!instance) {
        const auto reason = fmt::format("ServiceId {} not found", call.path[0]);
        if (as_text) co_return co_await send_text(call, 404, reason, {{"X-Consul-Reason", reason}});
        co_return co_await send_json(call,
                                     json::object{{"AggregatedStatus", "critical"}, {"Service", nullptr}, {"Checks", nullptr}}, 404,
                                     {{"X-Consul-Reason", reason}});
    }
    const auto status = aggregated(*instance);
    if (as_text) co_return co_await send_text(call, status_for(status), status, {{"X-Consul-Reason", status}});
    co_return co_await send_json(call, agent_health_json(*instance), status_for(status), {{"X-Consul-Reason", status}});
}

Task<Unit> ConsulFacade::State::agent_health_by_name(Call& call) {
    json::array out;
    std::string worst = "passing";
    const auto rank = [](std::string_view status) {
        return status == "maintenance" ? 3 : status == "critical" ? 2 : status == "warning" ? 1 : 0;
    };
    for (const auto& instance : catalog.instances_on(options.node)) {
        if (ascii_lower(instance->service) != ascii_lower(call.path[0])) continue;
        out.push_back(agent_health_json(*instance));
        if (const auto status = aggregated(*instance); rank(status) > rank(worst)) worst = status;
    }
    const bool as_text = call.query("format") == "text";
    if (out.empty()) {
        const auto reason = fmt::format("ServiceName {} Not Found", call.path[0]);
        if (as_text) co_return co_await send_text(call, 404, reason, {{"X-Consul-Reason", reason}});
        co_return co_await send_json(call, std::move(out), 404, {{"X-Consul-Reason", reason}});
    }
    if (as_text) co_return co_await send_text(call, status_for(worst), worst, {{"X-Consul-Reason", worst}});
    co_return co_await send_json(call, std::move(out), status_for(worst), {{"X-Consul-Reason", worst}});
}

Task<Unit> ConsulFacade::State::status_leader(Call& call) {
    return send_json(call, leadership.leader().empty() ? json::value("") : json::value(raft_address(options)));
}

Task<Unit> ConsulFacade::State::status_peers(Call& call) { return send_json(call, json::array{raft_address(options)}); }

} // namespace orrery::api::consul
