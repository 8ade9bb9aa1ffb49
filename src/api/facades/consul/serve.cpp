#include "api/facades/consul/state.h"
#include "catalog/json_read.h"
#include "core/log.h"
#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace orrery::api::consul {

namespace {

using namespace std::chrono_literals;
using resource::Role;

std::vector<std::string> split_path(std::string_view path) {
    std::vector<std::string> out;
    while (!path.empty()) {
        const auto slash = path.find('/');
        out.emplace_back(path.substr(0, slash));
        if (slash == std::string_view::npos) break;
        path.remove_prefix(slash + 1);
        if (path.empty()) out.emplace_back(); // "a/" has an end of its own
    }
    return out;
}

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

std::string words_of(const Error& error) {
    auto out = error.message;
    for (const auto& field : error.fields) out += fmt::format("; {} {}", field.path, field.message);
    return out;
}

/// Counts a query while it waits.
class Waiting {
public:
    Waiting(View::State& state, std::string peer) : state_(state), peer_(std::move(peer)) {
        ++state_.blocked[peer_];
        ++state_.blocked_in_all;
    }
    ~Waiting() {
        --state_.blocked_in_all;
        if (const auto mine = state_.blocked.find(peer_); mine != state_.blocked.end() && --mine->second == 0)
            state_.blocked.erase(mine);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    View::State& state_;
    std::string peer_;
};

/// Keys in lower case without underscores, at every level: Consul takes both ways of writing them. What people chose themselves
/// (meta, headers) keeps its keys.
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

std::vector<std::string> Call::queries(std::string_view name) const {
    std::vector<std::string> all;
    for (const auto& [key, value] : request.target.query)
        if (key == name) all.push_back(value);
    return all;
}

resource::WriteOptions Writer::options(std::optional<Revision> if_revision) const {
    return {.if_revision = if_revision, .because = peer.empty() ? "" : "through the Consul view, from " + peer};
}

void View::State::add(std::string method, std::string_view pattern, std::function<Task<Unit>(Call&)> handler) {
    const auto role = method == "GET" ? Role::viewer : Role::operator_;
    routes.push_back({std::move(method), split_path(pattern), role, std::move(handler)});
}

Result<Role> View::State::role_of(const net::Request& request, std::string& actor, std::vector<std::string>& kinds) const {
    std::string token(request.headers.get("X-Consul-Token"));
    if (token.empty()) {
        constexpr std::string_view bearer = "Bearer ";
        const auto given = request.headers.get("Authorization");
        if (given.starts_with(bearer)) token = given.substr(bearer.size());
    }
    if (token.empty()) token = request.target.param("token").value_or("");
    if (token.empty()) {
        actor = "anonymous";
        return options.anonymous;
    }
    auto principal = identity.check_token(token);
    if (!principal.ok()) return Error{Code::denied, "ACL not found"};
    actor = principal->user;
    kinds = principal->kinds;
    return principal->role;
}

Task<Unit> View::State::serve(Context ctx, net::Request& request, net::BodyReader& body, net::ResponseWriter& out) {
    Call call{ctx, request, body, out, {}};
    const auto& path = request.target.path;
    if (!path.starts_with("/v1/")) {
        co_return co_await text(
            call, 404,
            path == "/"
                ? "Consul Agent: UI disabled. To enable, set ui_config.enabled=true in the agent configuration and restart.\n"
                : "404 page not found\n");
    }
    const auto words = split_path(std::string_view(path).substr(4));
    const Route* found = nullptr;
    std::vector<std::string> methods;
    for (const auto& route : routes) {
        std::vector<std::string> rest;
        std::size_t at = 0;
        bool fits = true;
        for (const auto& part : route.pattern) {
            if (part == "**") {
                rest.push_back(fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(at), words.end(), "/")));
                at = words.size();
                break;
            }
            if (at >= words.size() || (part != "*" && part != words[at])) {
                fits = false;
                break;
            }
            if (part == "*") rest.push_back(words[at]);
            ++at;
        }
        if (!fits || at != words.size()) continue;
        methods.push_back(route.method);
        if (route.method == request.method || (request.method == "HEAD" && route.method == "GET")) {
            found = &route;
            call.rest = std::move(rest);
            break;
        }
    }
    if (found == nullptr) {
        if (methods.empty()) co_return co_await text(call, 404, "Invalid URL path: not a recognized HTTP API endpoint");
        co_return co_await text(call, 405, fmt::format("method {} not allowed", request.method),
                                {{"Allow", fmt::format("OPTIONS,{}", fmt::join(methods, ","))}});
    }
    request.route = "/v1/" + fmt::format("{}", fmt::join(found->pattern, "/"));
    std::string actor;
    std::vector<std::string> kinds;
    const auto role = role_of(request, actor, kinds);
    if (!role.ok()) co_return co_await text(call, 403, role.error().message);
    if (*role < found->role)
        co_return co_await text(call, 403,
                                fmt::format("Permission denied: {} may not do this: it needs the role {}",
                                            actor == "anonymous" ? "a request without a token" : actor,
                                            resource::name_of(found->role)));
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), "Instance") == kinds.end())
        co_return co_await text(call, 403, "Permission denied: this token is limited to other kinds");
    request.actor = actor;
    call.ctx = ctx.with_actor(actor);
    if (const auto dc = call.query("dc"); !dc.empty() && dc != options.datacenter)
        co_return co_await text(call, 500, "No path to datacenter", {{"X-Consul-Index", "1"}});
    if (call.has("consistent")) {
        const auto caught_up = co_await resources.store().catch_up(ctx);
        if (!caught_up.ok()) co_return co_await text(call, 500, caught_up.error().message);
    }
    auto done = co_await found->handler(call);
    if (done.ok() || out.begun()) co_return std::move(done);
    if (done.error().code == Code::cancelled) co_return std::move(done);
    co_return co_await text(call, status_of(done.error()), words_of(done.error()));
}

Task<Unit> View::State::text(Call& call, int status, std::string body, net::Headers headers) {
    headers.add("Content-Type", "text/plain; charset=utf-8");
    headers.add("X-Consul-Default-Acl-Policy", options.anonymous >= Role::operator_ ? "allow" : "deny");
    co_return co_await call.out.send(call.ctx, net::Response{status, std::move(headers), std::move(body)});
}

Task<Unit> View::State::nothing(Call& call) {
    co_return co_await call.out.send(
        call.ctx,
        net::Response{200, {{"X-Consul-Default-Acl-Policy", options.anonymous >= Role::operator_ ? "allow" : "deny"}}, ""});
}

Task<Unit> View::State::answer(Call& call, json::value value, int status, net::Headers headers) {
    headers.add("Content-Type", "application/json");
    headers.add("Vary", "Accept-Encoding");
    headers.add("X-Consul-Default-Acl-Policy", options.anonymous >= Role::operator_ ? "allow" : "deny");
    auto body = call.has("pretty") ? to_pretty_json(value) + "\n" : to_json_text(value);
    co_return co_await call.out.send(call.ctx, net::Response{status, std::move(headers), std::move(body)});
}

Task<std::string> View::State::body_of(Call& call, std::size_t limit) {
    auto body = co_await net::read_all(call.ctx, call.body, limit);
    if (!body.ok() && body.error().code == Code::too_large)
        co_return Error{Code::too_large, fmt::format("Request body too large, max size: {} bytes.", limit)};
    co_return std::move(body);
}

Task<json::object> View::State::object_of(Call& call) {
    CO_TRY(const auto body, co_await body_of(call, max_body));
    if (body.empty()) co_return Error{Code::invalid, "Request decode failed: EOF"};
    auto value = parse_json(body);
    if (!value.ok()) co_return Error{Code::invalid, "Request decode failed: " + value.error().message};
    if (!value->is_object()) co_return Error{Code::invalid, "Request decode failed: the body must be a JSON object"};
    co_return plain_keys(*value, false).as_object();
}

Task<Unit> View::State::read(Call& call, Reading reading) {
    std::uint64_t asked = 0;
    if (const auto text_ = call.query("index"); !text_.empty()) {
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), asked);
        if (error != std::errc{} || end != text_.data() + text_.size()) co_return co_await text(call, 400, "Invalid index");
    }
    Duration wait = 5min;
    if (const auto text_ = call.query("wait"); !text_.empty()) {
        const auto parsed = parse_go_duration(text_);
        if (!parsed) co_return co_await text(call, 400, "Invalid wait time");
        if (*parsed > Duration::zero()) wait = std::min<Duration>(*parsed, 10min);
    }
    auto filter = Filter::parse(call.query("filter"));
    if (!filter.ok()) co_return co_await text(call, 500, filter.error().message);
    if (asked > 0 && static_cast<std::uint64_t>(reading.index()) <= asked) {
        const auto& peer = call.request.peer;
        const auto mine = blocked.contains(peer) ? blocked.at(peer) : 0;
        if (blocked_in_all >= options.max_blocked || mine >= std::max<std::size_t>(1, options.max_blocked / 4))
            co_return co_await text(
                call, 429,
                fmt::format("Too many blocking queries wait already: {} of {}, {} in all; ask without \"index\", or fewer at once",
                            mine, peer, blocked_in_all),
                {{"Retry-After", "5"}});
        const Waiting waiting(*this, peer);
        // So that many who wait do not all come at once.
        wait += Duration(std::uniform_int_distribution<std::int64_t>(0, wait.count() / 16)(random));
        const auto until = real_clock().steady() + wait;
        const auto ctx = call.ctx.without_deadline().with_deadline(until);
        call.out.will_wait();
        while (static_cast<std::uint64_t>(reading.index()) <= asked) {
            const auto woken = co_await kv.changed().wait(ctx);
            if (woken.ok()) continue;
            if (woken.error().code == Code::timeout) break;
            if (!call.out.stopping()) co_return woken.error(); // the client has gone
            break;
        }
    }
    const auto index = std::max<Revision>(1, reading.index());
    auto value = reading.make();
    filter->apply(value);
    net::Headers headers{
        {"X-Consul-Index", std::to_string(index)}, {"X-Consul-Knownleader", "true"}, {"X-Consul-Lastcontact", "0"}};
    if (reading.catalog)
        headers.add("X-Consul-Effective-Consistency", call.has("stale")        ? "stale"
                                                      : call.has("consistent") ? "consistent"
                                                                               : "leader");
    headers.add("X-Consul-Query-Backend", "blocking-query");
    if (reading.absent && reading.absent(value)) {
        headers.add("X-Consul-Default-Acl-Policy", options.anonymous >= Role::operator_ ? "allow" : "deny");
        co_return co_await call.out.send(call.ctx, net::Response{404, std::move(headers), ""});
    }
    co_return co_await answer(call, std::move(value), 200, std::move(headers));
}

} // namespace orrery::api::consul
