#include "api/facades/consul/state.h"
#include "catalog/json_read.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::api::consul {

namespace {

using catalog::CheckStatus;

constexpr std::size_t longest_output = 4096;
constexpr std::string_view spoken_version = "1.16.3"; ///< of the API whose words these are

std::string cut_output(std::string text) {
    if (text.size() <= longest_output) return text;
    const auto whole = text.size();
    text.resize(longest_output);
    return text + fmt::format(" ... (captured {} of {} bytes)", longest_output, whole);
}

Error unknown_check(std::string_view id) {
    return {Code::not_found, fmt::format("Unknown check ID \"{}\". Ensure that the check ID is passed, not the check name.", id)};
}
Error unknown_service(std::string_view id) {
    return {Code::not_found,
            fmt::format("Unknown service ID \"{}\". Ensure that the service ID is passed, not the service name.", id)};
}

/// The worst of an instance's checks and those of its node, maintenance first.
std::string aggregated(const InstanceView& instance) {
    if (instance.maintenance || (instance.on && instance.on->maintenance)) return "maintenance";
    return std::string(name_of(instance.worst));
}

int status_for(std::string_view aggregated_status) {
    if (aggregated_status == "passing") return 200;
    return aggregated_status == "warning" ? 429 : 503;
}

/// As an older part of Consul's code shows a check, with every field of its definition.
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

Result<bool> enable_flag(const Call& call) {
    const auto value = call.query("enable");
    if (!call.has("enable")) return Error{Code::invalid, "Missing value for enable"};
    if (value == "true" || value == "1") return true;
    if (value == "false" || value == "0") return false;
    return Error{Code::invalid, fmt::format("Invalid value for enable: \"{}\"", value)};
}

} // namespace

void View::State::add_agent_routes() {
    add("GET", "agent/self", [this](Call& call) {
        const auto id = uuid_of(options.node);
        json::object member{{"Name", options.node},
                            {"Addr", options.address},
                            {"Port", 8301},
                            {"Tags", json::object{{"dc", options.datacenter},
                                                  {"id", id},
                                                  {"role", "consul"},
                                                  {"build", fmt::format("{}:", spoken_version)}}},
                            {"Status", 1},
                            {"ProtocolMin", 1},
                            {"ProtocolMax", 5},
                            {"ProtocolCur", 2},
                            {"DelegateMin", 2},
                            {"DelegateMax", 5},
                            {"DelegateCur", 4}};
        return answer(call,
                      json::object{{"Config", json::object{{"Datacenter", options.datacenter},
                                                           {"PrimaryDatacenter", options.datacenter},
                                                           {"NodeName", options.node},
                                                           {"NodeID", id},
                                                           {"Revision", "orrery " + options.version},
                                                           {"Server", true},
                                                           {"Version", spoken_version},
                                                           {"BuildDate", "1970-01-01T00:00:01Z"}}},
                                   {"DebugConfig", json::object()},
                                   {"Coord", nullptr},
                                   {"Member", std::move(member)},
                                   {"Stats", json::object()},
                                   {"Meta", json::object{{"consul-network-segment", ""}, {"consul-version", spoken_version}}}});
    });
    add("GET", "agent/members", [this](Call& call) {
        json::array out;
        for (const auto& node : catalog.nodes()) {
            const bool serves = std::any_of(node->checks.begin(), node->checks.end(),
                                            [](const CheckView& check) { return check.check.id == "serfHealth"; });
            if (!serves) continue;
            out.push_back(json::object{{"Name", node->name},
                                       {"Addr", node->address},
                                       {"Port", 8301},
                                       {"Tags", json::object{{"acls", "1"},
                                                             {"build", fmt::format("{}:", spoken_version)},
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
        return answer(call, std::move(out));
    });
    add("GET", "agent/services", [this](Call& call) -> Task<Unit> {
        auto filter = Filter::parse(call.query("filter"));
        if (!filter.ok()) co_return co_await text(call, 500, filter.error().message);
        json::value out = json::object();
        for (const auto& instance : catalog.instances_on(options.node))
            out.as_object()[instance->id] = agent_service_json(*instance);
        filter->apply(out);
        co_return co_await answer(call, std::move(out));
    });
    add("GET", "agent/service/*", [this](Call& call) -> Task<Unit> {
        const auto instance = catalog.find(options.node, call.rest[0]);
        if (!instance) co_return co_await text(call, 404, fmt::format("unknown service ID: {}", call.rest[0]));
        auto out = agent_service_json(*instance);
        const auto sum = uuid_of(fmt::format("{} {}", instance->resource, instance->modified)).substr(0, 8);
        out["ContentHash"] = sum;
        co_return co_await answer(call, std::move(out), 200, {{"X-Consul-Contenthash", sum}});
    });
    add("GET", "agent/checks", [this](Call& call) -> Task<Unit> {
        auto filter = Filter::parse(call.query("filter"));
        if (!filter.ok()) co_return co_await text(call, 500, filter.error().message);
        json::array all;
        if (const auto node = catalog.node(options.node)) all = node_checks(*node);
        for (const auto& instance : catalog.instances_on(options.node))
            for (auto& check : instance_checks(*instance)) all.push_back(std::move(check));
        json::value out = json::object();
        for (auto& check : all) {
            const std::string id(check.at("CheckID").as_string());
            if (id == "serfHealth") continue; // the cluster's, not the agent's
            check.as_object()["CreateIndex"] = 0;
            check.as_object()["ModifyIndex"] = 0;
            out.as_object()[id] = std::move(check);
        }
        filter->apply(out);
        co_return co_await answer(call, std::move(out));
    });
    add("PUT", "agent/service/register", [this](Call& call) -> Task<Unit> {
        CO_TRY(auto body, co_await object_of(call));
        const auto replace = call.query("replace-existing-checks");
        CO_TRY(std::ignore, co_await register_agent_service(call.writer(), std::move(body),
                                                            call.has("replace-existing-checks") && replace != "false"));
        co_return co_await nothing(call);
    });
    add("PUT", "agent/service/deregister/**", [this](Call& call) -> Task<Unit> {
        const auto instance = catalog.find(options.node, call.rest[0]);
        if (!instance) co_return unknown_service(call.rest[0]);
        CO_TRY(std::ignore, co_await remove_resource(call.writer(), "Instance", instance->resource));
        co_return co_await nothing(call);
    });
    add("PUT", "agent/service/maintenance/**", [this](Call& call) -> Task<Unit> {
        CO_TRY(const bool enable, enable_flag(call));
        const auto instance = catalog.find(options.node, call.rest[0]);
        if (!instance) co_return unknown_service(call.rest[0]);
        CO_TRY(std::ignore, co_await change_instance(call.writer(), instance->resource,
                                                     [enable, reason = call.query("reason")](json::object& spec) {
                                                         spec.erase("maintenance");
                                                         spec.erase("maintenance_reason");
                                                         if (!enable) return;
                                                         spec["maintenance"] = true;
                                                         if (!reason.empty()) spec["maintenance_reason"] = reason;
                                                     }));
        co_return co_await nothing(call);
    });
    add("PUT", "agent/maintenance", [this](Call& call) -> Task<Unit> {
        CO_TRY(const bool enable, enable_flag(call));
        CO_TRY(std::ignore,
               co_await change_node(call.writer(), options.node, [enable, reason = call.query("reason")](json::object& spec) {
                   spec["maintenance"] = enable;
                   spec["maintenance_reason"] = enable ? reason : "";
               }));
        co_return co_await nothing(call);
    });
    add("PUT", "agent/check/register", [this](Call& call) -> Task<Unit> {
        CO_TRY(auto body, co_await object_of(call));
        CO_TRY(std::ignore, co_await register_agent_check(call.writer(), std::move(body)));
        co_return co_await nothing(call);
    });
    add("PUT", "agent/check/deregister/**", [this](Call& call) -> Task<Unit> {
        const auto holder = holder_of_check(options.node, call.rest[0]);
        if (holder.empty() || call.rest[0] == "serfHealth") co_return unknown_check(call.rest[0]);
        CO_TRY(std::ignore, co_await remove_check(call.writer(), holder, call.rest[0]));
        co_return co_await nothing(call);
    });
    const auto tell = [this](Call& call, CheckStatus status, std::string output) -> Task<Unit> {
        const auto holder = holder_of_check(options.node, call.rest[0]);
        if (holder.empty() || call.rest[0] == "serfHealth") co_return unknown_check(call.rest[0]);
        auto done = co_await say_of_check(call.writer(), holder, call.rest[0], status, cut_output(std::move(output)));
        if (!done.ok() && done.error().code == Code::invalid)
            co_return Error{Code::internal, fmt::format("CheckID \"{}\" does not have associated TTL", call.rest[0])};
        if (!done.ok()) co_return std::move(done).error();
        co_return co_await nothing(call);
    };
    for (const auto& [word, status] :
         {std::pair{"pass", CheckStatus::passing}, {"warn", CheckStatus::warning}, {"fail", CheckStatus::critical}})
        add("PUT", fmt::format("agent/check/{}/**", word),
            [tell, said = status](Call& call) { return tell(call, said, call.query("note")); });
    add("PUT", "agent/check/update/**", [this, tell](Call& call) -> Task<Unit> {
        CO_TRY(const auto body, co_await object_of(call));
        const auto status = catalog::parse_check_status(catalog::text_at(body, "status"));
        if (!status.ok())
            co_return Error{Code::invalid, fmt::format("Invalid check status: '{}'", catalog::text_at(body, "status"))};
        co_return co_await tell(call, *status, catalog::text_at(body, "output"));
    });
    const auto shown = [this](const InstanceView& instance) {
        json::array checks;
        if (instance.on)
            for (auto& check : node_checks(*instance.on))
                if (check.at("CheckID").as_string() != "serfHealth")
                    checks.push_back(health_check_json(std::move(check.as_object())));
        for (auto& check : instance_checks(instance)) checks.push_back(health_check_json(std::move(check.as_object())));
        return json::object{
            {"AggregatedStatus", aggregated(instance)}, {"Service", agent_service_json(instance)}, {"Checks", std::move(checks)}};
    };
    add("GET", "agent/health/service/id/**", [this, shown](Call& call) -> Task<Unit> {
        const auto instance = catalog.find(options.node, call.rest[0]);
        const bool words = call.query("format") == "text";
        if (!instance) {
            const auto reason = fmt::format("ServiceId {} not found", call.rest[0]);
            if (words) co_return co_await text(call, 404, reason, {{"X-Consul-Reason", reason}});
            co_return co_await answer(call,
                                      json::object{{"AggregatedStatus", "critical"}, {"Service", nullptr}, {"Checks", nullptr}},
                                      404, {{"X-Consul-Reason", reason}});
        }
        const auto status = aggregated(*instance);
        if (words) co_return co_await text(call, status_for(status), status, {{"X-Consul-Reason", status}});
        co_return co_await answer(call, shown(*instance), status_for(status), {{"X-Consul-Reason", status}});
    });
    add("GET", "agent/health/service/name/**", [this, shown](Call& call) -> Task<Unit> {
        json::array out;
        std::string worst = "passing";
        const auto rank = [](std::string_view status) {
            return status == "maintenance" ? 3 : status == "critical" ? 2 : status == "warning" ? 1 : 0;
        };
        for (const auto& instance : catalog.instances_on(options.node)) {
            if (catalog::lowered(instance->service) != catalog::lowered(call.rest[0])) continue;
            out.push_back(shown(*instance));
            if (const auto status = aggregated(*instance); rank(status) > rank(worst)) worst = status;
        }
        const bool words = call.query("format") == "text";
        if (out.empty()) {
            const auto reason = fmt::format("ServiceName {} Not Found", call.rest[0]);
            if (words) co_return co_await text(call, 404, reason, {{"X-Consul-Reason", reason}});
            co_return co_await answer(call, std::move(out), 404, {{"X-Consul-Reason", reason}});
        }
        if (words) co_return co_await text(call, status_for(worst), worst, {{"X-Consul-Reason", worst}});
        co_return co_await answer(call, std::move(out), status_for(worst), {{"X-Consul-Reason", worst}});
    });
}

void View::State::add_status_routes() {
    const auto leader_address = [this] { return fmt::format("{}:8300", options.address); };
    add("GET", "status/leader", [this, leader_address](Call& call) {
        return answer(call, leadership.leader().empty() ? json::value("") : json::value(leader_address()));
    });
    add("GET", "status/peers", [this, leader_address](Call& call) { return answer(call, json::array{leader_address()}); });
}

} // namespace orrery::api::consul
