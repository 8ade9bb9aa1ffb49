#include "resource/openapi.h"

#include "api/state.h"
#include "core/markup.h"

#include <fmt/format.h>

#include <set>

/// The route table as OpenAPI and as a page to read.
namespace orrery::api {

namespace {

std::vector<std::string> path_parameters(std::string_view pattern) {
    std::vector<std::string> out;
    for (auto open = pattern.find('{'); open != std::string_view::npos; open = pattern.find('{', open + 1))
        out.emplace_back(pattern.substr(open + 1, pattern.find('}', open) - open - 1));
    return out;
}

std::string operation_id(const Route& route) {
    std::string out = route.method;
    for (const char c : route.pattern) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    return out;
}

json::object operation(const Route& route) {
    json::array parameters;
    for (const auto& name : path_parameters(route.pattern))
        parameters.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", json::object{{"type", "string"}}}});
    for (const auto& parameter : route.query)
        parameters.push_back({{"name", parameter.name},
                              {"in", "query"},
                              {"description", parameter.doc},
                              {"schema", json::object{{"type", parameter.type}}}});
    json::object good{{"description", "good"}};
    if (!route.response.empty()) good["content"] = json::object{{"application/json", json::object{{"schema", route.response}}}};
    json::object responses{
        {std::to_string(route.status), std::move(good)},
        {"default",
         json::object{
             {"description", "what went wrong"},
             {"content", json::object{{"application/problem+json",
                                       json::object{{"schema", json::object{{"$ref", "#/components/schemas/Problem"}}}}}}}}}};
    json::object out{{"operationId", operation_id(route)},
                     {"summary", route.summary},
                     {"tags", json::array{route.group}},
                     {"responses", std::move(responses)}};
    out["x-role"] = name_of(route.role);
    if (!parameters.empty()) out["parameters"] = std::move(parameters);
    if (!route.request.empty())
        out["requestBody"] = json::object{{"required", true},
                                          {"content", json::object{{"application/json", json::object{{"schema", route.request}}}}}};
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
                 {"fields", json::object{{"type", "array"},
                                         {"items", json::object{{"type", "object"},
                                                                {"properties", json::object{{"path", text}, {"message", text}}}}}}},
                 {"request_id", text}}}};
}

constexpr std::string_view page_head =
    R"(<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>orrery API</title><style>
:root{color-scheme:light dark;--line:#8884;--dim:#888;--accent:#2a6fdb}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}p.dim,td.dim{color:var(--dim)}
code,pre{font:13px/1.5 ui-monospace,monospace}pre{background:#8881;padding:.7rem 1rem;border-radius:.4rem;overflow:auto}
table{border-collapse:collapse;width:100%}td{padding:.25rem .8rem .25rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
.m{display:inline-block;min-width:4.2rem;font-weight:600;color:var(--accent)}details{margin:.4rem 0}summary{cursor:pointer}nav a{margin-right:1rem}a{color:var(--accent)}
</style></head><body>)";

void append_fields(const resource::Field& object, const std::string& path, std::string& out) {
    for (const auto& field : object.children()) {
        const auto full = path + "." + field.name();
        std::string notes;
        if (field.is_required()) notes += "required ";
        if (field.is_secret()) notes += "sealed, write-only ";
        if (field.is_immutable()) notes += "cannot change ";
        if (!field.reference().empty()) notes += "names a " + field.reference() + " ";
        out += fmt::format("<tr><td><code>{}</code></td><td>{}</td><td class=dim>{}</td></tr>", escape_markup(full),
                           escape_markup(field.doc()), escape_markup(notes));
        if (field.type() == resource::Type::object) append_fields(field, full, out);
    }
}

} // namespace

json::object openapi_document(const Router& router, const resource::Registry& registry, std::string_view version) {
    json::object paths;
    for (const auto& route : router.routes()) {
        auto& path = paths[route->pattern];
        if (path.is_null()) path = json::object{};
        std::string method = route->method;
        for (auto& c : method) c = static_cast<char>(c | 0x20);
        path.get_object()[method] = operation(*route);
    }
    json::object schemas{{"Problem", problem_schema()}};
    for (const auto& kind : registry.all()) {
        schemas[kind->name()] = resource::response_schema(*kind);
        schemas[kind->name() + "Request"] = resource::request_schema(*kind);
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

std::string api_page(const Router& router, const resource::Registry& registry, std::string_view version) {
    std::string out(page_head);
    out += fmt::format("<h1>orrery API</h1><p class=dim>version {} · <a href=/openapi.json>openapi.json</a></p>",
                       escape_markup(version));
    out += "<p>Every resource is <code>{kind, name, labels, spec, status, revision}</code>. Send <code>Authorization: Bearer "
           "…</code>; "
           "<code>orrery login</code> or <code>POST /v1/login</code> gives a token. Errors are "
           "<code>application/problem+json</code> with a code, a sentence and a remedy. "
           "<code>ETag</code> and <code>If-Match</code> guard against lost updates, <code>?dry_run</code> shows what a write would "
           "do, <code>?watch=REVISION</code> streams changes.</p><nav>";
    std::vector<std::string> groups;
    std::set<std::string> seen;
    for (const auto& route : router.routes())
        if (seen.insert(route->group).second) groups.push_back(route->group);
    for (const auto& group : groups) out += fmt::format("<a href=\"#{0}\">{0}</a> ", escape_markup(group));
    out += "</nav>";
    for (const auto& group : groups) {
        out += fmt::format("<h2 id=\"{0}\">{0}</h2>", escape_markup(group));
        const auto* kind = registry.find(group);
        if (kind != nullptr) out += fmt::format("<p>{}</p>", escape_markup(kind->doc()));
        for (const auto& route : router.routes()) {
            if (route->group != group) continue;
            out += fmt::format("<details><summary><span class=m>{}</span> <code>{}</code> · {}</summary><table>", route->method,
                               escape_markup(route->pattern), escape_markup(route->summary));
            out += fmt::format("<tr><td>who</td><td>{}</td></tr>",
                               route->role == Role::nobody ? "anyone" : fmt::format("{} and above", name_of(route->role)));
            for (const auto& parameter : route->query)
                out += fmt::format("<tr><td><code>?{}</code></td><td>{}</td></tr>", escape_markup(parameter.name),
                                   escape_markup(parameter.doc));
            out += "</table></details>";
        }
        if (kind == nullptr) continue;
        out += "<details><summary>fields</summary><table>";
        append_fields(kind->spec(), "spec", out);
        append_fields(kind->status(), "status", out);
        out += "</table></details>";
        if (!kind->example().empty())
            out += fmt::format("<details><summary>example</summary><pre>{}</pre></details>", escape_markup(kind->example()));
    }
    return out + "</body></html>";
}

} // namespace orrery::api
