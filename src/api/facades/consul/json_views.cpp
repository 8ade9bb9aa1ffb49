#include "api/facades/consul/facade_state.h"
#include "core/json_fields.h"

#include <fmt/format.h>
#include <sodium.h>

#include <charconv>
#include <cmath>

namespace orrery::api::consul {

namespace {

using catalog::Check;

json::object weights_json(const InstanceView& instance) {
    return {{"Passing", instance.weight_passing}, {"Warning", instance.weight_warning}};
}

json::array tags_json(const InstanceView& instance) { return json::array(instance.tags.begin(), instance.tags.end()); }

json::object map_json(const std::map<std::string, std::string>& map) {
    json::object out;
    for (const auto& [key, value] : map) out[key] = value;
    return out;
}

json::value map_or_null(const std::map<std::string, std::string>& map) {
    if (map.empty()) return nullptr;
    return map_json(map);
}

/// Converts stored tagged addresses, {"lan": {"address", "port"}}, to the format of Consul.
json::object tagged_json(const json::value& stored) {
    json::object out;
    if (!stored.is_object()) return out;
    for (const auto& [name, value] : stored.get_object())
        if (value.is_object())
            out[name] = json::object{{"Address", text_at(value.get_object(), "address")},
                                     {"Port", integer_at(value.get_object(), "port", 0)}};
    return out;
}

std::string_view type_of(const Check& check) {
    switch (check.kind) {
    case Check::Kind::tcp: return "tcp";
    case Check::Kind::http: return "http";
    case Check::Kind::command: return "script";
    case Check::Kind::ttl: return "ttl";
    case Check::Kind::external:
        return check.id.starts_with("_service_maintenance:") || check.id == "_node_maintenance" ? "maintenance" : "";
    }
    return "";
}

CheckView maintenance_check(std::string id, std::string name, std::string reason, std::string default_notes, Revision revision) {
    CheckView out;
    out.check.id = std::move(id);
    out.check.name = std::move(name);
    out.check.notes = reason.empty() ? std::move(default_notes) : std::move(reason);
    out.result.status = catalog::CheckStatus::critical;
    out.created = out.modified = revision;
    return out;
}

std::string uuid_from(const std::array<unsigned char, 16>& bytes) {
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); ++i)
        out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes.at(i));
    return out;
}

} // namespace

NodePtr ConsulFacade::State::node_of(const InstanceView& instance) const {
    if (instance.on) return instance.on;
    auto unknown = std::make_shared<NodeView>();
    unknown->name = instance.node;
    unknown->address = instance.address;
    unknown->created = unknown->modified = instance.created;
    return unknown;
}

json::object ConsulFacade::State::node_json(const NodeView& node) const {
    return {{"ID", node.id},
            {"Node", node.name},
            {"Address", node.address},
            {"Datacenter", options.datacenter},
            {"TaggedAddresses", map_or_null(node.tagged_addresses)},
            {"Meta", map_or_null(node.meta)},
            {"CreateIndex", node.created},
            {"ModifyIndex", node.modified}};
}

json::object ConsulFacade::State::service_json(const InstanceView& instance) const {
    json::object out{
        {"ID", instance.id}, {"Service", instance.service}, {"Tags", tags_json(instance)}, {"Address", instance.own_address}};
    if (auto tagged = tagged_json(instance.tagged_addresses); !tagged.empty()) out["TaggedAddresses"] = std::move(tagged);
    out["Meta"] = map_or_null(instance.meta);
    out["Port"] = instance.port;
    out["Weights"] = weights_json(instance);
    out["EnableTagOverride"] = instance.tag_override;
    out["Proxy"] = json::object{{"Mode", ""}, {"MeshGateway", json::object()}, {"Expose", json::object()}};
    out["Connect"] = json::object();
    out["PeerName"] = "";
    out["CreateIndex"] = instance.created;
    out["ModifyIndex"] = instance.modified;
    return out;
}

json::object ConsulFacade::State::agent_service_json(const InstanceView& instance) const {
    json::object out{{"ID", instance.id},           {"Service", instance.service},
                     {"Tags", tags_json(instance)}, {"Meta", map_json(instance.meta)},
                     {"Port", instance.port},       {"Address", instance.own_address}};
    if (auto tagged = tagged_json(instance.tagged_addresses); !tagged.empty()) out["TaggedAddresses"] = std::move(tagged);
    out["Weights"] = weights_json(instance);
    out["EnableTagOverride"] = instance.tag_override;
    out["Datacenter"] = options.datacenter;
    return out;
}

json::object ConsulFacade::State::catalog_service_json(const InstanceView& instance) const {
    const auto node = node_of(instance);
    json::object out{{"ID", node->id},
                     {"Node", node->name},
                     {"Address", node->address},
                     {"Datacenter", options.datacenter},
                     {"TaggedAddresses", map_or_null(node->tagged_addresses)},
                     {"NodeMeta", map_or_null(node->meta)},
                     {"ServiceKind", ""},
                     {"ServiceID", instance.id},
                     {"ServiceName", instance.service},
                     {"ServiceTags", tags_json(instance)},
                     {"ServiceAddress", instance.own_address}};
    if (auto tagged = tagged_json(instance.tagged_addresses); !tagged.empty()) out["ServiceTaggedAddresses"] = std::move(tagged);
    out["ServiceWeights"] = weights_json(instance);
    out["ServiceMeta"] = map_json(instance.meta);
    out["ServicePort"] = instance.port;
    out["ServiceSocketPath"] = "";
    out["ServiceEnableTagOverride"] = instance.tag_override;
    out["ServiceProxy"] = json::object{{"Mode", ""}, {"MeshGateway", json::object()}, {"Expose", json::object()}};
    out["ServiceConnect"] = json::object();
    out["ServiceLocality"] = nullptr;
    out["CreateIndex"] = instance.created;
    out["ModifyIndex"] = instance.modified;
    return out;
}

json::object ConsulFacade::State::check_json(const CheckView& check, std::string_view node, const InstanceView* instance) const {
    const bool runs =
        check.check.kind == Check::Kind::tcp || check.check.kind == Check::Kind::http || check.check.kind == Check::Kind::command;
    // The default timeout is not shown.
    const bool is_default = check.check.timeout == std::min<Duration>(std::chrono::seconds(10), check.check.interval);
    return {{"Node", node},
            {"CheckID", check.check.id},
            {"Name", check.check.name},
            {"Status", name_of(check.result.status)},
            {"Notes", check.check.notes},
            {"Output", check.result.error.empty() ? check.result.output : "cannot run, no evidence: " + check.result.error},
            {"ServiceID", instance != nullptr ? instance->id : ""},
            {"ServiceName", instance != nullptr ? instance->service : ""},
            {"ServiceTags", instance != nullptr ? tags_json(*instance) : json::array()},
            {"Type", type_of(check.check)},
            {"Interval", runs ? go_duration(check.check.interval) : ""},
            {"Timeout", runs && !is_default ? go_duration(check.check.timeout) : ""},
            {"ExposedPort", 0},
            {"Definition", json::object()},
            {"CreateIndex", check.created},
            {"ModifyIndex", check.modified}};
}

json::array ConsulFacade::State::node_checks(const NodeView& node) const {
    json::array out;
    if (node.maintenance)
        out.push_back(check_json(
            maintenance_check("_node_maintenance", "Node Maintenance Mode", node.maintenance_reason,
                              "Maintenance mode is enabled for this node, but no reason was provided. This is a default message.",
                              node.modified),
            node.name, nullptr));
    for (const auto& check : node.checks) out.push_back(check_json(check, node.name, nullptr));
    return out;
}

json::array ConsulFacade::State::instance_checks(const InstanceView& instance) const {
    json::array out;
    const auto node = node_of(instance);
    if (instance.maintenance)
        out.push_back(
            check_json(maintenance_check(
                           "_service_maintenance:" + instance.id, "Service Maintenance Mode", instance.maintenance_reason,
                           "Maintenance mode is enabled for this service, but no reason was provided. This is a default message.",
                           instance.modified),
                       node->name, &instance));
    auto checks = instance.checks;
    std::sort(checks.begin(), checks.end(), [](const CheckView& a, const CheckView& b) { return a.check.id < b.check.id; });
    for (const auto& check : checks) out.push_back(check_json(check, node->name, &instance));
    return out;
}

json::array ConsulFacade::State::all_checks(const InstanceView& instance) const {
    auto out = node_checks(*node_of(instance));
    for (auto& check : instance_checks(instance)) out.push_back(std::move(check));
    return out;
}

bool ConsulFacade::State::has_meta(const NodeView& node, const std::vector<std::string>& wanted) const {
    return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& pair) {
        const auto colon = pair.find(':');
        const auto at = node.meta.find(pair.substr(0, colon));
        return at != node.meta.end() && at->second == (colon == std::string::npos ? "" : pair.substr(colon + 1));
    });
}

std::string go_duration(Duration duration) {
    auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
    if (nanoseconds == 0) return "0s";
    if (nanoseconds < 1'000'000'000) {
        if (nanoseconds % 1'000'000 == 0) return fmt::format("{}ms", nanoseconds / 1'000'000);
        return fmt::format("{}ms", static_cast<double>(nanoseconds) / 1e6);
    }
    const auto hours = nanoseconds / 3'600'000'000'000, minutes = nanoseconds / 60'000'000'000 % 60;
    const auto rest = nanoseconds % 60'000'000'000;
    std::string out;
    if (hours > 0) out += fmt::format("{}h", hours);
    if (hours > 0 || minutes > 0) out += fmt::format("{}m", minutes);
    if (rest % 1'000'000'000 == 0) return out + fmt::format("{}s", rest / 1'000'000'000);
    return out + fmt::format("{}s", static_cast<double>(rest) / 1e9);
}

std::optional<Duration> parse_go_duration(std::string_view text) {
    if (text == "0") return Duration{};
    double total = 0;
    bool any = false;
    while (!text.empty()) {
        double number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
        if (error != std::errc{} || number < 0) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        double unit = 0;
        std::size_t size = 1;
        if (text.starts_with("ns"))
            unit = 1, size = 2;
        else if (text.starts_with("us"))
            unit = 1e3, size = 2;
        else if (text.starts_with("µs"))
            unit = 1e3, size = 3;
        else if (text.starts_with("ms"))
            unit = 1e6, size = 2;
        else if (text.starts_with("s"))
            unit = 1e9;
        else if (text.starts_with("m"))
            unit = 60e9;
        else if (text.starts_with("h"))
            unit = 3600e9;
        else
            return std::nullopt;
        total += number * unit;
        text.remove_prefix(size);
        any = true;
    }
    if (!any || total > 9e18) return std::nullopt;
    return std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(static_cast<std::int64_t>(std::llround(total))));
}

std::string uuid_of(std::string_view text) {
    std::array<unsigned char, 16> sum{};
    crypto_generichash(sum.data(), sum.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
    return uuid_from(sum);
}

std::string random_uuid() {
    std::array<unsigned char, 16> bytes{};
    randombytes_buf(bytes.data(), bytes.size());
    return uuid_from(bytes);
}

} // namespace orrery::api::consul
