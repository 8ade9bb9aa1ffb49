#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "fleet/importer.h"
#include "fleet/planner.h"

#include <fmt/format.h>

#include <algorithm>

/// Routes of the fleet beyond those of every kind: import, preview, flavor suggestions, outliers.
namespace orrery::api {

namespace {

/// The body is the file itself, or {"file": its text}, which can carry CSV as JSON. `invalid`: `file` is no text, or not alone.
Result<std::string> import_text(std::string body) {
    const auto first = body.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || body[first] != '{') return body;
    const auto document = parse_json(body);
    const auto* object = document.ok() ? document->if_object() : nullptr;
    const auto* file = object == nullptr ? nullptr : object->if_contains("file");
    if (file == nullptr) return body;
    if (!file->is_string() || object->size() != 1) {
        Error error{Code::invalid, "the body is neither an inventory file nor one in the field file"};
        error.fields.push_back({"file", "must be the text of the file, and the only field"});
        return error;
    }
    return std::string(std::string_view(file->get_string()));
}

Task<Unit> import_fleet(Api::State& state, Call call) {
    resource::WriteOptions options;
    CO_TRY(options.dry_run, call.flag("dry_run"));
    options.reason = call.query("reason").value_or("");
    const auto& kinds = call.principal.kinds;
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), "Secret") == kinds.end())
        co_return Error{Code::denied, "an import writes Secrets, and this token may not",
                        "use a token that may write Machine and Secret"};
    CO_TRY(auto body, co_await net::read_all(call.ctx, call.body, state.options.max_body));
    CO_TRY(auto text, import_text(std::move(body)));
    CO_TRY(const auto report, co_await fleet::import_machines(call.ctx, state.resources, std::move(text), std::move(options)));
    co_return co_await send_json(call, 200, report);
}

Task<Unit> preview_plan(fleet::Planner& planner, Call call) {
    CO_TRY(const auto preview, co_await planner.preview(call.ctx, call.name()));
    co_return co_await send_json(call, 200, preview);
}

Task<Unit> list_flavor_suggestions(fleet::Planner& planner, Call call) {
    CO_TRY(const auto suggestions, co_await planner.suggest_flavors(call.ctx));
    co_return co_await send_json(call, 200, suggestions);
}

Task<Unit> list_outliers(fleet::Planner& planner, Call call) {
    CO_TRY(const auto outliers, co_await planner.outliers(call.ctx));
    co_return co_await send_json(call, 200, outliers);
}

} // namespace

void add_fleet_routes(Api::State& state, fleet::Planner& planner) {
    const auto add = [&state](Route route) {
        route.group = "fleet";
        route.response = {{"type", "object"}};
        state.router.add(std::move(route));
    };
    auto* of = &state;
    auto* with = &planner;
    const auto& registry = state.resources.registry();
    add({.method = "POST",
         .pattern = "/v1/fleet/import",
         .summary = "Import machines from a file: instackenv JSON or CSV",
         .role = Role::operator_,
         .kind = registry.find("Machine"),
         .query = {{"dry_run", "check everything and change nothing", "boolean"},
                   {"reason", "the reason of the import, stored in the audit events"}},
         .request = {{"type", "object"},
                     {"description", "instackenv JSON as it is, or the text of a file of either format in `file`"},
                     {"properties",
                      json::object{{"nodes", json::object{{"type", "array"}, {"items", json::object{{"type", "object"}}}}},
                                   {"file", json::object{{"type", "string"}}}}}},
         .handler = [of](Call call) { return import_fleet(*of, std::move(call)); }});
    add({.method = "POST",
         .pattern = "/v1/plans/{name}/preview",
         .summary =
             "Preview a plan: the machines of each role with costs, rejected machines with reasons, changes to the deployment",
         .role = Role::viewer,
         .kind = registry.find("Plan"),
         .handler = [with](Call call) { return preview_plan(*with, std::move(call)); }});
    add({.method = "GET",
         .pattern = "/v1/fleet/flavor-suggestions",
         .summary = "Suggest flavors for hardware that no flavor describes",
         .role = Role::viewer,
         .kind = registry.find("Machine"),
         .handler = [with](Call call) { return list_flavor_suggestions(*with, std::move(call)); }});
    add({.method = "GET",
         .pattern = "/v1/fleet/outliers",
         .summary = "List machines whose benchmarks deviate from those of identical machines, with the evidence",
         .role = Role::viewer,
         .kind = registry.find("Machine"),
         .handler = [with](Call call) { return list_outliers(*with, std::move(call)); }});
}

} // namespace orrery::api
