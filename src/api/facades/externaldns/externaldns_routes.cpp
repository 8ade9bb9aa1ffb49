#include "api/facades/externaldns/externaldns_request.h"
#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"
#include "gslb/observe/externaldns_source.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

/// The webhook provider protocol of ExternalDNS: the endpoints of a Kubernetes cluster become Members. The token in the path
/// authenticates the cluster.
namespace orrery::api {

namespace {

using resource::Object;

constexpr std::string_view webhook_type = "application/external.dns.webhook+json;version=1";

/// "Application/X; version=1" gives "application/x;version=1".
std::string plain_type(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c != ' ' && c != '\t' && c != '"') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
}
Result<Unit> check_accept(const net::Headers& headers) {
    const auto accept = plain_type(headers.get("Accept"));
    if (accept.empty()) return Unit{};
    for (std::size_t start = 0; start <= accept.size();) {
        const auto end = std::min(accept.find(',', start), accept.size());
        auto one = std::string_view(accept).substr(start, end - start);
        start = end + 1;
        if (const auto quality = one.find(";q="); quality != std::string_view::npos) one = one.substr(0, quality);
        if (one == "*/*" || one == "application/*" || one == webhook_type) return Unit{};
    }
    Error error{Code::unsupported, "unsupported version of the webhook protocol"};
    error.fields.push_back({"Accept", fmt::format("must be {}", webhook_type)});
    return error;
}
Result<Unit> check_content_type(const net::Headers& headers) {
    if (plain_type(headers.get("Content-Type")) == webhook_type) return Unit{};
    Error error{Code::unsupported, "unsupported content type"};
    error.fields.push_back({"Content-Type", fmt::format("must be {}", webhook_type)});
    return error;
}

Task<Unit> send_webhook(Call& call, const json::value& value) {
    net::Headers headers;
    headers.set("Content-Type", std::string(webhook_type));
    headers.set("Vary", "Content-Type");
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), json::serialize(value)});
}

/// The cluster of the URL. The error does not reveal whether the name or the token is wrong.
Result<Object> cluster_of(Api::State& state, const Call& call) {
    const Error unknown{Code::not_found, "no such cluster", "use the URL that was shown when the Cluster was created"};
    const auto& kind = *state.resources.registry().find("Cluster");
    auto cluster = state.resources.get(kind, call.name());
    if (!cluster.ok()) return unknown;
    const auto kept = state.resources.reveal(kind, call.name(), "spec.token");
    if (!kept.ok() || !gslb::same_secret(call.path.at("token"), *kept)) return unknown;
    return cluster;
}

/// Turns errors of the server into 503: ExternalDNS retries after 5xx and exits after any other error.
Error as_retryable(const Context& ctx, const std::string& cluster, Error error) {
    if (error.code == Code::invalid || error.code == Code::too_large || error.code == Code::unsupported) return error;
    log::warn(ctx, "ExternalDNS request failed: cluster={} error={}", cluster, error.text());
    error.code = Code::unavailable;
    error.fields.clear();
    return error;
}

enum class Webhook { domains, records, change, adjust };
using Busy = std::shared_ptr<std::set<std::string>>; ///< clusters that this server is changing

/// Applies changes, one request at a time for each cluster. The fence of `claim` excludes other servers.
Task<Unit> change_cluster(ExternalDnsRequest& at, Context ctx, Busy busy, std::string name, gslb::ClusterChanges changes) {
    if (!busy->insert(name).second) co_return Error{Code::unavailable, "another change of this cluster is in progress", "retry"};
    struct Leave {
        std::set<std::string>& all;
        const std::string& one;
        ~Leave() { all.erase(one); }
    } leave{*busy, name};
    CO_TRY(std::ignore, co_await ExternalDnsRequest::claim(at, ctx));
    CO_TRY(std::ignore, at.load());
    co_return co_await ExternalDnsRequest::change(at, ctx, std::move(changes));
}

Task<Unit> webhook(Api::State& state, Busy busy, Call call, Webhook what) {
    CO_TRY(auto cluster, cluster_of(state, call));
    call.ctx = call.ctx.with_actor(fmt::format("cluster/{}", cluster.name));
    call.request.actor = call.ctx.actor();
    CO_TRY(std::ignore, check_accept(call.request.headers));
    const auto name = cluster.name;
    ExternalDnsRequest at(state, std::move(cluster));
    if (what == Webhook::domains) {
        json::array filters;
        for (const auto& domain : at.domains()) filters.emplace_back(domain);
        co_return co_await send_webhook(call, json::object{{"filters", std::move(filters)}});
    }
    if (what == Webhook::records) {
        // Finish an interrupted change now: if all records are right, ExternalDNS will not send another.
        if (at.is_interrupted() && !busy->contains(name)) {
            ExternalDnsRequest rest(state, at.cluster());
            if (const auto done = co_await change_cluster(rest, call.ctx, busy, name, {}); !done.ok())
                log::info(call.ctx, "repair of an interrupted change failed: cluster={} error={}", name, done.error().text());
        }
        if (auto loaded = at.load(); !loaded.ok()) co_return as_retryable(call.ctx, name, std::move(loaded).error());
        co_return co_await send_webhook(call, at.shown());
    }
    CO_TRY(std::ignore, check_content_type(call.request.headers));
    CO_TRY(const auto body, co_await net::read_all(call.ctx, call.body, state.options.max_body));
    if (what == Webhook::adjust) {
        CO_TRY(auto endpoints, gslb::read_cluster_endpoints(body));
        auto kept = co_await ExternalDnsRequest::adjust(at, call.ctx, std::move(endpoints));
        if (!kept.ok()) co_return as_retryable(call.ctx, name, std::move(kept).error());
        co_return co_await send_webhook(call, std::move(*kept));
    }
    CO_TRY(auto changes, gslb::read_cluster_changes(body));
    if (auto done = co_await change_cluster(at, call.ctx, busy, name, std::move(changes)); !done.ok())
        co_return as_retryable(call.ctx, name, std::move(done).error());
    co_return co_await call.out.send(call.ctx, {204, {}, ""});
}

/// Removes the records of a cluster that no longer exists and cannot remove them itself.
Task<Unit> remove_cluster_records(Api::State& state, Busy busy, Call call) {
    const auto& kind = *state.resources.registry().find("Cluster");
    CO_TRY(auto cluster, state.resources.get(kind, call.name()));
    const auto name = cluster.name;
    ExternalDnsRequest at(state, std::move(cluster));
    CO_TRY(std::ignore, at.load());
    auto all = at.everything();
    const auto count = all.removed.size();
    ExternalDnsRequest again(state, at.cluster());
    CO_TRY(std::ignore, co_await change_cluster(again, call.ctx, busy, name, std::move(all)));
    co_return co_await send_json(call, 200, json::object{{"removed", count}});
}

} // namespace

void add_externaldns_routes(Api::State& state) {
    auto* of = &state;
    const auto busy = std::make_shared<std::set<std::string>>();
    const auto add = [&](std::string method, std::string tail, std::string summary, Webhook what, int status) {
        state.router.add({.method = std::move(method),
                          .pattern = fmt::format("{}{{name}}/{{token}}{}", externaldns_paths, tail),
                          .summary = std::move(summary),
                          .group = "ExternalDNS",
                          .role = Role::nobody,
                          .status = status,
                          .handler = [of, busy, what](Call call) { return webhook(*of, busy, std::move(call), what); }});
    };
    add("GET", "", "Show the domains of a cluster", Webhook::domains, 200);
    add("GET", "/", "Show the domains of a cluster", Webhook::domains, 200);
    add("GET", "/records", "List the records of a cluster as its ExternalDNS sent them", Webhook::records, 200);
    add("POST", "/records", "Create, update and delete records of a cluster", Webhook::change, 204);
    add("POST", "/adjustendpoints", "Filter the endpoints that a cluster may have", Webhook::adjust, 200);
    state.router.add({.method = "POST",
                      .pattern = "/v1/clusters/{name}/forget",
                      .summary = "Remove all records and members of a cluster that no longer exists",
                      .group = "load balancing",
                      .role = Role::operator_,
                      .kind = state.resources.registry().find("Cluster"),
                      .response = {{"type", "object"}},
                      .status = 200,
                      .handler = [of, busy](Call call) { return remove_cluster_records(*of, busy, std::move(call)); }});
}

} // namespace orrery::api
