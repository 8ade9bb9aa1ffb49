#include "api/cluster_call.h"
#include "api/problem.h"
#include "api/state.h"
#include "core/log.h"
#include "gslb/cluster.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

/// The webhook protocol of ExternalDNS, we as the provider: a Kubernetes cluster says where its services are, and they become
/// Members. Who knows the token in the path is the cluster.
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
    Error error{Code::unsupported, "there is no such version of the protocol here"};
    error.fields.push_back({"Accept", fmt::format("must be {}", webhook_type)});
    return error;
}
Result<Unit> check_content_type(const net::Headers& headers) {
    if (plain_type(headers.get("Content-Type")) == webhook_type) return Unit{};
    Error error{Code::unsupported, "the body is of another type than is taken here"};
    error.fields.push_back({"Content-Type", fmt::format("must be {}", webhook_type)});
    return error;
}

Task<Unit> send_webhook(Call& call, const json::value& value) {
    net::Headers headers;
    headers.set("Content-Type", std::string(webhook_type));
    headers.set("Vary", "Content-Type");
    co_return co_await call.out.send(call.ctx, {200, std::move(headers), json::serialize(value)});
}

/// The cluster whose URL it is. Whether the name or the token is wrong is not said.
Result<Object> cluster_of(Api::State& state, const Call& call) {
    const Error nobody{Code::not_found, "there is no such cluster", "use the URL that was shown when the Cluster was made"};
    const auto& kind = *state.resources.registry().find("Cluster");
    auto cluster = state.resources.get(kind, call.name());
    if (!cluster.ok()) return nobody;
    const auto kept = state.resources.reveal(kind, call.name(), "spec.token");
    if (!kept.ok() || !gslb::same_secret(call.path.at("token"), *kept)) return nobody;
    return cluster;
}

/// What is not the sender's fault it shall try again: anything but 5xx ends ExternalDNS.
Error to_be_retried(const Context& ctx, const std::string& cluster, Error error) {
    if (error.code == Code::invalid || error.code == Code::too_large || error.code == Code::unsupported) return error;
    log::warn(ctx, "Cluster {}: what its ExternalDNS sent was not taken: {}", cluster, error.text());
    error.code = Code::unavailable;
    error.fields.clear();
    return error;
}

enum class Webhook { domains, records, change, adjust };
using Busy = std::shared_ptr<std::set<std::string>>; ///< clusters that are being changed by this server

/// Changes, one after another for each cluster. Other servers are told apart by the claim that every write carries.
Task<Unit> change_cluster(ClusterCall& at, Context ctx, Busy busy, std::string name, gslb::ClusterChanges changes) {
    if (!busy->insert(name).second) co_return Error{Code::unavailable, "changes of the same cluster are under way", "try again"};
    struct Leave {
        std::set<std::string>& all;
        const std::string& one;
        ~Leave() { all.erase(one); }
    } leave{*busy, name};
    CO_TRY(std::ignore, co_await ClusterCall::claim(at, ctx));
    CO_TRY(std::ignore, at.load());
    co_return co_await ClusterCall::change(at, ctx, std::move(changes));
}

Task<Unit> webhook(Api::State& state, Busy busy, Call call, Webhook what) {
    CO_TRY(auto cluster, cluster_of(state, call));
    call.ctx = call.ctx.with_actor(fmt::format("cluster/{}", cluster.name));
    call.request.actor = call.ctx.actor();
    CO_TRY(std::ignore, check_accept(call.request.headers));
    const auto name = cluster.name;
    ClusterCall at(state, std::move(cluster));
    if (what == Webhook::domains) {
        json::array filters;
        for (const auto& domain : at.domains()) filters.emplace_back(domain);
        co_return co_await send_webhook(call, json::object{{"filters", std::move(filters)}});
    }
    if (what == Webhook::records) {
        // Who is asked has nothing to change where all records are as they should be, though a change was cut off after them.
        if (at.is_cut_off() && !busy->contains(name)) {
            ClusterCall rest(state, at.cluster());
            if (const auto done = co_await change_cluster(rest, call.ctx, busy, name, {}); !done.ok())
                log::info(call.ctx, "Cluster {}: what was cut off is not put right yet: {}", name, done.error().text());
        }
        if (auto loaded = at.load(); !loaded.ok()) co_return to_be_retried(call.ctx, name, std::move(loaded).error());
        co_return co_await send_webhook(call, at.shown());
    }
    CO_TRY(std::ignore, check_content_type(call.request.headers));
    CO_TRY(const auto body, co_await net::read_all(call.ctx, call.body, state.options.max_body));
    if (what == Webhook::adjust) {
        CO_TRY(auto endpoints, gslb::read_cluster_endpoints(body));
        auto kept = co_await ClusterCall::adjust(at, call.ctx, std::move(endpoints));
        if (!kept.ok()) co_return to_be_retried(call.ctx, name, std::move(kept).error());
        co_return co_await send_webhook(call, std::move(*kept));
    }
    CO_TRY(auto changes, gslb::read_cluster_changes(body));
    if (auto done = co_await change_cluster(at, call.ctx, busy, name, std::move(changes)); !done.ok())
        co_return to_be_retried(call.ctx, name, std::move(done).error());
    co_return co_await call.out.send(call.ctx, {204, {}, ""});
}

/// A cluster that is no more takes nothing back itself.
Task<Unit> forget_cluster(Api::State& state, Busy busy, Call call) {
    const auto& kind = *state.resources.registry().find("Cluster");
    CO_TRY(auto cluster, state.resources.get(kind, call.name()));
    const auto name = cluster.name;
    ClusterCall at(state, std::move(cluster));
    CO_TRY(std::ignore, at.load());
    auto all = at.everything();
    const auto many = all.take.size();
    ClusterCall again(state, at.cluster());
    CO_TRY(std::ignore, co_await change_cluster(again, call.ctx, busy, name, std::move(all)));
    co_return co_await send_json(call, 200, json::object{{"removed", many}});
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
    add("GET", "", "The domains that a cluster may say something about", Webhook::domains, 200);
    add("GET", "/", "The same", Webhook::domains, 200);
    add("GET", "/records", "The records of a cluster, as its ExternalDNS gave them", Webhook::records, 200);
    add("POST", "/records", "Create, update and delete records of a cluster", Webhook::change, 204);
    add("POST", "/adjustendpoints", "Which of these a cluster may have", Webhook::adjust, 200);
    state.router.add({.method = "POST",
                      .pattern = "/v1/clusters/{name}/forget",
                      .summary = "Take back all records and members of a cluster, for one that is no more",
                      .group = "load balancing",
                      .role = Role::operator_,
                      .kind = state.resources.registry().find("Cluster"),
                      .response = {{"type", "object"}},
                      .status = 200,
                      .handler = [of, busy](Call call) { return forget_cluster(*of, busy, std::move(call)); }});
}

} // namespace orrery::api
