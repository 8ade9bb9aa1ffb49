#include "api/problem.h"
#include "api/state.h"
#include "core/text.h"
#include "resource/explain.h"

#include <fmt/format.h>

#include <algorithm>

/// Why a resource of any kind is as it is.
namespace orrery::api {

namespace {

bool may_read_kind(const identity::Principal& principal, const resource::Kind& kind) {
    if (principal.role < kind.read_role()) return false;
    return principal.kinds.empty() ||
           std::find(principal.kinds.begin(), principal.kinds.end(), kind.name()) != principal.kinds.end();
}

Task<Unit> show_explanation(Api::State& state, const resource::Explainers& explainers, Call call) {
    const auto& registry = state.resources.registry();
    CO_TRY(const auto* kind, registry.get(call.path.at("kind")));
    if (!may_read_kind(call.principal, *kind))
        co_return Error{Code::denied, fmt::format("this login may not read {}", kind->plural()),
                        "use a login or a token with access to the kind"};
    resource::ExplainRequest request{.name = call.name(), .at = {}};
    request.part = call.query("task").value_or("");
    request.client = call.query("client").value_or("");
    Error wrong{Code::invalid, "invalid query"};
    if (!request.part.empty() && kind->name() != "Job") wrong.fields.push_back({"?task", "is for a job"});
    if (!request.client.empty() && kind->name() != "LoadBalancer") wrong.fields.push_back({"?client", "is for a load balancer"});
    if (const auto text = call.query("at")) {
        const auto time = from_rfc3339(*text);
        if (time.ok())
            request.at = *time;
        else
            wrong.fields.push_back({"?at", "must be a time such as 2026-11-16T04:42:52Z"});
    }
    if (!wrong.fields.empty()) co_return wrong;
    auto answer = explainers.explain(kind->name(), request, [&](std::string_view name) {
        const auto* from = registry.find(name);
        return from != nullptr && may_read_kind(call.principal, *from);
    });
    // Not 405, which is about the method: the kind has no such explanation.
    if (!answer.ok() && answer.error().code == Code::unsupported)
        co_return Error{Code::invalid, answer.error().message, answer.error().remedy};
    if (!answer.ok()) co_return std::move(answer).error();
    co_return co_await send_json(call, 200, *answer);
}

} // namespace

void add_why_routes(Api::State& state, const resource::Explainers& explainers) {
    state.router.add(
        {.method = "GET",
         .pattern = "/v1/why/{kind}/{name}",
         .summary = "Explain why a resource is in its state, with the evidence",
         .group = "server",
         .role = Role::viewer,
         .query = {{"task", "for a job: the task, for example mysql@db-1"},
                   {"client", "for a load balancer: address or network of a client"},
                   {"at", "an earlier time, for kinds with a history"}},
         .response = {{"type", "object"}},
         .handler = [&state, &explainers](Call call) { return show_explanation(state, explainers, std::move(call)); }});
}

} // namespace orrery::api
