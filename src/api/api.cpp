#include "api/api.h"

#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::api {

namespace {

/// The token of "Bearer orr_x": "orr_x".
std::string_view bearer_of(const net::Headers& headers) {
    auto value = headers.get("Authorization");
    constexpr std::string_view scheme = "bearer ";
    if (value.size() < scheme.size()) return {};
    for (std::size_t i = 0; i < scheme.size(); ++i)
        if ((value[i] | 0x20) != (scheme[i] | 0x20)) return {};
    return value.substr(scheme.size());
}

Result<Unit> check_access(const Route& route, const identity::Principal& principal) {
    if (route.role == Role::nobody) return Unit{};
    if (principal.role == Role::nobody)
        return Error{Code::unauthenticated, fmt::format("{} {} requires a login", route.method, route.pattern),
                     "orrery login, or send an Authorization header"};
    const bool own_token = !principal.token_name.empty() && !principal.token_name.starts_with("session-");
    if (principal.role < route.role && own_token)
        return Error{Code::denied,
                     fmt::format("token {} of {} has the role {}; the route requires {}", principal.token_name, principal.user,
                                 name_of(principal.role), name_of(route.role)),
                     "use a token or a login with the role"};
    if (principal.role < route.role)
        return Error{
            Code::denied,
            fmt::format("{} has the role {}; the route requires {}", principal.user, name_of(principal.role), name_of(route.role)),
            "ask an admin for the role, or use another login"};
    if (!principal.kinds.empty() && route.kind != nullptr &&
        std::find(principal.kinds.begin(), principal.kinds.end(), route.kind->name()) == principal.kinds.end())
        return Error{Code::denied, fmt::format("this token has no access to {}", route.kind->plural()),
                     "use a token whose scope includes the kind"};
    if (!principal.kinds.empty() && route.kind == nullptr && route.role > Role::viewer)
        return Error{Code::denied, "this token is limited to some kinds", "use a token without a scope of kinds"};
    return Unit{};
}

/// Adds the Allow header to a 405 error, as RFC 9110 requires.
void add_allowed_methods(const Router& router, std::string_view path, std::string_view method, Error& error) {
    if (status_of(error) != 405) return;
    auto methods = router.methods(path);
    std::erase(methods, method);
    error.fields.push_back({std::string(allow_field), fmt::format("{}", fmt::join(methods, ", "))});
}

Task<Unit> serve(Api::State& state, Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    const auto path = request.target.path;
    auto found = state.router.match(request.method, path);
    if (!found.ok()) add_allowed_methods(state.router, path, request.method, found.error());
    // The path contains the token of the cluster: shorten it before anything logs it.
    if (request.target.path.starts_with(externaldns_paths)) {
        request.target.path = externaldns_paths;
        if (!found.ok() && found.error().code == Code::not_found)
            found = Error{Code::not_found, "no route for this path of a cluster", found.error().remedy};
        else if (!found.ok())
            found.error().message = fmt::format("this path of a cluster does not support {}", request.method);
    }
    CO_TRY(auto match, std::move(found));
    request.route = match.route->pattern;
    // Invalid credentials are refused on every route, also on public ones.
    CO_TRY(auto principal, co_await authenticate(state, ctx, request));
    CO_TRY(std::ignore, check_access(*match.route, principal));
    CO_TRY(std::ignore, check_query(*match.route, request.target));
    auto as_actor = ctx.with_actor(principal.user.empty() ? "anonymous" : principal.user);
    request.actor = as_actor.actor();
    Call call{as_actor, request, body, out, std::move(principal), std::move(match.path)};
    auto done = co_await match.route->handler(std::move(call));
    if (!done.ok() && done.error().code == Code::timeout && out.begun())
        log::warn(as_actor, "response cut off: method={} path={} error={}", request.method, request.target.path,
                  done.error().message);
    if (!done.ok()) add_allowed_methods(state.router, path, request.method, done.error());
    if (!done.ok() && done.error().code == Code::internal)
        log::error(ctx, "request failed: method={} path={} error={}", request.method, request.target.path, done.error().text());
    co_return done;
}

} // namespace

Task<identity::Principal> authenticate(Api::State& state, Context ctx, const net::Request& request) {
    if (request.headers.has("Authorization")) {
        const auto bearer = bearer_of(request.headers);
        if (bearer.empty())
            co_return Error{Code::unauthenticated, "the Authorization header has no bearer token",
                            "send \"Authorization: Bearer TOKEN\"; orrery login creates a token"};
        co_return state.identity.check_token(bearer);
    }
    if (const auto foreign = request.headers.get("X-Auth-Token"); !foreign.empty())
        co_return co_await state.identity.check_external_token(ctx, std::string(foreign), request.peer);
    co_return identity::Principal{};
}

Api::Api(asio::any_io_executor executor, resource::Resources& resources, identity::Identity& identity, StoreAdmin& admin,
         Clock& clock, ApiOptions options)
    : state_(new State{.resources = resources,
                       .identity = identity,
                       .admin = admin,
                       .clock = clock,
                       .options = std::move(options),
                       .background = TaskGroup(std::move(executor))}) {
    add_identity_routes(*state_);
    add_store_routes(*state_);
    add_server_routes(*state_);
    add_kind_routes(*state_);
    render_documents();
}

void Api::render_documents() {
    const auto& registry = state_->resources.registry();
    state_->openapi_text = json::serialize(openapi_document(state_->router, registry, state_->options.version));
    state_->docs_page = api_page(state_->router, registry, state_->options.version);
}

void Api::add_jobs(jobs::Engine& engine, jobs::TemplateController& templates) {
    add_job_routes(*state_, engine);
    add_log_routes(*state_, engine);
    add_job_template_routes(*state_, engine, templates);
    render_documents();
}

void Api::add_fleet(fleet::Planner& planner) {
    add_fleet_routes(*state_, planner);
    render_documents();
}

void Api::add_gslb(gslb::Controller& controller) {
    add_gslb_routes(*state_, controller);
    add_kosmos_routes(*state_);
    add_externaldns_routes(*state_);
    render_documents();
}

void Api::add_explanations(const resource::Explainers& explainers) {
    add_why_routes(*state_, explainers);
    render_documents();
}

void Api::add_health(health::HealthAggregator& aggregator) {
    add_health_routes(*state_, aggregator);
    render_documents();
}

Api::~Api() = default;

const Router& Api::router() const { return state_->router; }

net::Handler Api::handler() {
    return [state = state_.get()](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
        return serve(*state, std::move(ctx), request, body, out);
    };
}

std::function<net::Response(const Context&, const Error&)> Api::on_error() { return &problem; }

asio::awaitable<void> Api::stop() {
    try {
        co_await state_->background.join();
    } catch (const std::runtime_error& failure) { // of a background task; its failure was reported when it happened
        log::debug(Context::background(), "{}", failure.what());
    }
}

std::function<void(const Context&, const net::Request&, int, Duration)> Api::on_done() {
    return [state = state_.get()](const Context& ctx, const net::Request& request, int status, Duration took) {
        state->metrics.request(request.method, request.route.empty() ? "(none)" : request.route, status, took);
        if (!log::enabled(log::Level::debug)) return;
        log::debug(request.actor.empty() ? ctx : ctx.with_actor(request.actor),
                   "request done: method={} path={} status={} ms={:.1f}", request.method, request.target.path, status,
                   std::chrono::duration<double, std::milli>(took).count());
    };
}

void Api::add_gauges(std::function<std::vector<std::pair<std::string, double>>()> gauges) {
    state_->gauges.push_back(std::move(gauges));
}
void Api::add_degradation(std::function<std::string()> degraded) { state_->degradations.push_back(std::move(degraded)); }
void Api::add_readiness(std::function<Result<Unit>()> ready) { state_->readiness.push_back(std::move(ready)); }

} // namespace orrery::api
