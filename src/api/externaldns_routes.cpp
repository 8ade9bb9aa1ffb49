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

using gslb::ClusterEndpoint;
using resource::Object;

constexpr std::string_view webhook_type = "application/external.dns.webhook+json;version=1";
constexpr std::string_view made_label = "made-for"; ///< of pools and load balancers that go with their last member
constexpr std::string_view member_label = "externaldns";

std::string spec_text(const json::object& spec, std::string_view key) {
    const auto* value = spec.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}
std::vector<std::string> spec_texts(const json::object& spec, std::string_view key) {
    std::vector<std::string> out;
    if (const auto* value = spec.if_contains(key); value != nullptr && value->is_array())
        for (const auto& item : value->get_array())
            if (item.is_string()) out.emplace_back(std::string_view(item.get_string()));
    return out;
}

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

/// One request of one cluster.
class ClusterCall {
public:
    ClusterCall(Api::State& state, Object cluster)
        : state_(state),
          cluster_(std::move(cluster)),
          domains_(spec_texts(cluster_.spec, "domains")),
          records_(kind("ClusterRecord")),
          members_(kind("Member")),
          pools_(kind("Pool")),
          balancers_(kind("LoadBalancer")) {}

    const std::vector<std::string>& domains() const { return domains_; }

    Result<Unit> load() {
        resource::ListQuery query;
        query.fields = {{"cluster", cluster_.name}};
        query.limit = 5000;
        do {
            TRY(const auto page, state_.resources.list(records_, query));
            for (const auto& record : page.records) {
                TRY(const auto object, resource::from_stored(*record));
                if (const auto* kept = object.spec.if_contains("endpoint")) {
                    TRY(auto endpoint, gslb::read_cluster_endpoint(*kept, object.name));
                    stands(object.name, std::move(endpoint));
                }
            }
            query.after = page.next;
        } while (!query.after.empty());
        return Unit{};
    }

    /// As they were given. Addresses whose members somebody removed are not there: then they are sent again.
    json::array shown() const {
        std::map<std::string, bool> whole;
        json::array out;
        for (const auto& [name, endpoint] : standing_) {
            if (endpoint.is_address()) {
                const auto [at, fresh] = whole.try_emplace(endpoint.name, true);
                if (fresh)
                    for (const auto& [member, addresses] : wanted(endpoint.name))
                        at->second = at->second && state_.resources.exists(members_, member);
                if (!at->second) continue;
            }
            out.emplace_back(endpoint.as_given);
        }
        return out;
    }

    /// Members first, then records: whatever is cut off in between is sent again, and does no harm.
    static Task<Unit> change(ClusterCall& at, Context ctx, gslb::ClusterChanges changes) {
        std::set<std::string> hosts, gone;
        std::map<std::string, ClusterEndpoint> fresh;
        for (const auto& endpoint : changes.take) {
            const auto name = endpoint.record_name(at.cluster_.name);
            if (at.standing_.erase(name) == 0) continue;
            at.of_host_[endpoint.name].erase(name);
            gone.insert(name);
            if (endpoint.is_address()) hosts.insert(endpoint.name);
        }
        std::size_t place = 0;
        for (auto& endpoint : changes.put) {
            const auto here = place++;
            if (const auto refused = gslb::cluster_refusal(endpoint, at.domains_); !refused.empty()) {
                Error error{Code::invalid, "a record cannot be had"};
                error.fields.push_back({fmt::format("{} {}", endpoint.name, endpoint.type), refused});
                error.remedy =
                    fmt::format("record {} of those to be created or updated; POST /adjustendpoints leaves it out", here);
                co_return error;
            }
            const auto name = endpoint.record_name(at.cluster_.name);
            gone.erase(name);
            if (endpoint.is_address()) hosts.insert(endpoint.name);
            at.stands(name, endpoint);
            fresh.insert_or_assign(name, std::move(endpoint));
        }
        if (at.standing_.size() > gslb::most_cluster_records)
            co_return Error{Code::too_large, fmt::format("the cluster would have {} records, and {} is the most",
                                                         at.standing_.size(), gslb::most_cluster_records)};
        for (const auto& host : hosts) {
            CO_TRY(std::ignore, co_await set_members(at, ctx, host));
        }
        for (const auto& [name, endpoint] : fresh) {
            const json::object spec{
                {"cluster", at.cluster_.name}, {"fqdn", endpoint.name}, {"type", endpoint.type}, {"endpoint", endpoint.as_given}};
            CO_TRY(std::ignore, co_await put(at, ctx, at.records_, name, {}, spec));
        }
        for (const auto& name : gone) {
            CO_TRY(std::ignore, co_await remove(at, ctx, at.records_, name));
        }
        auto status = at.cluster_.status;
        status["records"] = at.standing_.size();
        status["changed_at"] = to_rfc3339(at.state_.clock.wall());
        co_return co_await at.set_status(std::move(ctx), std::move(status));
    }

    /// What it may have of these; the rest is said in its status.
    static Task<json::array> adjust(ClusterCall& at, Context ctx, std::vector<ClusterEndpoint> endpoints) {
        json::array kept, left_out;
        for (auto& endpoint : endpoints) {
            const auto refused = gslb::cluster_refusal(endpoint, at.domains_);
            if (refused.empty())
                kept.emplace_back(std::move(endpoint.as_given));
            else if (left_out.size() < 20)
                left_out.emplace_back(fmt::format("{} {}: {}", endpoint.name, endpoint.type, refused));
        }
        auto status = at.cluster_.status;
        const auto* before = status.if_contains("left_out");
        if (before == nullptr ? !left_out.empty() : *before != left_out) {
            status["left_out"] = std::move(left_out);
            CO_TRY(std::ignore, co_await at.set_status(std::move(ctx), std::move(status)));
        }
        co_return kept;
    }

private:
    const resource::Kind& kind(std::string_view name) const { return *state_.resources.registry().find(name); }

    Task<Unit> set_status(Context ctx, json::object status) {
        CO_TRY(std::ignore,
               co_await state_.resources.set_status(std::move(ctx), kind("Cluster"), cluster_.name, std::move(status), {}));
        co_return Unit{};
    }

    void stands(const std::string& name, ClusterEndpoint endpoint) {
        if (endpoint.is_address()) of_host_[endpoint.name].insert(name);
        standing_.insert_or_assign(name, std::move(endpoint));
    }

    std::map<std::string, std::vector<std::string>> wanted(const std::string& host) const {
        std::vector<ClusterEndpoint> of_host;
        if (const auto names = of_host_.find(host); names != of_host_.end())
            for (const auto& name : names->second) of_host.push_back(standing_.at(name));
        return gslb::cluster_members(cluster_.name, host, of_host);
    }

    static Task<Unit> put(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name, json::object labels,
                          json::object spec) {
        const bool there = at.state_.resources.exists(kind, name);
        CO_TRY(auto object,
               resource::read_object(kind, name,
                                     json::object{{"name", name}, {"labels", std::move(labels)}, {"spec", std::move(spec)}}));
        if (there) {
            CO_TRY(std::ignore, co_await at.state_.resources.replace(std::move(ctx), kind, std::move(object), {}));
        } else {
            CO_TRY(std::ignore, co_await at.state_.resources.create(std::move(ctx), kind, std::move(object), {}));
        }
        co_return Unit{};
    }
    /// What is gone already is well.
    static Task<Unit> remove(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name) {
        auto done = co_await at.state_.resources.remove(std::move(ctx), kind, std::move(name), {});
        if (!done.ok() && done.error().code != Code::not_found) co_return std::move(done).error();
        co_return Unit{};
    }

    Result<std::vector<Object>> listed(const resource::Kind& kind, std::string field, std::string value) const {
        resource::ListQuery query;
        query.fields = {{std::move(field), std::move(value)}};
        query.limit = 5000;
        TRY(const auto page, state_.resources.list(kind, query));
        std::vector<Object> out;
        for (const auto& record : page.records) {
            TRY(auto object, resource::from_stored(*record));
            out.push_back(std::move(object));
        }
        return out;
    }
    static bool was_made(const Object& object) {
        const auto label = object.labels.find(std::string(made_label));
        return label != object.labels.end() && label->second == member_label;
    }

    static Task<Unit> set_members(ClusterCall& at, Context ctx, std::string host) {
        const auto pool = gslb::cluster_pool_name(host);
        const auto members = at.wanted(host);
        if (!members.empty()) {
            CO_TRY(std::ignore, co_await furnish(at, ctx, host, pool));
        }
        CO_TRY(const auto standing, at.listed(at.members_, "pool", pool));
        std::size_t others = 0;
        std::map<std::string, const Object*> ours;
        for (const auto& member : standing) {
            const auto label = member.labels.find(std::string(member_label));
            if (label != member.labels.end() && label->second == at.cluster_.name)
                ours.emplace(member.name, &member);
            else
                ++others;
        }
        for (const auto& [name, addresses] : members) {
            const json::array wanted(addresses.begin(), addresses.end());
            const auto found = ours.find(name);
            if (found == ours.end()) {
                CO_TRY(auto object,
                       resource::read_object(at.members_, name,
                                             json::object{{"name", name},
                                                          {"labels", json::object{{member_label, at.cluster_.name}}},
                                                          {"spec", json::object{{"pool", pool},
                                                                                {"addresses", wanted},
                                                                                {"site", spec_text(at.cluster_.spec, "site")}}}}));
                CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.members_, std::move(object), {}));
            } else if (spec_texts(found->second->spec, "addresses") != addresses) {
                // What people said of it stays.
                const json::object patch{{"spec", json::object{{"addresses", wanted}}}};
                CO_TRY(std::ignore, co_await at.state_.resources.patch(ctx, at.members_, name, patch, {}));
            }
        }
        for (const auto& [name, member] : ours)
            if (!members.contains(name)) {
                CO_TRY(std::ignore, co_await remove(at, ctx, at.members_, name));
            }
        if (members.empty() && others == 0) {
            CO_TRY(std::ignore, co_await clear(at, ctx, host, pool));
        }
        co_return Unit{};
    }

    /// The pool and the load balancer of a host name, where there are none.
    static Task<Unit> furnish(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool) {
        const json::object labels{{made_label, member_label}};
        if (!at.state_.resources.exists(at.pools_, pool)) {
            json::array monitors;
            for (const auto& monitor : spec_texts(at.cluster_.spec, "monitors")) monitors.emplace_back(monitor);
            CO_TRY(std::ignore, co_await put(at, ctx, at.pools_, pool, labels,
                                             {{"description", fmt::format("{}, from Kubernetes clusters", host)},
                                              {"min_healthy", 1},
                                              {"monitors", std::move(monitors)}}));
        }
        CO_TRY(const auto balancers, at.listed(at.balancers_, "fqdn", host));
        if (!balancers.empty()) co_return Unit{};
        json::object spec{{"fqdn", host},
                          {"zone", gslb::cluster_domain(host, at.domains_)},
                          {"pools", json::array{json::object{{"pool", pool}}}}};
        for (const auto& name : at.of_host_[host])
            if (const auto ttl = at.standing_.at(name).ttl; ttl > 0) spec["ttl"] = json::object{{"max", fmt::format("{}s", ttl)}};
        CO_TRY(auto object, resource::read_object(at.balancers_, pool,
                                                  json::object{{"name", pool}, {"labels", labels}, {"spec", std::move(spec)}}));
        CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.balancers_, std::move(object), {}));
        co_return Unit{};
    }

    /// After the last member: what was made for it goes, unless somebody uses it otherwise.
    static Task<Unit> clear(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool) {
        CO_TRY(const auto balancers, at.listed(at.balancers_, "fqdn", host));
        for (const auto& balancer : balancers)
            if (was_made(balancer)) {
                CO_TRY(std::ignore, co_await remove(at, ctx, at.balancers_, balancer.name));
            }
        const auto found = at.state_.resources.get(at.pools_, pool);
        if (!found.ok() || !was_made(*found)) co_return Unit{};
        auto removed = co_await remove(at, ctx, at.pools_, pool);
        if (!removed.ok() && removed.error().code != Code::conflict) co_return removed;
        co_return Unit{};
    }

    Api::State& state_;
    Object cluster_;
    std::vector<std::string> domains_;
    const resource::Kind &records_, &members_, &pools_, &balancers_;
    std::map<std::string, ClusterEndpoint> standing_;      ///< by the record's name
    std::map<std::string, std::set<std::string>> of_host_; ///< addresses: the records of a host name
};

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

Task<Unit> webhook(Api::State& state, std::shared_ptr<std::set<std::string>> busy, Call call, Webhook what) {
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
    if (!busy->insert(name).second) co_return Error{Code::unavailable, "changes of the same cluster are under way", "try again"};
    struct Leave {
        std::set<std::string>& all;
        const std::string& one;
        ~Leave() { all.erase(one); }
    } leave{*busy, name};
    if (auto loaded = at.load(); !loaded.ok()) co_return to_be_retried(call.ctx, name, std::move(loaded).error());
    if (auto done = co_await ClusterCall::change(at, call.ctx, std::move(changes)); !done.ok())
        co_return to_be_retried(call.ctx, name, std::move(done).error());
    co_return co_await call.out.send(call.ctx, {204, {}, ""});
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
}

} // namespace orrery::api
