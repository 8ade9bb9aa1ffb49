#include "api/state.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

/// Routes of the server itself: health, metrics, API description.
namespace orrery::api {

namespace {

Task<Unit> send_text(Call& call, int status, std::string type, std::string text) {
    co_return co_await call.out.send(call.ctx, {status, {{"Content-Type", std::move(type)}}, std::move(text)});
}

Task<Unit> healthz(Call call) { co_return co_await send_text(call, 200, "text/plain; charset=utf-8", "ok\n"); }

Task<Unit> readyz(Api::State& state, Call call) {
    auto ready = state.store().health();
    for (const auto& also : state.readiness)
        if (ready.ok()) ready = also();
    // For load balancers in front of the server every cause means the same: not ready.
    if (!ready.ok()) co_return Error{Code::unavailable, ready.error().message, ready.error().remedy};
    std::string degraded;
    for (const auto& also : state.degradations)
        if (auto what = also(); !what.empty()) degraded += fmt::format("degraded: {}\n", what);
    co_return co_await send_text(call, 200, "text/plain; charset=utf-8", "ready\n" + degraded);
}

/// Checks access to pages that the configuration can open to anonymous clients. Any role may read them.
Result<Unit> check_anonymous(const Call& call, Anonymous allowed, std::string_view setting) {
    if (call.principal.role != Role::nobody || allowed == Anonymous::always) return Unit{};
    if (allowed == Anonymous::loopback && is_from_loopback(call.request)) return Unit{};
    return Error{Code::unauthenticated, fmt::format("{} requires a login", call.request.target.path),
                 fmt::format("send a token with the role viewer, or set {} to always", setting)};
}

Task<Unit> metrics(Api::State& state, Call call) {
    CO_TRY(std::ignore, check_anonymous(call, state.options.anonymous_metrics, "server.anonymous_metrics"));
    auto gauges = process_gauges();
    gauges.emplace_back("orrery_event_streams", state.streams);
    for (const auto& [name, value] : state.store().metrics()) gauges.emplace_back("orrery_store_" + name, value);
    for (const auto& kind : state.resources.registry().all())
        gauges.emplace_back(fmt::format("orrery_{}", kind->plural()), static_cast<double>(state.store().count(kind->prefix())));
    for (const auto& source : state.gauges)
        for (auto& gauge : source()) gauges.push_back(std::move(gauge));
    co_return co_await send_text(call, 200, "text/plain; version=0.0.4; charset=utf-8",
                                 state.metrics.text(gauges, state.options.version));
}

Task<Unit> openapi(Api::State& state, Call call) {
    CO_TRY(std::ignore, check_anonymous(call, state.options.anonymous_docs, "server.anonymous_docs"));
    co_return co_await send_text(call, 200, "application/json", state.openapi_text);
}

Task<Unit> docs(Api::State& state, Call call) {
    CO_TRY(std::ignore, check_anonymous(call, state.options.anonymous_docs, "server.anonymous_docs"));
    net::Headers headers{{"Content-Type", "text/html; charset=utf-8"},
                         {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
                         {"X-Content-Type-Options", "nosniff"}};
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), state.docs_page});
}

Task<Unit> redirect_to_docs(Call call) { co_return co_await call.out.send(call.ctx, {302, {{"Location", "/docs"}}, {}}); }

} // namespace

void add_server_routes(Api::State& state) {
    const auto add = [&](std::string pattern, std::string summary, Role role, int status, std::function<Task<Unit>(Call)> handler) {
        state.router.add({.method = "GET",
                          .pattern = std::move(pattern),
                          .summary = std::move(summary),
                          .group = "server",
                          .role = role,
                          .status = status,
                          .handler = std::move(handler)});
    };
    add("/", "Redirect to /docs", Role::nobody, 302, [](Call call) { return redirect_to_docs(std::move(call)); });
    add("/healthz", "Check that the process is alive", Role::nobody, 200, [](Call call) { return healthz(std::move(call)); });
    add("/readyz", "Check that the server accepts writes, and list degraded components; 503 if it does not", Role::nobody, 200,
        [&state](Call call) { return readyz(state, std::move(call)); });
    add("/metrics", "Read the metrics of this server in Prometheus text format", Role::nobody, 200,
        [&state](Call call) { return metrics(state, std::move(call)); });
    add("/openapi.json", "Read the OpenAPI 3.1 document of this API", Role::nobody, 200,
        [&state](Call call) { return openapi(state, std::move(call)); });
    add("/docs", "Read the documentation of this API", Role::nobody, 200,
        [&state](Call call) { return docs(state, std::move(call)); });
}

} // namespace orrery::api
