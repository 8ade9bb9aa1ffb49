#include "api/cluster_call.h"

#include "core/side_by_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace orrery::api {

namespace {

using gslb::ClusterEndpoint;
using resource::Object;

constexpr std::string_view made_label = "made-for"; ///< of pools and load balancers that go with their last member
constexpr std::string_view member_label = "externaldns";
/// Writes that wait go to disk together: so many at once cost little more than one.
constexpr std::size_t writes_at_once = 64;

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
bool was_made(const Object& object) {
    const auto label = object.labels.find(std::string(made_label));
    return label != object.labels.end() && label->second == member_label;
}

/// Makes each, many at a time; the first error that came, after which no other is begun.
template <class Make> Task<Unit> all_of(std::size_t count, Make make) {
    std::optional<Error> first;
    const auto one = [&](std::size_t i) -> asio::awaitable<void> {
        if (first) co_return;
        auto done = co_await make(i);
        if (!done.ok() && !first) first = std::move(done).error();
    };
    CO_TRY(std::ignore, co_await side_by_side(count, writes_at_once, one));
    if (first) co_return std::move(*first);
    co_return Unit{};
}

} // namespace

ClusterCall::ClusterCall(Api::State& state, Object cluster)
    : state_(state),
      cluster_(std::move(cluster)),
      domains_(spec_texts(cluster_.spec, "domains")),
      records_(kind("ClusterRecord")),
      members_(kind("Member")),
      pools_(kind("Pool")),
      balancers_(kind("LoadBalancer")) {}

resource::WriteOptions ClusterCall::options() const {
    resource::WriteOptions out;
    if (claimed_) out.fence = &*claimed_;
    return out;
}

Result<Unit> ClusterCall::load() {
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

bool ClusterCall::is_whole(const std::string& host) const {
    const auto members = wanted(host);
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& one) { return state_.resources.exists(members_, one.first); });
}

json::array ClusterCall::shown() const {
    std::map<std::string, bool> whole;
    json::array out;
    for (const auto& [name, endpoint] : standing_) {
        if (endpoint.is_address()) {
            const auto [at, fresh] = whole.try_emplace(endpoint.name, true);
            if (fresh) at->second = is_whole(endpoint.name);
            if (!at->second) continue;
        }
        out.emplace_back(endpoint.as_given);
    }
    return out;
}

gslb::ClusterChanges ClusterCall::everything() const {
    gslb::ClusterChanges out;
    for (const auto& [name, endpoint] : standing_) out.take.push_back(endpoint);
    return out;
}

Task<Unit> ClusterCall::claim(ClusterCall& at, Context ctx) {
    auto& resources = at.state_.resources;
    CO_TRY(std::ignore, co_await resources.store().catch_up(ctx));
    CO_TRY(at.cluster_, resources.get(at.kind("Cluster"), at.cluster_.name));
    auto status = at.cluster_.status;
    const auto* before = status.if_contains("changes");
    status["changes"] = (before != nullptr && before->is_int64() ? before->get_int64() : 0) + 1;
    CO_TRY(auto done, co_await resources.set_status(ctx, at.kind("Cluster"), at.cluster_.name, std::move(status),
                                                    {.if_revision = at.cluster_.revision}));
    at.cluster_ = std::move(done.object);
    at.claimed_ = store::Fence::unwritten(at.cluster_.key(at.kind("Cluster")), at.cluster_.revision);
    co_return Unit{};
}

Task<Unit> ClusterCall::change(ClusterCall& at, Context ctx, gslb::ClusterChanges changes) {
    std::set<std::string> hosts, gone;
    std::map<std::string, ClusterEndpoint> fresh;
    const auto goes = [&](const ClusterEndpoint& endpoint) {
        const auto name = endpoint.record_name(at.cluster_.name);
        if (endpoint.is_address()) hosts.insert(endpoint.name);
        at.of_host_[endpoint.name].erase(name);
        gone.insert(name);
        at.standing_.erase(name);
    };
    // Addresses that were cut off on their way in are not shown, and so nobody takes them back.
    std::vector<ClusterEndpoint> halves;
    for (const auto& [host, names] : at.of_host_)
        if (!at.is_whole(host))
            for (const auto& name : names) halves.push_back(at.standing_.at(name));
    for (const auto& endpoint : halves) goes(endpoint);
    for (const auto& endpoint : changes.take)
        if (at.standing_.contains(endpoint.record_name(at.cluster_.name))) goes(endpoint);
    std::size_t place = 0;
    for (auto& endpoint : changes.put) {
        const auto here = place++;
        if (const auto refused = gslb::cluster_refusal(endpoint, at.domains_); !refused.empty()) {
            Error error{Code::invalid, "a record cannot be had"};
            error.fields.push_back({fmt::format("{} {}", endpoint.name, endpoint.type), refused});
            error.remedy = fmt::format("record {} of those to be created or updated; POST /adjustendpoints leaves it out", here);
            co_return error;
        }
        const auto name = endpoint.record_name(at.cluster_.name);
        gone.erase(name);
        if (endpoint.is_address()) hosts.insert(endpoint.name);
        at.stands(name, endpoint);
        fresh.insert_or_assign(name, std::move(endpoint));
    }
    if (at.standing_.size() > gslb::most_cluster_records)
        co_return Error{Code::too_large, fmt::format("the cluster would have {} records, and {} is the most", at.standing_.size(),
                                                     gslb::most_cluster_records)};
    const std::vector<std::pair<std::string, ClusterEndpoint>> come(fresh.begin(), fresh.end());
    CO_TRY(
        std::ignore, co_await all_of(come.size(), [&](std::size_t i) {
            const auto& [name, endpoint] = come[i];
            return put(
                at, ctx, at.records_, name, {},
                {{"cluster", at.cluster_.name}, {"fqdn", endpoint.name}, {"type", endpoint.type}, {"endpoint", endpoint.as_given}});
        }));
    const std::vector<std::string> touched(hosts.begin(), hosts.end()), leave(gone.begin(), gone.end());
    CO_TRY(std::ignore, co_await all_of(touched.size(), [&](std::size_t i) { return set_members(at, ctx, touched[i]); }));
    CO_TRY(std::ignore, co_await all_of(leave.size(), [&](std::size_t i) { return remove(at, ctx, at.records_, leave[i]); }));
    auto status = at.cluster_.status;
    status["records"] = at.standing_.size();
    status["changed_at"] = to_rfc3339(at.state_.clock.wall());
    CO_TRY(std::ignore, co_await at.state_.resources.set_status(ctx, at.kind("Cluster"), at.cluster_.name, std::move(status),
                                                                {.if_revision = at.cluster_.revision}));
    co_return Unit{};
}

Task<json::array> ClusterCall::adjust(ClusterCall& at, Context ctx, std::vector<ClusterEndpoint> endpoints) {
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
        CO_TRY(std::ignore,
               co_await at.state_.resources.set_status(ctx, at.kind("Cluster"), at.cluster_.name, std::move(status), {}));
    }
    co_return kept;
}

void ClusterCall::stands(const std::string& name, ClusterEndpoint endpoint) {
    if (endpoint.is_address()) of_host_[endpoint.name].insert(name);
    standing_.insert_or_assign(name, std::move(endpoint));
}

std::map<std::string, std::vector<std::string>> ClusterCall::wanted(const std::string& host) const {
    std::vector<ClusterEndpoint> of_host;
    if (const auto names = of_host_.find(host); names != of_host_.end())
        for (const auto& name : names->second) of_host.push_back(standing_.at(name));
    return gslb::cluster_members(cluster_.name, host, of_host);
}

Task<Unit> ClusterCall::put(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name, json::object labels,
                            json::object spec) {
    const bool there = at.state_.resources.exists(kind, name);
    CO_TRY(auto object, resource::read_object(
                            kind, name, json::object{{"name", name}, {"labels", std::move(labels)}, {"spec", std::move(spec)}}));
    if (there) {
        CO_TRY(std::ignore, co_await at.state_.resources.replace(std::move(ctx), kind, std::move(object), at.options()));
    } else {
        CO_TRY(std::ignore, co_await at.state_.resources.create(std::move(ctx), kind, std::move(object), at.options()));
    }
    co_return Unit{};
}

/// What is gone already is well.
Task<Unit> ClusterCall::remove(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name) {
    auto done = co_await at.state_.resources.remove(std::move(ctx), kind, std::move(name), at.options());
    if (!done.ok() && done.error().code != Code::not_found) co_return std::move(done).error();
    co_return Unit{};
}

Result<std::vector<Object>> ClusterCall::listed(const resource::Kind& kind, std::string field, std::string value) const {
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

Task<Unit> ClusterCall::set_members(ClusterCall& at, Context ctx, std::string host) {
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
            CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.members_, std::move(object), at.options()));
        } else if (spec_texts(found->second->spec, "addresses") != addresses) {
            // What people said of it stays.
            const json::object patch{{"spec", json::object{{"addresses", wanted}}}};
            CO_TRY(std::ignore, co_await at.state_.resources.patch(ctx, at.members_, name, patch, at.options()));
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
Task<Unit> ClusterCall::furnish(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool) {
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
    json::object spec{
        {"fqdn", host}, {"zone", gslb::cluster_domain(host, at.domains_)}, {"pools", json::array{json::object{{"pool", pool}}}}};
    for (const auto& name : at.of_host_[host])
        if (const auto ttl = at.standing_.at(name).ttl; ttl > 0) spec["ttl"] = json::object{{"max", fmt::format("{}s", ttl)}};
    CO_TRY(auto object,
           resource::read_object(at.balancers_, pool, json::object{{"name", pool}, {"labels", labels}, {"spec", std::move(spec)}}));
    CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.balancers_, std::move(object), at.options()));
    co_return Unit{};
}

/// After the last member: what was made for it goes, unless somebody uses it otherwise.
Task<Unit> ClusterCall::clear(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool) {
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

} // namespace orrery::api
