#include "api/facades/kosmos/kosmos_mapping.h"

#include <boost/json/parse.hpp>

/// The fields of Kosmos v0.1 as tables, from which requests are checked and OpenAPI is made; docs/kosmos.md describes them.
namespace orrery::api::kosmos {

namespace {

json::object schema(std::string_view text) { return json::parse(text).as_object(); }

json::object text() { return {{"type", "string"}}; }
json::object texts() { return {{"type", "array"}, {"items", text()}}; }

/// The fields of every resource.
std::vector<BodyField> with_common(std::vector<BodyField> own) {
    std::vector<BodyField> out = {
        {"id", "Id of the resource; equal to its name.", text(), BodyField::Use::shown},
        {"name", "Name, unique for its type; part of the URL; immutable.", text(), BodyField::Use::required},
        {"description", "Free text.", text()}};
    for (auto& field : own) out.push_back(std::move(field));
    out.push_back({"status", "State of the resource.",
                   schema(R"({"type":"string","enum":["PENDING","ACTIVE","DEGRADED","DOWN","ERROR"]})"), BodyField::Use::shown});
    out.push_back({"links", "URLs of the resource and of related resources.",
                   schema(R"({"type":"object","additionalProperties":{"type":"string"}})"), BodyField::Use::shown});
    return out;
}

json::object properties_of(const std::vector<BodyField>& fields, bool request) {
    json::object out;
    for (const auto& field : fields) {
        if (request && field.use == BodyField::Use::shown) { // ignored, so that clients can send back what they read
            out[field.name] = json::object{{"description", "Ignored."}};
            continue;
        }
        if (!request && field.use == BodyField::Use::sent) continue;
        auto& property = out[field.name] = field.schema;
        property.as_object()["description"] = field.doc;
        if (!request) continue;
        auto& type = property.as_object()["type"]; // null means absent
        if (type.is_string()) type = json::array{type, "null"};
        if (auto* choices = property.as_object().if_contains("enum")) choices->as_array().emplace_back(nullptr);
    }
    return out;
}

} // namespace

const std::vector<BodyField>& gslb_fields() {
    static const auto fields = with_common({
        {"fqdn", "Domain name of the load balancer, for example www.gslb.example.; the last dot is optional.", text()},
        {"zone_name", "Zone of the name.", text()},
        {"domain_name", "Older name of zone_name.", text(), BodyField::Use::sent},
        {"pools",
         "Names of pools, or {pool, type} with type ACTIVE or PASSIVE; passive pools are used if no active pool is usable.",
         schema(
             R"({"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object","required":["pool"],"additionalProperties":false,
                 "properties":{"pool":{"type":"string"},"type":{"type":["string","null"],"enum":["ACTIVE","PASSIVE",null]}}}]}})")},
    });
    return fields;
}

const std::vector<BodyField>& pool_fields() {
    static const auto fields = with_common({
        {"monitors", "Monitors that probe every member of the pool, by name.", texts()},
        {"members", "Must be empty: members are created at pool_members.", schema(R"({"type":"array","maxItems":0})"),
         BodyField::Use::sent},
        {"type", "In the pools of a gslb: ACTIVE, or PASSIVE for a pool that is used if no active pool is usable.", text(),
         BodyField::Use::listed},
    });
    return fields;
}

const std::vector<BodyField>& member_fields() {
    static const auto fields = [] {
        auto out = with_common({
            {"type", "IP (the default), neutron_lbaas_v2 or neutron_port; case-sensitive.",
             schema(R"({"type":"string","enum":["IP","neutron_lbaas_v2","neutron_port"]})")},
            {"region",
             "Site of the member. For neutron_lbaas_v2 without endpoints: the Source (driver octavia) that supplies the addresses.",
             text()},
            {"neutron_id", "Id in Neutron; required for the Neutron types, refused for others.", text()},
            {"endpoints", "IP addresses of the member.", texts()},
            {"monitors", "Names of additional monitors of this member.", texts()},
        });
        std::erase_if(out, [](const BodyField& field) { return field.name == "description"; });
        return out;
    }();
    return fields;
}

const std::vector<BodyField>& monitor_fields() {
    static const auto fields = with_common({
        {"type",
         "Type of probe. PING and ICMP are equivalent. Responses have other types for monitors that were not created with this "
         "API.",
         schema(R"({"type":"string","enum":["TCP","UDP","PING","ICMP","HTTP","HTTPS","SSH"]})")},
        {"delay", "Seconds between two probes.", schema(R"({"type":"integer","minimum":1,"maximum":86400})")},
        {"timeout", "Timeout of a probe in seconds.", schema(R"({"type":"integer","minimum":1,"maximum":86400})")},
        {"max_retries", "Consecutive failed probes before the member is down.",
         schema(R"({"type":"integer","minimum":1,"maximum":100})")},
        {"port", "Port; default for SSH: 22.", schema(R"({"type":"integer","minimum":1,"maximum":65535})")},
        {"http_method", "HTTP, HTTPS: the method.", text()},
        {"url_path", "HTTP, HTTPS: the path.", text()},
        {"expected_codes", "HTTP, HTTPS: status codes of a successful probe.",
         schema(R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":100,"maximum":599}})")},
        {"receive_string", "Text that the response must contain.", text()},
        {"insecure", "HTTPS: do not verify the certificate.", schema(R"({"type":"boolean"})")},
        {"payload", "Payload of the request: {content, content_type}.",
         schema(
             R"({"type":"object","additionalProperties":false,"properties":{"content":{"type":["string","null"]},"content_type":{"type":["string","null"]}}})"),
         BodyField::Use::sent},
    });
    return fields;
}

json::object answer_schema(const ResourceType& type) {
    auto properties = properties_of(type.fields(), false);
    if (type.single == "monitor") properties["type"].as_object().erase("enum");
    return {{"type", "object"},
            {"required", json::array{"id", "name", "status", "links"}},
            {"properties", std::move(properties)},
            {"additionalProperties", false}};
}

json::object request_schema(const ResourceType& type, bool creates) {
    auto properties = properties_of(type.fields(), true);
    for (const auto& field : type.fields())
        if (field.use == BodyField::Use::listed) properties.erase(field.name);
    json::object inner{{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    json::array required;
    if (creates) required.emplace_back("name");
    if (creates && type.single == "gslb") required.emplace_back("pools");
    if (creates && type.single == "monitor") required.emplace_back("type");
    if (!required.empty()) inner["required"] = std::move(required);
    json::object wrapped{{"type", "object"},
                         {"required", json::array{type.single}},
                         {"properties", json::object{{type.single, inner}}},
                         {"additionalProperties", false}};
    return {{"description", "The fields in an object named after the resource, as in OpenStack, or at the top level."},
            {"anyOf", json::array{std::move(wrapped), std::move(inner)}}};
}

} // namespace orrery::api::kosmos
