#include "api/api.h"

#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace orrery::api {

namespace {

/// "Bearer orr_x" gives "orr_x".
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
        return Error{Code::unauthenticated, fmt::format("{} {} needs a login", route.method, route.pattern),
                     "orrery login, or send an Authorization header"};
    if (principal.role < route.role)
        return Error{Code::denied,
                     fmt::format("{} is {}, and this needs {}", principal.user, name_of(principal.role), name_of(route.role)),
                     "ask an admin for the role, or use another login"};
    if (!principal.kinds.empty() && route.kind != nullptr &&
        std::find(principal.kinds.begin(), principal.kinds.end(), route.kind->name()) == principal.kinds.end())
        return Error{Code::denied, fmt::format("this token may not touch {}", route.kind->plural()),
                     "use a token whose scope has the kind"};
    if (!principal.kinds.empty() && route.kind == nullptr && route.role > Role::viewer)
        return Error{Code::denied, "this token is limited to some kinds", "use a token without a scope of kinds"};
    return Unit{};
}

Task<Unit> serve(Api::State& state, Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    auto found = state.router.match(request.method, request.target.path);
    // A cluster's token is in its path, which goes into logs from here on.
    if (request.target.path.starts_with(externaldns_paths)) {
        request.target.path = externaldns_paths;
        if (!found.ok() && found.error().code == Code::not_found)
            found = Error{Code::not_found, "there is nothing at this path of a cluster", found.error().remedy};
        else if (!found.ok())
            found = Error{found.error().code, fmt::format("this path of a cluster does not take {}", request.method),
                          found.error().remedy};
    }
    CO_TRY(auto match, std::move(found));
    request.route = match.route->pattern;
    // Whoever says who they are must be right, even where nobody asks.
    CO_TRY(auto principal, co_await who_asks(state, ctx, request));
    CO_TRY(std::ignore, check_access(*match.route, principal));
    CO_TRY(std::ignore, check_query(*match.route, request.target));
    auto as_actor = ctx.with_actor(principal.user.empty() ? "anonymous" : principal.user);
    request.actor = as_actor.actor();
    Call call{as_actor, request, body, out, std::move(principal), std::move(match.path)};
    auto done = co_await match.route->handler(std::move(call));
    if (!done.ok() && done.error().code == Code::timeout && out.begun())
        log::warn(as_actor, "{} {} was cut off: {}", request.method, request.target.path, done.error().message);
    if (!done.ok() && done.error().code == Code::internal)
        log::error(ctx, "{} {}: {}", request.method, request.target.path, done.error().text());
    co_return done;
}

} // namespace

Task<identity::Principal> who_asks(Api::State& state, Context ctx, const net::Request& request) {
    if (request.headers.has("Authorization")) {
        const auto bearer = bearer_of(request.headers);
        if (bearer.empty())
            co_return Error{Code::unauthenticated, "the Authorization header is not a bearer token",
                            "send \"Authorization: Bearer <token>\"; orrery login gets one"};
        co_return state.identity.check_token(bearer);
    }
    if (const auto foreign = request.headers.get("X-Auth-Token"); !foreign.empty())
        co_return co_await state.identity.check_foreign_token(ctx, std::string(foreign), request.peer);
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
    state_->openapi_text = json::serialize(openapi_document(state_->router, resources.registry(), state_->options.version));
    state_->docs_page = api_page(state_->router, resources.registry(), state_->options.version);
}

void Api::add_jobs(jobs::Engine& engine) {
    add_job_routes(*state_, engine);
    const auto& registry = state_->resources.registry();
    state_->openapi_text = json::serialize(openapi_document(state_->router, registry, state_->options.version));
    state_->docs_page = api_page(state_->router, registry, state_->options.version);
}

void Api::add_gslb(gslb::Controller& controller) {
    add_gslb_routes(*state_, controller);
    add_kosmos_routes(*state_);
    add_externaldns_routes(*state_);
    const auto& registry = state_->resources.registry();
    state_->openapi_text = json::serialize(openapi_document(state_->router, registry, state_->options.version));
    state_->docs_page = api_page(state_->router, registry, state_->options.version);
}

void Api::add_health(health::Lookout& lookout) {
    add_health_routes(*state_, lookout);
    const auto& registry = state_->resources.registry();
    state_->openapi_text = json::serialize(openapi_document(state_->router, registry, state_->options.version));
    state_->docs_page = api_page(state_->router, registry, state_->options.version);
}

Api::~Api() = default;

const Router& Api::router() const { return state_->router; }

net::Handler Api::handler() {
    return [state = state_.get()](Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
        return serve(*state, std::move(ctx), request, body, out);
    };
}

std::function<net::Response(const Context&, const Error&)> Api::on_error() { return &problem; }

asio::awaitable<void> Api::stop() { co_await state_->background.join(); }

std::function<void(const Context&, const net::Request&, int, Duration)> Api::on_done() {
    return [state = state_.get()](const Context& ctx, const net::Request& request, int status, Duration took) {
        state->metrics.request(request.method, request.route.empty() ? "(none)" : request.route, status, took);
        if (!log::enabled(log::Level::debug)) return;
        log::debug(request.actor.empty() ? ctx : ctx.with_actor(request.actor), "{} {} {} in {:.1f} ms", request.method,
                   request.target.path, status, std::chrono::duration<double, std::milli>(took).count());
    };
}

void Api::add_gauges(std::function<std::vector<std::pair<std::string, double>>()> gauges) {
    state_->gauges.push_back(std::move(gauges));
}
void Api::add_readiness(std::function<Result<Unit>()> ready) { state_->readiness.push_back(std::move(ready)); }

} // namespace orrery::api
