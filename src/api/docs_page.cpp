#include "api/state.h"
#include "core/markup.h"
#include "core/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

/// The page /docs, made from the route table.
namespace orrery::api {

namespace {

// Text and accents have a contrast of at least 4.5:1 to their background, in both colour schemes.
constexpr std::string_view page_head =
    R"(<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>orrery API</title><style>
:root{color-scheme:light dark;--line:#8884;--dim:#5c5c5c;--accent:#1f5fc4;--back:#fff;--text:#111}
@media (prefers-color-scheme:dark){:root{--dim:#b0b0b0;--accent:#7fb2ff;--back:#121212;--text:#eee}}
body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;background:var(--back);color:var(--text)}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}p.dim,td.dim{color:var(--dim)}
code,pre{font:13px/1.5 ui-monospace,monospace;overflow-wrap:anywhere}pre{background:#8881;padding:.7rem 1rem;border-radius:.4rem;overflow:auto}
table{border-collapse:collapse;width:100%;table-layout:fixed}td{padding:.25rem .8rem .25rem 0;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
td:first-child{width:30%}table.f td:nth-child(2){width:22%}
.m{display:inline-block;min-width:4.2rem;font-weight:600;color:var(--accent)}details{margin:.4rem 0}summary{cursor:pointer}nav a{margin-right:1rem}a{color:var(--accent)}
@media (max-width:40rem){td:first-child{width:40%}}
</style></head><body>)";

/// Explains groups whose name is not enough.
std::string_view group_doc(std::string_view group) {
    if (group == "Kosmos v0.1")
        return "Version 0.1 of the API of Kosmos, the OpenStack project for global load balancing. It shows the same "
               "resources under the names of Kosmos: a gslb is a LoadBalancer, pools, pool members and monitors are Pool, Member "
               "and "
               "Monitor. Existing Kosmos clients use it; new clients use the paths below /v1. docs/kosmos.md lists the fields.";
    if (group == "ExternalDNS")
        return "The webhook that the ExternalDNS of a Kubernetes cluster calls. The path contains the token of the cluster; "
               "docs/load-balancing.md shows how to configure it.";
    if (group == "server") return "The server itself. These paths need no login unless a route states a role.";
    return {};
}

std::string row(std::string_view left, std::string_view right) {
    return fmt::format("<tr><td>{}</td><td>{}</td></tr>", left, right);
}

std::string code(std::string_view text) { return fmt::format("<code>{}</code>", escape_markup(text)); }

std::string type_of(const resource::Field& field) {
    std::string out(name_of(field.type()));
    if (!field.forms().empty()) {
        std::vector<std::string_view> forms;
        for (const auto& form : field.forms()) forms.push_back(name_of(form.type()));
        out = fmt::format("{}", fmt::join(forms, " or "));
    }
    if (field.item() != nullptr && field.type() == resource::Type::list) out = fmt::format("list of {}", type_of(*field.item()));
    if (field.item() != nullptr && field.type() == resource::Type::map) out = fmt::format("map of {}", type_of(*field.item()));
    if (field.min() && field.max()) out += fmt::format(", {} to {}", *field.min(), *field.max());
    if (!field.choices().empty()) out = fmt::format("one of {}", fmt::join(field.choices(), ", "));
    if (field.default_value()) out += fmt::format("; default {}", to_json_text(*field.default_value()));
    return out;
}

void append_fields(const resource::Field& object, const std::string& path, std::string& out) {
    for (const auto& field : object.children()) {
        const auto full = path + "." + field.name();
        std::vector<std::string> notes;
        if (field.is_required()) notes.emplace_back("required");
        if (field.is_secret()) notes.emplace_back(fmt::format("sealed: responses show \"{}\"", resource::sealed_mark));
        if (field.is_immutable()) notes.emplace_back("immutable");
        if (!field.reference().empty()) notes.push_back("names a " + field.reference());
        const auto note =
            notes.empty() ? std::string() : fmt::format(" <i>{}</i>", escape_markup(fmt::format("{}", fmt::join(notes, "; "))));
        out += fmt::format("<tr><td>{}</td><td class=dim>{}</td><td>{}{}</td></tr>", code(full), escape_markup(type_of(field)),
                           escape_markup(field.doc()), note);
        append_fields(field, full, out);
        const auto below = [&](const resource::Field& form) {
            append_fields(form, full, out);
            if (form.item() == nullptr) return;
            append_fields(*form.item(), full + (form.type() == resource::Type::list ? "[]" : ".*"), out);
        };
        if (field.item() != nullptr) below(field);
        for (const auto& form : field.forms())
            if (form.type() != resource::Type::map) below(form);
    }
}

/// Renders "#/components/schemas/NodeRequest" as a link to the fields of nodes, and other schemas as JSON.
std::string schema_text(const json::object& schema, const Route& route) {
    if (const auto* reference = schema.if_contains("$ref"); reference != nullptr && route.kind != nullptr) {
        const std::string_view name = reference->get_string();
        return fmt::format("<a href=\"#{0}\">{1}</a>", escape_markup(route.kind->plural()),
                           escape_markup(name.substr(name.rfind('/') + 1)));
    }
    if (schema.size() == 1 && schema.contains("type")) return "an object";
    return fmt::format("<details><summary>schema</summary><pre>{}</pre></details>", escape_markup(to_pretty_json(schema)));
}

void append_route(const Route& route, std::string& out) {
    out += fmt::format("<details><summary><span class=m>{}</span> {} · {}</summary><table>", route.method, code(route.pattern),
                       escape_markup(route.summary));
    out += row("role", route.role == Role::nobody ? "none" : fmt::format("{} and above", name_of(route.role)));
    for (const auto& parameter : route.query)
        out += row(code("?" + parameter.name), fmt::format("{} <i>{}</i>", escape_markup(parameter.doc), parameter.type));
    for (const auto& header : route.headers) out += row(code(header + ":"), escape_markup(header_doc(route, header)));
    if (!route.request.empty())
        out += row(route.body_optional ? "body (may be empty)" : "body", schema_text(route.request, route) + ", JSON or YAML");
    std::string answer = fmt::format("{}", route.status);
    if (route.other_status != 0) answer += fmt::format(" or {}", route.other_status);
    if (!route.response.empty()) answer += " " + schema_text(route.response, route);
    if (!route.media_type.empty())
        answer += fmt::format("{} {}", route.response.empty() ? "" : " or", escape_markup(route.media_type));
    if (!route.headers.empty() && route.method != "DELETE") answer += ", with its <code>ETag</code>";
    out += row("response", answer) + "</table></details>";
}

void append_kind(const resource::Kind& kind, std::string& out) {
    out += "<details><summary>fields</summary><table class=f>";
    append_fields(kind.spec(), "spec", out);
    append_fields(kind.status(), "status", out);
    out += "</table></details>";
    if (!kind.example().empty())
        out += fmt::format("<details><summary>example</summary><pre>{}</pre></details>", escape_markup(kind.example()));
}

} // namespace

std::string api_page(const Router& router, const resource::Registry& registry, std::string_view version) {
    std::string out(page_head);
    out += fmt::format("<h1>orrery API</h1><p class=dim>version {} · <a href=/openapi.json>openapi.json</a></p>",
                       escape_markup(version));
    out +=
        "<p>Every resource is <code>{kind, name, labels, spec, status, revision}</code>. Send <code>Authorization: Bearer "
        "…</code>; <code>orrery login</code> or <code>POST /v1/login</code> gives a token. Bodies are JSON, or YAML with "
        "<code>Content-Type: application/yaml</code>. Errors are <code>application/problem+json</code> with a code, a sentence and "
        "a remedy. <code>ETag</code> and <code>If-Match</code> guard against lost updates, <code>?dry_run</code> shows what a "
        "write "
        "would do, <code>?watch=REVISION</code> streams changes.</p><nav>";
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
        if (const auto doc = group_doc(group); !doc.empty()) out += fmt::format("<p>{}</p>", escape_markup(doc));
        for (const auto& route : router.routes())
            if (route->group == group) append_route(*route, out);
        if (kind != nullptr) append_kind(*kind, out);
    }
    return out + "</body></html>";
}

} // namespace orrery::api
