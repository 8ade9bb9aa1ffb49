#include "api/state.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

/// What the server says about itself.
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
    // Whatever the reason is, to who asks here it means the same: not now.
    if (!ready.ok()) co_return Error{Code::unavailable, ready.error().message, ready.error().remedy};
    co_return co_await send_text(call, 200, "text/plain; charset=utf-8", "ready\n");
}

Task<Unit> metrics(Api::State& state, Call call) {
    auto gauges = process_gauges();
    gauges.emplace_back("orrery_event_streams", state.streams);
    gauges.emplace_back("orrery_store_revision", static_cast<double>(state.store().revision()));
    for (const auto& [name, value] : state.store().metrics()) gauges.emplace_back("orrery_store_" + name, value);
    for (const auto& kind : state.resources.registry().all())
        gauges.emplace_back(fmt::format("orrery_{}", kind->plural()), static_cast<double>(state.store().count(kind->prefix())));
    for (const auto& source : state.gauges)
        for (auto& gauge : source()) gauges.push_back(std::move(gauge));
    co_return co_await send_text(call, 200, "text/plain; version=0.0.4; charset=utf-8",
                                 state.metrics.text(gauges, state.options.version));
}

Task<Unit> openapi(Api::State& state, Call call) {
    co_return co_await send_text(call, 200, "application/json", state.openapi_text);
}

Task<Unit> docs(Api::State& state, Call call) {
    net::Headers headers{{"Content-Type", "text/html; charset=utf-8"},
                         {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
                         {"X-Content-Type-Options", "nosniff"}};
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), state.docs_page});
}

Task<Unit> front_door(Call call) { co_return co_await call.out.send(call.ctx, {302, {{"Location", "/docs"}}, {}}); }

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
    add("/", "The way in: sends a browser to /docs", Role::nobody, 302, [](Call call) { return front_door(std::move(call)); });
    add("/healthz", "The process lives", Role::nobody, 200, [](Call call) { return healthz(std::move(call)); });
    add("/readyz", "It can take writes; 503 with the reason where it cannot", Role::nobody, 200,
        [&state](Call call) { return readyz(state, std::move(call)); });
    add("/metrics", "Its own metrics, for Prometheus", Role::nobody, 200,
        [&state](Call call) { return metrics(state, std::move(call)); });
    add("/openapi.json", "This API, as OpenAPI 3.1", Role::nobody, 200,
        [&state](Call call) { return openapi(state, std::move(call)); });
    add("/docs", "This API, to read", Role::nobody, 200, [&state](Call call) { return docs(state, std::move(call)); });
}

} // namespace orrery::api
