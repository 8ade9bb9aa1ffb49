#include "api/facades/consul/facade_state.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

/// From a request to its handler and back: routing, authentication, bodies, responses and their headers.
namespace orrery::api::consul {

namespace {

using resource::Role;

int status_of(const Error& error) {
    switch (error.code) {
    case Code::invalid: return 400;
    case Code::unauthenticated:
    case Code::denied: return 403;
    case Code::not_found: return 404;
    case Code::too_large: return 413;
    case Code::throttled: return 429;
    case Code::unsupported: return 405;
    default: return 500;
    }
}

std::string text_of(const Error& error) {
    auto out = error.message;
    for (const auto& field : error.fields) out += fmt::format("; {} {}", field.path, field.message);
    return out;
}

/// Keys in lower case without underscores, at every level: Consul accepts both styles. Keys that users choose (meta, headers) stay.
json::value plain_keys(const json::value& value, bool keep) {
    if (value.is_array()) {
        json::array out;
        for (const auto& item : value.get_array()) out.push_back(plain_keys(item, keep));
        return out;
    }
    if (!value.is_object()) return value;
    json::object out;
    for (const auto& [key, item] : value.get_object()) {
        std::string plain;
        for (const char c : std::string_view(key))
            if (c != '_') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
        const bool own = plain == "meta" || plain == "nodemeta" || plain == "header" || plain == "taggedaddresses";
        out[keep ? std::string(key) : plain] = plain_keys(item, own && plain != "taggedaddresses" ? true : keep);
    }
    return out;
}

} // namespace

std::vector<std::string> split_path(std::string_view path) {
    std::vector<std::string> out;
    while (!path.empty()) {
        const auto slash = path.find('/');
        out.emplace_back(path.substr(0, slash));
        if (slash == std::string_view::npos) break;
        path.remove_prefix(slash + 1);
        if (path.empty()) out.emplace_back(); // "a/" has an empty last segment
    }
    return out;
}

std::vector<std::string> Call::queries(std::string_view name) const {
    std::vector<std::string> all;
    for (const auto& [key, value] : request.target.query)
        if (key == name) all.push_back(value);
    return all;
}

resource::WriteOptions Writer::options(std::optional<Revision> if_revision) const {
    return {.if_revision = if_revision,
            .reason = peer.empty() ? "" : "through the Consul API, from " + peer,
            .self_registration = true};
}

namespace {

std::string token_of(const net::Request& request) {
    std::string token(request.headers.get("X-Consul-Token"));
    if (token.empty()) {
        constexpr std::string_view bearer = "Bearer ";
        const auto given = request.headers.get("Authorization");
        if (given.starts_with(bearer)) token = given.substr(bearer.size());
    }
    return token.empty() ? request.target.param("token").value_or("") : token;
}

/// Does the path match? Appends the values of "*" and "**".
bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& segments, std::vector<std::string>& values) {
    std::size_t at = 0;
    for (const auto& part : pattern) {
        if (part == "**") {
            values.push_back(fmt::format("{}", fmt::join(segments.begin() + static_cast<std::ptrdiff_t>(at), segments.end(), "/")));
            return true;
        }
        if (at >= segments.size() || (part != "*" && part != segments[at])) return false;
        if (part == "*") values.push_back(segments[at]);
        ++at;
    }
    return at == segments.size();
}

} // namespace

ConsulFacade::State::Match ConsulFacade::State::match(const std::string& method, const std::vector<std::string>& segments) const {
    Match out;
    for (const auto& route : routes) {
        std::vector<std::string> values;
        if (!matches(route.pattern, segments, values)) continue;
        out.methods.push_back(route.method);
        if (route.method != method && !(method == "HEAD" && route.method == "GET")) continue;
        out.route = &route;
        out.path = std::move(values);
        break;
    }
    return out;
}

Result<Unit> ConsulFacade::State::check_access(const Route& route, const net::Request& request, std::string& actor) const {
    identity::Principal principal;
    principal.role = options.anonymous;
    actor = "anonymous";
    if (const auto token = token_of(request); !token.empty()) {
        auto known = identity.check_token(token);
        if (!known.ok()) return Error{Code::denied, "ACL not found"};
        principal = std::move(*known);
        actor = principal.user;
    }
    if (principal.role < route.role)
        return Error{Code::denied,
                     fmt::format("Permission denied: {} may not do this: it needs the role {}",
                                 actor == "anonymous" ? "a request without a token" : actor, resource::name_of(route.role))};
    if (!principal.kinds.empty() && std::find(principal.kinds.begin(), principal.kinds.end(), "Instance") == principal.kinds.end())
        return Error{Code::denied, "Permission denied: this token is limited to other kinds"};
    return Unit{};
}

Task<Unit> ConsulFacade::State::serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    Call call{ctx, request, body, out, {}};
    const auto& path = request.target.path;
    if (!path.starts_with("/v1/")) {
        co_return co_await send_text(
            call, 404,
            path == "/"
                ? "Consul Agent: UI disabled. To enable, set ui_config.enabled=true in the agent configuration and restart.\n"
                : "404 page not found\n");
    }
    auto found = match(request.method, split_path(std::string_view(path).substr(4)));
    if (found.methods.empty()) co_return co_await send_text(call, 404, "Invalid URL path: not a recognized HTTP API endpoint");
    if (found.route == nullptr)
        co_return co_await send_text(call, 405, fmt::format("method {} not allowed", request.method),
                                     {{"Allow", fmt::format("OPTIONS,{}", fmt::join(found.methods, ","))}});
    call.path = std::move(found.path);
    request.route = "/v1/" + fmt::format("{}", fmt::join(found.route->pattern, "/"));
    std::string actor;
    if (const auto access = check_access(*found.route, request, actor); !access.ok())
        co_return co_await send_text(call, 403, access.error().message);
    request.actor = actor;
    call.ctx = ctx.with_actor(actor);
    if (const auto dc = call.query("dc"); !dc.empty() && dc != options.datacenter)
        co_return co_await send_text(call, 500, "No path to datacenter", {{"X-Consul-Index", "1"}});
    if (call.has("consistent")) {
        const auto caught_up = co_await resources.store().catch_up(ctx);
        if (!caught_up.ok()) co_return co_await send_text(call, 500, caught_up.error().message);
    }
    auto done = co_await (this->*found.route->handler)(call);
    if (done.ok() || out.begun()) co_return std::move(done);
    if (done.error().code == Code::cancelled) co_return std::move(done);
    co_return co_await send_text(call, status_of(done.error()), text_of(done.error()));
}

std::string ConsulFacade::State::default_acl_policy() const { return options.anonymous >= Role::operator_ ? "allow" : "deny"; }

Task<Unit> ConsulFacade::State::send_text(Call& call, int status, std::string body, net::Headers headers) {
    headers.add("Content-Type", "text/plain; charset=utf-8");
    headers.add("X-Consul-Default-Acl-Policy", default_acl_policy());
    co_return co_await call.out.send(call.ctx, net::Response{status, std::move(headers), std::move(body)});
}

Task<Unit> ConsulFacade::State::send_empty(Call& call) {
    co_return co_await call.out.send(call.ctx, net::Response{200, {{"X-Consul-Default-Acl-Policy", default_acl_policy()}}, ""});
}

Task<Unit> ConsulFacade::State::send_json(Call& call, json::value value, int status, net::Headers headers) {
    headers.add("Content-Type", "application/json");
    headers.add("Vary", "Accept-Encoding");
    headers.add("X-Consul-Default-Acl-Policy", default_acl_policy());
    auto body = call.has("pretty") ? to_pretty_json(value) + "\n" : to_json_text(value);
    co_return co_await call.out.send(call.ctx, net::Response{status, std::move(headers), std::move(body)});
}

Task<std::string> ConsulFacade::State::body_of(Call& call, std::size_t limit) {
    auto body = co_await net::read_all(call.ctx, call.body, limit);
    if (!body.ok() && body.error().code == Code::too_large)
        co_return Error{Code::too_large, fmt::format("Request body too large, max size: {} bytes.", limit)};
    co_return std::move(body);
}

Task<json::object> ConsulFacade::State::object_of(Call& call) {
    CO_TRY(const auto body, co_await body_of(call, max_body));
    if (body.empty()) co_return Error{Code::invalid, "Request decode failed: EOF"};
    auto value = parse_json(body);
    if (!value.ok()) co_return Error{Code::invalid, "Request decode failed: " + value.error().message};
    if (!value->is_object()) co_return Error{Code::invalid, "Request decode failed: the body must be a JSON object"};
    co_return plain_keys(*value, false).as_object();
}

} // namespace orrery::api::consul
