#include "api/facades/consul/facade_state.h"
#include "core/json_fields.h"

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include <algorithm>

/// Registrations through the agent routes: services and checks of the node of this server.
namespace orrery::api::consul {

namespace {

using catalog::Check;

/// Reads a duration: "10s", or a number of nanoseconds.
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
    return Error{Code::invalid, fmt::format("Request decode failed: {} is not a duration", key)};
}

Result<Unit> refuse_unsupported(const json::object& body) {
    for (const auto* other : {"grpc", "udp", "h2ping", "dockercontainerid", "aliasnode", "aliasservice", "osservice"})
        if (!text_at(body, other).empty()) return Error{Code::invalid, fmt::format("{} checks are not supported here", other)};
    if (!texts_at(body, "args").empty() || !texts_at(body, "scriptargs").empty() || !text_at(body, "script").empty())
        return Error{Code::invalid,
                     "Scripts are disabled on this agent; commands on managed nodes are checks of a Service (kind: command)"};
    return Unit{};
}

Result<Unit> read_http_check(const json::object& body, Check& out) {
    if (flag_at(body, "tlsskipverify"))
        return Error{Code::invalid, "TLSSkipVerify is not supported here: certificates are always verified"};
    out.kind = Check::Kind::http;
    out.url = text_at(body, "http");
    out.method = text_at(body, "method").empty() ? "GET" : text_at(body, "method");
    if (out.method != "GET" && out.method != "HEAD")
        return Error{Code::invalid, fmt::format("Invalid check: Method must be GET or HEAD here, not \"{}\"", out.method)};
    if (!text_at(body, "body").empty())
        return Error{Code::invalid, "Invalid check: Body is not supported here: checks are GET or HEAD requests without one"};
    for (const auto& [name, values] : object_at(body, "header"))
        if (values.is_array() && !values.get_array().empty() && values.get_array()[0].is_string())
            out.headers[name] = values.get_array()[0].get_string();
    return Unit{};
}

Result<Unit> read_tcp_check(const std::string& tcp, Check& out) {
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
        return Error{Code::invalid, fmt::format("Invalid check: \"{}\" is not a port", port)};
    out.port = static_cast<std::uint16_t>(std::stoi(port));
    return Unit{};
}

/// Reads the definition of a check from a body with normalized keys.
Result<Check> check_definition(const json::object& body, std::string_view default_name) {
    Check out;
    out.id = text_at(body, body.contains("checkid") ? "checkid" : "id");
    out.name = text_at(body, "name");
    if (out.name.empty()) out.name = default_name;
    out.notes = text_at(body, "notes");
    out.rise = static_cast<int>(std::clamp<std::int64_t>(integer_at(body, "successbeforepassing", 0), 0, 99)) + 1;
    out.fall = static_cast<int>(std::clamp<std::int64_t>(integer_at(body, "failuresbeforecritical", 0), 0, 99)) + 1;
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
    TRY(std::ignore, refuse_unsupported(body));
    const auto tcp = text_at(body, "tcp");
    const bool http = !text_at(body, "http").empty();
    if (http || !tcp.empty()) {
        if (!interval || *interval <= Duration::zero())
            return Error{Code::invalid, "Invalid check: TTL must be > 0 for TTL checks, or Interval must be > 0 for the others"};
        out.interval = std::max<Duration>(*interval, std::chrono::seconds(1));
        out.timeout =
            std::min<Duration>(timeout && *timeout > Duration::zero() ? *timeout : std::chrono::seconds(10), out.interval);
        TRY(std::ignore, http ? read_http_check(body, out) : read_tcp_check(tcp, out));
        return out;
    }
    if (!ttl || *ttl <= Duration::zero()) return Error{Code::invalid, "Invalid check: TTL must be > 0 for TTL checks"};
    out.kind = Check::Kind::ttl;
    out.ttl = *ttl;
    return out;
}

/// The tagged addresses that a Consul agent adds for an IP address.
json::value tagged_for(const std::string& address, std::int64_t port) {
    boost::system::error_code error;
    const auto parsed = asio::ip::make_address(address, error);
    if (error) return nullptr;
    const auto family = parsed.is_v4() ? "ipv4" : "ipv6";
    const json::object one{{"address", address}, {"port", port}};
    return json::object{{fmt::format("lan_{}", family), one}, {fmt::format("wan_{}", family), one}};
}

} // namespace

Task<Unit> ConsulFacade::State::register_agent_service(Writer by, json::object body, bool replace_checks) {
    const auto name = text_at(body, "name");
    if (name.empty()) co_return Error{Code::invalid, "Missing service name"};
    auto id = text_at(body, "id");
    if (id.empty()) id = name;
    CO_TRY(auto spec, service_spec(body, name, options.node, id));
    if (!spec.contains("tagged_addresses") && spec.contains("address"))
        if (auto tagged = tagged_for(text_at(body, "address"), integer_at(body, "port", 0)); !tagged.is_null())
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

Task<Unit> ConsulFacade::State::register_agent_check(Writer by, json::object body) {
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
