#include "resource/openapi.h"

#include "api/state.h"
#include "core/ascii.h"

#include <fmt/format.h>

/// The OpenAPI document, made from the route table.
namespace orrery::api {

namespace {

std::vector<std::string> path_parameters(std::string_view pattern) {
    std::vector<std::string> out;
    for (auto open = pattern.find('{'); open != std::string_view::npos; open = pattern.find('{', open + 1))
        out.emplace_back(pattern.substr(open + 1, pattern.find('}', open) - open - 1));
    return out;
}

std::string upper_first(std::string text) {
    if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

/// "postJobsCancel" for POST /v1/jobs/{name}/cancel. A parameter counts only at the end: getWhyByName.
std::string id_from_path(const Route& route) {
    std::string out = ascii_lower(route.method);
    std::string_view rest = route.pattern;
    if (rest.starts_with("/v1/")) rest.remove_prefix(3);
    if (rest.starts_with("/v0.1/")) {
        rest.remove_prefix(5);
        out += "Kosmos";
    }
    while (rest.starts_with('/')) {
        rest.remove_prefix(1);
        const auto segment = rest.substr(0, rest.find('/'));
        rest.remove_prefix(segment.size());
        if (segment.empty()) out += "Root";
        if (segment.starts_with('{') && !rest.empty()) continue;
        if (segment.starts_with('{')) out += "By";
        bool begins_word = true;
        for (const char c : segment) {
            const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
            if (letter) out += begins_word ? upper_first(std::string(1, c)) : std::string(1, c);
            begins_word = !letter;
        }
    }
    return out;
}

/// Operation ids for generated clients: listNodes, createNode; other routes use the method and the path.
std::string operation_id(const Route& route) {
    if (route.kind != nullptr && route.pattern == "/v1/" + route.kind->plural())
        return route.method == "GET" ? "list" + upper_first(route.kind->plural()) : "create" + route.kind->name();
    if (route.kind != nullptr && route.pattern == fmt::format("/v1/{}/{{name}}", route.kind->plural())) {
        const std::string_view verb = route.method == "GET"      ? "read"
                                      : route.method == "PUT"    ? "replace"
                                      : route.method == "PATCH"  ? "patch"
                                      : route.method == "DELETE" ? "delete"
                                                                 : "call";
        return fmt::format("{}{}", verb, route.kind->name());
    }
    return id_from_path(route);
}

json::object parameter_schema(const Parameter& parameter) {
    if (parameter.type == "boolean") // "?dry_run" alone means true
        return {{"anyOf", json::array{json::object{{"type", "boolean"}}, json::object{{"type", "string"}, {"maxLength", 0}}}}};
    json::object out{{"type", parameter.type}};
    if (parameter.min) out["minimum"] = *parameter.min;
    if (parameter.max) out["maximum"] = *parameter.max;
    if (!parameter.choices.empty()) out["enum"] = json::array(parameter.choices.begin(), parameter.choices.end());
    return out;
}

json::array parameters_of(const Route& route) {
    const json::object text{{"type", "string"}};
    json::array out;
    for (const auto& name : path_parameters(route.pattern))
        out.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", text}});
    for (const auto& parameter : route.query)
        out.push_back(
            {{"name", parameter.name}, {"in", "query"}, {"description", parameter.doc}, {"schema", parameter_schema(parameter)}});
    for (const auto& name : route.headers)
        out.push_back({{"name", name}, {"in", "header"}, {"description", header_doc(route, name)}, {"schema", text}});
    return out;
}

json::object good_response(const Route& route) {
    json::object content, out{{"description", "success"}};
    if (!route.response.empty()) content["application/json"] = json::object{{"schema", route.response}};
    if (route.media_type == "text/event-stream")
        content[route.media_type] = json::object{}; // docs/resources.md describes the events
    else if (!route.media_type.empty())
        content[route.media_type] = json::object{{"schema", json::object{{"type", "string"}}}};
    if (!content.empty()) out["content"] = std::move(content);
    if (!route.headers.empty() && route.method != "DELETE")
        out["headers"] = json::object{{"ETag", json::object{{"description", "version of the resource, for If-Match"},
                                                            {"schema", json::object{{"type", "string"}}}}}};
    return out;
}

json::object responses_of(const Route& route) {
    json::object out{{std::to_string(route.status), good_response(route)}};
    if (route.other_status != 0) out[std::to_string(route.other_status)] = good_response(route);
    if (route.method == "GET" && !route.headers.empty()) out["304"] = json::object{{"description", "not modified"}};
    out["default"] =
        json::object{{"description", "error"},
                     {"content", json::object{{"application/problem+json",
                                               json::object{{"schema", json::object{{"$ref", "#/components/schemas/Problem"}}}}}}}};
    return out;
}

json::object operation(const Route& route) {
    json::object out{{"operationId", operation_id(route)},
                     {"summary", route.summary},
                     {"tags", json::array{route.group}},
                     {"responses", responses_of(route)}};
    out["x-role"] = name_of(route.role);
    if (auto parameters = parameters_of(route); !parameters.empty()) out["parameters"] = std::move(parameters);
    if (!route.request.empty()) {
        const json::object body{{"schema", route.request}};
        out["requestBody"] = json::object{{"required", !route.body_optional},
                                          {"content", json::object{{"application/json", body}, {"application/yaml", body}}}};
    }
    out["security"] = route.role == Role::nobody ? json::array{} : json::array{json::object{{"token", json::array{}}}};
    return out;
}

json::object problem_schema() {
    const json::object text{{"type", "string"}};
    return {{"type", "object"},
            {"required", json::array{"status", "code", "detail", "request_id"}},
            {"properties",
             json::object{
                 {"title", text},
                 {"status", json::object{{"type", "integer"}}},
                 {"code", text},
                 {"detail", text},
                 {"remedy", text},
                 {"reason", text},
                 {"fields", json::object{{"type", "array"},
                                         {"items", json::object{{"type", "object"},
                                                                {"properties", json::object{{"path", text}, {"message", text}}}}}}},
                 {"request_id", text}}}};
}

} // namespace

std::string_view header_doc(const Route& route, std::string_view name) {
    if (name == "If-Match") return "an ETag: write only if the resource still has this version; otherwise 412";
    return route.method == "GET" ? "an ETag: 304 if the resource still has this version"
                                 : "*: create the resource; fail if it exists";
}

json::object openapi_document(const Router& router, const resource::Registry& registry, std::string_view version) {
    json::object paths;
    for (const auto& route : router.routes()) {
        auto& path = paths[route->pattern];
        if (path.is_null()) path = json::object{};
        std::string method = route->method;
        for (auto& c : method) c = static_cast<char>(c | 0x20);
        path.get_object()[method] = operation(*route);
    }
    auto schemas = router.schemas();
    schemas["Problem"] = problem_schema();
    for (const auto& kind : registry.all()) {
        schemas[kind->name()] = resource::response_schema(*kind);
        if (kind->has(resource::Verb::create)) schemas[kind->name() + "Request"] = resource::request_schema(*kind);
        if (kind->has(resource::Verb::create) || kind->has(resource::Verb::update))
            schemas[kind->name() + "Replacement"] = resource::replacement_schema(*kind);
    }
    return {{"openapi", "3.1.0"},
            {"info", json::object{{"title", "orrery"},
                                  {"version", version},
                                  {"description", "One control plane for a private cloud."},
                                  {"license", json::object{{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
            {"paths", std::move(paths)},
            {"components",
             json::object{{"schemas", std::move(schemas)},
                          {"securitySchemes", json::object{{"token", json::object{{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

} // namespace orrery::api
