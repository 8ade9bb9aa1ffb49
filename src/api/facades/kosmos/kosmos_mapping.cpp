#include "api/facades/kosmos/kosmos_mapping.h"

#include "core/json_fields.h"
#include "core/text.h"
#include "core/truncate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace orrery::api::kosmos {

namespace {

using resource::Object;

/// Labels for fields of Kosmos members that have no equivalent in our kinds.
constexpr const char *type_label = "kosmos-type", *neutron_label = "kosmos-neutron-id";
constexpr std::string_view balancer_type = "neutron_lbaas_v2";

std::string without_dot(std::string text) {
    if (text.ends_with('.')) text.pop_back();
    return text;
}

/// Reads the fields of a body by name and type.
class Fields {
public:
    Fields(const json::object& body, std::string root) : body_(body), root_(std::move(root)) {}

    /// Refuses fields that are not in the list.
    Result<Unit> only_declared(const std::vector<BodyField>& allowed) const {
        std::vector<std::string_view> names;
        for (const auto& field : allowed)
            if (field.use != BodyField::Use::listed) names.emplace_back(field.name);
        return only(names);
    }
    Result<Unit> only(const std::vector<std::string_view>& allowed) const {
        for (const auto& [key, value] : body_)
            if (std::find(allowed.begin(), allowed.end(), std::string_view(key)) == allowed.end())
                return wrong(path(key), "unknown field");
        return Unit{};
    }
    std::string path(std::string_view key) const { return fmt::format("{}.{}", root_, truncate(key, 64)); }
    bool has(std::string_view key) const {
        const auto* value = body_.if_contains(key);
        return value != nullptr && !value->is_null();
    }
    Result<std::string> text(std::string_view key) const {
        const auto* value = body_.if_contains(key);
        if (value == nullptr || !value->is_string()) return wrong(path(key), "must be a string");
        return std::string(std::string_view(value->get_string()));
    }
    Result<std::int64_t> number(std::string_view key, std::int64_t min, std::int64_t max) const {
        const auto* value = body_.if_contains(key);
        if (value == nullptr || !value->is_int64() || value->get_int64() < min || value->get_int64() > max)
            return wrong(path(key), fmt::format("must be an integer from {} to {}", min, max));
        return value->get_int64();
    }
    Result<bool> flag(std::string_view key) const {
        const auto* value = body_.if_contains(key);
        if (value == nullptr || !value->is_bool()) return wrong(path(key), "must be true or false");
        return value->get_bool();
    }
    Result<const json::array*> list(std::string_view key) const {
        const auto* value = body_.if_contains(key);
        if (value == nullptr || !value->is_array()) return wrong(path(key), "must be a list");
        return &value->get_array();
    }
    Result<std::vector<std::string>> texts(std::string_view key) const {
        TRY(const auto* items, list(key));
        std::vector<std::string> out;
        for (const auto& item : *items) {
            if (!item.is_string()) return wrong(fmt::format("{}[{}]", path(key), out.size()), "must be a string");
            out.emplace_back(std::string_view(item.get_string()));
        }
        return out;
    }
    /// Copies strings to the names of our fields.
    Result<Unit> take(json::object& spec, const std::vector<std::pair<const char*, const char*>>& fields) const {
        for (const auto& [theirs, ours] : fields) {
            if (!has(theirs)) continue;
            TRY(spec[ours], text(theirs));
        }
        return Unit{};
    }

private:
    const json::object& body_;
    std::string root_;
};

json::array array_of(const std::vector<std::string>& texts) {
    json::array out;
    for (const auto& text : texts) out.emplace_back(text);
    return out;
}

json::object links_of(const std::string& self, const std::vector<std::string>& below) {
    json::object out{{"self", self}};
    for (const auto& one : below) out[one] = fmt::format("{}/{}", self, one);
    return out;
}

// --- gslbs

json::object gslb_shown(const Object& object) {
    json::array pools;
    for (const auto& use : array_at(object.spec, "pools")) {
        if (!use.is_object()) continue;
        auto name = text_at(use.get_object(), "pool");
        if (text_at(use.get_object(), "tier") == "passive")
            pools.emplace_back(json::object{{"pool", std::move(name)}, {"type", "PASSIVE"}});
        else
            pools.emplace_back(std::move(name));
    }
    return {{"id", object.name},
            {"name", object.name},
            {"description", text_at(object.spec, "description")},
            {"fqdn", text_at(object.spec, "fqdn") + "."},
            {"zone_name", text_at(object.spec, "zone") + "."},
            {"pools", std::move(pools)},
            {"status", gslb_state(object.status)},
            {"links", links_of(fmt::format("/v0.1/gslbs/{}", object.name), {"pools", "status", "history"})}};
}

/// Reads a pool of a gslb: a name, or {"pool": name, "type": "ACTIVE" | "PASSIVE"}. Other fields of the use stay as they are.
Result<json::object> use_of(const json::value& given, const std::string& path, const json::array& before) {
    if (!given.is_string() && !given.is_object()) return wrong(path, "must be the name of a pool, or {pool, type}");
    std::string name, type = "ACTIVE";
    if (given.is_string()) {
        name = std::string_view(given.get_string());
    } else {
        const Fields fields(given.get_object(), path);
        TRY(std::ignore, fields.only({"pool", "type"}));
        TRY(name, fields.text("pool"));
        if (fields.has("type")) {
            TRY(type, fields.text("type"));
        }
    }
    if (type != "ACTIVE" && type != "PASSIVE") return wrong(path + ".type", "must be ACTIVE or PASSIVE");
    json::object use{{"pool", name}};
    for (const auto& one : before)
        if (one.is_object() && text_at(one.get_object(), "pool") == name) use = one.get_object();
    use.erase("tier");
    if (type == "PASSIVE") use["tier"] = "passive";
    return use;
}

Result<ResourceBody> gslb_read(const json::object& body, ResourceBody out) {
    const Fields fields(body, "gslb");
    TRY(std::ignore, fields.only_declared(gslb_fields()));
    TRY(std::ignore, fields.take(out.spec, {{"description", "description"}}));
    if (fields.has("fqdn")) {
        TRY(auto fqdn, fields.text("fqdn"));
        out.spec["fqdn"] = without_dot(std::move(fqdn));
    }
    for (const auto* key : {"domain_name", "zone_name"})
        if (fields.has(key)) {
            TRY(auto zone, fields.text(key));
            out.spec["zone"] = without_dot(std::move(zone));
        }
    if (fields.has("pools")) {
        TRY(const auto* pools, fields.list("pools"));
        json::array uses;
        for (const auto& pool : *pools) {
            TRY(auto use, use_of(pool, fmt::format("gslb.pools[{}]", uses.size()), array_at(out.spec, "pools")));
            uses.push_back(std::move(use));
        }
        out.spec["pools"] = std::move(uses);
    }
    if (array_at(out.spec, "pools").empty()) return wrong("gslb.pools", "must name at least one pool");
    return out;
}

// --- pools

json::object pool_shown(const Object& object) {
    return {{"id", object.name},
            {"name", object.name},
            {"description", text_at(object.spec, "description")},
            {"status", pool_state(object.status)},
            {"monitors", array_at(object.spec, "monitors")},
            {"links", links_of(fmt::format("/v0.1/pools/{}", object.name), {"pool_members", "monitors", "status"})}};
}
Result<ResourceBody> pool_read(const json::object& body, ResourceBody out) {
    const Fields fields(body, "pool");
    TRY(std::ignore, fields.only_declared(pool_fields()));
    TRY(std::ignore, fields.take(out.spec, {{"description", "description"}}));
    if (fields.has("members")) {
        TRY(const auto* members, fields.list("members"));
        if (!members->empty()) return wrong("pool.members", "members are created at pool_members");
    }
    if (!fields.has("monitors")) return out;
    TRY(const auto monitors, fields.texts("monitors"));
    out.spec["monitors"] = array_of(monitors);
    return out;
}

// --- pool members

json::object member_shown(const Object& object) {
    const auto* addresses = object.status.if_contains("addresses");
    const auto label = [&](const char* key, std::string default_value) {
        const auto found = object.labels.find(key);
        return found == object.labels.end() ? default_value : found->second;
    };
    json::object out{{"id", object.name},
                     {"name", object.name},
                     {"type", label(type_label, "IP")},
                     {"region", text_at(object.spec, "site")},
                     {"endpoints", addresses != nullptr ? *addresses : json::value(array_at(object.spec, "addresses"))},
                     {"monitors", array_at(object.spec, "monitors")},
                     {"status", member_state(object.status)},
                     {"links", links_of(fmt::format("/v0.1/pools/{}/pool_members/{}", text_at(object.spec, "pool"), object.name),
                                        {"monitors", "status"})}};
    if (const auto id = label(neutron_label, {}); !id.empty()) out["neutron_id"] = id;
    if (const auto* balancer = object.spec.if_contains("balancer"); balancer != nullptr && balancer->is_object()) {
        out["type"] = balancer_type;
        out["region"] = text_at(balancer->get_object(), "source");
        out["neutron_id"] = text_at(balancer->get_object(), "id");
    }
    return out;
}

/// Members of Neutron (load balancers, ports) use the endpoints of the request. For a load balancer without endpoints the region
/// names a Source with the driver octavia, which supplies the addresses.
Result<Unit> read_type(const Fields& fields, ResourceBody& out) {
    if (fields.has("type")) {
        TRY(const auto type, fields.text("type"));
        if (type != "IP" && type != "neutron_lbaas_v2" && type != "neutron_port")
            return wrong("pool_member.type", "must be one of IP, neutron_lbaas_v2 and neutron_port");
        out.labels.erase(type_label);
        if (type != "IP") out.labels[type_label] = type;
    }
    const bool neutron = out.labels.contains(type_label);
    if (neutron && text_at(out.labels, type_label) == balancer_type &&
        (array_at(out.spec, "addresses").empty() || out.spec.contains("balancer"))) {
        TRY(const auto id, fields.text("neutron_id"));
        const auto region = text_at(out.spec, "site");
        if (region.empty())
            return wrong("pool_member.region", "must name the Source of the load balancer if there are no endpoints");
        if (id.empty()) return wrong("pool_member.neutron_id", "must be the id of the load balancer in Octavia");
        out.labels.erase(type_label);
        out.labels.erase(neutron_label);
        out.spec.erase("addresses");
        out.spec["balancer"] = json::object{{"source", region}, {"id", id}};
        return Unit{};
    }
    if (fields.has("type")) out.spec.erase("balancer");
    if (fields.has("neutron_id")) {
        TRY(const auto id, fields.text("neutron_id"));
        if (!neutron) return wrong("pool_member.neutron_id", "is not allowed for a member of type IP");
        const auto fits = [](char c) {
            return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
        };
        if (id.empty() || id.size() > 63 || !std::all_of(id.begin(), id.end(), fits) || id.front() == '-' || id.back() == '-')
            return wrong("pool_member.neutron_id", "must be a Neutron id");
        out.labels[neutron_label] = id;
    }
    if (!neutron)
        out.labels.erase(neutron_label);
    else if (!out.labels.contains(neutron_label))
        return wrong("pool_member.neutron_id", "is required for a member of Neutron");
    if (neutron && array_at(out.spec, "addresses").empty())
        return wrong("pool_member.endpoints", "is required: addresses of ports are not read from Neutron");
    return Unit{};
}

Result<ResourceBody> member_read(const json::object& body, ResourceBody out) {
    const Fields fields(body, "pool_member");
    TRY(std::ignore, fields.only_declared(member_fields()));
    for (const auto& [theirs, ours] : {std::pair("endpoints", "addresses"), std::pair("monitors", "monitors")})
        if (fields.has(theirs)) {
            TRY(const auto texts, fields.texts(theirs));
            out.spec[ours] = array_of(texts);
        }
    if (fields.has("region")) {
        TRY(const auto region, fields.text("region"));
        out.spec.erase("site");
        if (!region.empty()) out.spec["site"] = region;
    }
    TRY(std::ignore, read_type(fields, out));
    return out;
}

// --- monitors

const std::vector<std::pair<std::string_view, std::string_view>> monitor_types{
    {"TCP", "tcp"}, {"UDP", "udp"}, {"PING", "icmp"}, {"ICMP", "icmp"}, {"HTTP", "http"}, {"HTTPS", "https"}, {"SSH", "tcp"}};
constexpr std::string_view ssh_greeting = "SSH-";

std::string type_of(const Object& object) {
    const auto kind = text_at(object.spec, "kind");
    if (kind == "tcp" && text_at(object.spec, "contains") == ssh_greeting) return "SSH";
    for (const auto& [theirs, ours] : monitor_types)
        if (ours == kind) return std::string(theirs);
    // A kind that Kosmos does not have.
    auto out = kind;
    std::transform(out.begin(), out.end(), out.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return out;
}

/// Expands codes and ranges ("200-299,301") to a list of codes.
json::array codes_in(std::string_view text) {
    json::array out;
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find(',', start), text.size());
        int low = 0, high = 0;
        const auto read = [](std::string_view part, int& into) { std::from_chars(part.data(), part.data() + part.size(), into); };
        const auto part = text.substr(start, end - start);
        const auto dash = part.find('-');
        read(part.substr(0, dash), low);
        high = low;
        if (dash != std::string_view::npos) read(part.substr(dash + 1), high);
        for (int code = std::max(low, 100); code <= std::min(high, 599) && out.size() < 500; ++code) out.emplace_back(code);
        start = end + 1;
    }
    return out;
}

/// Seconds, rounded up to whole numbers, as Kosmos has them.
std::int64_t seconds_in(const json::object& spec, std::string_view key, std::int64_t otherwise) {
    const auto time = parse_duration(text_at(spec, key));
    return time.ok() ? std::chrono::ceil<std::chrono::seconds>(*time).count() : otherwise;
}

json::object monitor_shown(const Object& object) {
    json::object out{{"id", object.name},
                     {"name", object.name},
                     {"type", type_of(object)},
                     {"status", "ACTIVE"},
                     {"delay", seconds_in(object.spec, "interval", 10)},
                     {"timeout", seconds_in(object.spec, "timeout", 5)},
                     {"max_retries", object.spec.contains("fall") ? object.spec.at("fall") : json::value(3)},
                     {"links", links_of(fmt::format("/v0.1/monitors/{}", object.name), {"status"})}};
    for (const auto& [theirs, ours] : {std::pair("port", "port"), std::pair("url_path", "path"), std::pair("http_method", "method"),
                                       std::pair("receive_string", "contains"), std::pair("description", "description")})
        if (const auto* value = object.spec.if_contains(ours)) out[theirs] = *value;
    if (object.spec.contains("expect")) out["expected_codes"] = codes_in(text_at(object.spec, "expect"));
    if (const auto* verify = object.spec.if_contains("verify"); verify != nullptr && verify->is_bool())
        out["insecure"] = !verify->get_bool();
    return out;
}

Result<Unit> read_monitor_type(const Fields& fields, json::object& spec) {
    if (!fields.has("type") && spec.contains("kind")) return Unit{};
    const auto type = fields.has("type") ? fields.text("type") : Result<std::string>(std::string());
    if (!type.ok()) return type.error();
    const auto found =
        std::find_if(monitor_types.begin(), monitor_types.end(), [&](const auto& one) { return one.first == *type; });
    if (found == monitor_types.end()) return wrong("monitor.type", "must be one of TCP, UDP, PING, ICMP, HTTP, HTTPS and SSH");
    spec["kind"] = found->second;
    if (*type != "SSH") return Unit{};
    spec["contains"] = ssh_greeting;
    if (!spec.contains("port")) spec["port"] = 22;
    return Unit{};
}

/// Joins numbers and ranges such as "200-299" to one string.
Result<std::string> read_codes(const Fields& fields) {
    TRY(const auto* codes, fields.list("expected_codes"));
    std::vector<std::string> out;
    for (const auto& code : *codes) {
        if (!code.is_int64() || code.get_int64() < 100 || code.get_int64() > 599)
            return wrong(fmt::format("monitor.expected_codes[{}]", out.size()), "must be a number from 100 to 599");
        out.push_back(std::to_string(code.get_int64()));
    }
    if (out.empty()) return wrong("monitor.expected_codes", "must have at least one code");
    return fmt::format("{}", fmt::join(out, ","));
}

Result<Unit> read_payload(const json::object& body, json::object& spec) {
    const auto* payload = body.if_contains("payload");
    if (payload == nullptr || payload->is_null()) return Unit{};
    if (!payload->is_object()) return wrong("monitor.payload", "must be {content_type, content}");
    const Fields fields(payload->get_object(), "monitor.payload");
    TRY(std::ignore, fields.only({"content", "content_type"}));
    TRY(std::ignore, fields.take(spec, {{"content", text_at(spec, "kind") == "udp" ? "send" : "body"}}));
    if (!fields.has("content_type")) return Unit{};
    TRY(const auto type, fields.text("content_type"));
    spec["headers"] = json::object{{"Content-Type", type}};
    return Unit{};
}

Result<ResourceBody> monitor_read(const json::object& body, ResourceBody out) {
    const Fields fields(body, "monitor");
    TRY(std::ignore, fields.only_declared(monitor_fields()));
    auto& spec = out.spec;
    if (fields.has("port")) {
        TRY(spec["port"], fields.number("port", 1, 65535));
    }
    TRY(std::ignore, read_monitor_type(fields, spec));
    for (const auto& [theirs, ours] : {std::pair("delay", "interval"), std::pair("timeout", "timeout")})
        if (fields.has(theirs)) {
            TRY(const auto seconds, fields.number(theirs, 1, 86400));
            // A rounded value that the client sends back unchanged is no change.
            if (seconds_in(spec, ours, 0) != seconds) spec[ours] = fmt::format("{}s", seconds);
        }
    if (fields.has("max_retries")) {
        TRY(spec["fall"], fields.number("max_retries", 1, 100));
    }
    TRY(std::ignore,
        fields.take(
            spec,
            {{"url_path", "path"}, {"http_method", "method"}, {"receive_string", "contains"}, {"description", "description"}}));
    if (fields.has("insecure")) {
        TRY(const auto insecure, fields.flag("insecure"));
        spec["verify"] = !insecure;
    }
    if (fields.has("expected_codes")) {
        TRY(spec["expect"], read_codes(fields));
    }
    TRY(std::ignore, read_payload(body, spec));
    return out;
}

} // namespace

Error wrong(std::string field, std::string message) {
    Error error{Code::invalid, "invalid body"};
    error.fields.push_back({std::move(field), std::move(message)});
    return error;
}

std::string_view gslb_state(const json::object& status) {
    const auto state = text_at(status, "state");
    return state.empty() ? "PENDING" : state == "normal" || state == "failover" ? "ACTIVE" : "ERROR";
}
std::string_view pool_state(const json::object& status) {
    const auto state = text_at(status, "state");
    if (state.empty()) return "PENDING";
    if (state != "usable") return "DOWN";
    const auto *healthy = status.if_contains("healthy"), *members = status.if_contains("members");
    return healthy != nullptr && members != nullptr && *healthy != *members ? "DEGRADED" : "ACTIVE";
}
std::string_view member_state(const json::object& status) {
    const auto state = text_at(status, "state");
    return state == "up" ? "ACTIVE" : state == "degraded" || state == "drained" ? "DEGRADED" : state == "down" ? "DOWN" : "PENDING";
}

const ResourceType& gslb() {
    static const ResourceType out{"gslb", "gslbs", "LoadBalancer", gslb_shown, gslb_read, gslb_fields};
    return out;
}
const ResourceType& pool() {
    static const ResourceType out{"pool", "pools", "Pool", pool_shown, pool_read, pool_fields};
    return out;
}
const ResourceType& member() {
    static const ResourceType out{"pool_member", "pool_members", "Member", member_shown, member_read, member_fields};
    return out;
}
const ResourceType& monitor() {
    static const ResourceType out{"monitor", "monitors", "Monitor", monitor_shown, monitor_read, monitor_fields};
    return out;
}

Result<json::object> body_of(const ResourceType& type, const json::value& document) {
    const auto* object = document.if_object();
    if (object == nullptr) return wrong(type.single, "must be an object");
    const auto* inner = object->if_contains(type.single);
    if (inner == nullptr) return *object;
    if (!inner->is_object()) return wrong(type.single, "must be an object");
    for (const auto& [key, value] : *object)
        if (std::string_view(key) != type.single)
            return wrong(truncate(key, 64), fmt::format("unknown field beside \"{}\"", type.single));
    return inner->get_object();
}

} // namespace orrery::api::kosmos
