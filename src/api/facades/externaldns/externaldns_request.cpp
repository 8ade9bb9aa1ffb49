#include "api/facades/externaldns/externaldns_request.h"

#include "core/for_each_concurrent.h"
#include "core/json_fields.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace orrery::api {

namespace {

using gslb::ClusterEndpoint;
using resource::Object;

constexpr std::string_view generated_label = "made-for"; ///< of pools and load balancers that are removed with their last member
constexpr std::string_view member_label = "externaldns";
/// Concurrent writes share a group commit.
constexpr std::size_t max_concurrent_writes = 64;
constexpr std::size_t max_batch_changes = 100, max_batch_bytes = 1 << 20; // of a transaction

bool is_generated(const Object& object) {
    const auto label = object.labels.find(std::string(generated_label));
    return label != object.labels.end() && label->second == member_label;
}

/// One call of `all_of`. `first` and `make` are in its frame.
template <class Make> asio::awaitable<void> make_one(std::optional<Error>& first, Make& make, std::size_t i) {
    if (first) co_return;
    auto done = co_await make(i);
    if (done.ok() || first) co_return;
    first = std::move(done).error();
    // Not an error of the client: another server changed the objects meanwhile.
    if (first->code == Code::invalid || first->code == Code::too_large) first->code = Code::conflict;
}

/// Runs `make(0)` to `make(count - 1)` concurrently. Returns the first error, after which no further call starts.
template <class Make> Task<Unit> all_of(std::size_t count, Make make) {
    std::optional<Error> first;
    CO_TRY(std::ignore,
           co_await for_each_concurrent(count, max_concurrent_writes, [&](std::size_t i) { return make_one(first, make, i); }));
    if (first) co_return std::move(*first);
    co_return Unit{};
}

} // namespace

ExternalDnsRequest::ExternalDnsRequest(Api::State& state, Object cluster)
    : state_(state),
      cluster_(std::move(cluster)),
      domains_(texts_at(cluster_.spec, "domains")),
      records_(kind("ClusterRecord")),
      members_(kind("Member")),
      pools_(kind("Pool")),
      balancers_(kind("LoadBalancer")) {}

resource::WriteOptions ExternalDnsRequest::options() const {
    resource::WriteOptions out;
    if (claimed_) out.fence = &*claimed_;
    return out;
}

Result<Unit> ExternalDnsRequest::load() {
    resource::ListQuery query;
    query.fields = {{"cluster", cluster_.name}};
    query.limit = 5000;
    do {
        TRY(const auto page, state_.resources.list(records_, query));
        for (const auto& record : page.records) {
            TRY(const auto object, resource::from_stored(*record));
            if (const auto* kept = object.spec.if_contains("endpoint")) {
                TRY(auto endpoint, gslb::read_cluster_endpoint(*kept, object.name));
                add_endpoint(object.name, std::move(endpoint));
            }
        }
        query.after = page.next;
    } while (!query.after.empty());
    return Unit{};
}

bool ExternalDnsRequest::has_all_members(const std::string& host) const {
    const auto members = wanted(host);
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& one) { return state_.resources.exists(members_, one.first); });
}

json::array ExternalDnsRequest::shown() const {
    std::map<std::string, bool> whole;
    json::array out;
    for (const auto& [name, endpoint] : endpoints_) {
        if (endpoint.is_address()) {
            const auto [at, fresh] = whole.try_emplace(endpoint.name, true);
            if (fresh) at->second = has_all_members(endpoint.name);
            if (!at->second) continue;
        }
        out.emplace_back(endpoint.as_given);
    }
    return out;
}

gslb::ClusterChanges ExternalDnsRequest::everything() const {
    gslb::ClusterChanges out;
    for (const auto& [name, endpoint] : endpoints_) out.removed.push_back(endpoint);
    return out;
}

bool ExternalDnsRequest::is_interrupted() const {
    const auto *begun = cluster_.status.if_contains("changes"), *ended = cluster_.status.if_contains("finished");
    return begun != nullptr && (ended == nullptr || *ended != *begun);
}

Task<Unit> ExternalDnsRequest::claim(ExternalDnsRequest& at, Context ctx) {
    auto& resources = at.state_.resources;
    CO_TRY(std::ignore, co_await resources.store().catch_up(ctx));
    CO_TRY(at.cluster_, resources.get(at.kind("Cluster"), at.cluster_.name));
    auto status = at.cluster_.status;
    const auto* before = status.if_contains("changes");
    status["changes"] = (before != nullptr && before->is_int64() ? before->get_int64() : 0) + 1;
    CO_TRY(auto done, co_await resources.set_status(ctx, at.kind("Cluster"), at.cluster_.name, std::move(status),
                                                    {.if_revision = at.cluster_.revision}));
    at.cluster_ = std::move(done.object);
    at.claimed_ = store::Fence::if_unmodified(at.cluster_.key(at.kind("Cluster")), at.cluster_.revision);
    co_return Unit{};
}

Task<Unit> ExternalDnsRequest::change(ExternalDnsRequest& at, Context ctx, gslb::ClusterChanges changes) {
    std::set<std::string> hosts, removed;
    std::map<std::string, ClusterEndpoint> fresh;
    std::map<std::string, std::string> names; ///< domain name by name of the record
    for (const auto& endpoint : changes.removed) {
        const auto name = endpoint.record_name(at.cluster_.name);
        if (at.endpoints_.erase(name) == 0) continue;
        at.records_of_host_[endpoint.name].erase(name);
        removed.insert(name);
        names[name] = endpoint.name;
        if (endpoint.is_address()) hosts.insert(endpoint.name);
    }
    std::size_t number = 0;
    for (auto& endpoint : changes.put) {
        const auto here = number++;
        if (const auto refused = gslb::cluster_refusal(endpoint, at.domains_); !refused.empty()) {
            Error error{Code::invalid, "invalid record"};
            error.fields.push_back({fmt::format("{} {}", endpoint.name, endpoint.type), refused});
            error.remedy = fmt::format("record {} of the records to create or update; POST /adjustendpoints filters it", here);
            co_return error;
        }
        const auto name = endpoint.record_name(at.cluster_.name);
        removed.erase(name);
        names[name] = endpoint.name;
        if (endpoint.is_address()) hosts.insert(endpoint.name);
        at.add_endpoint(name, endpoint);
        fresh.insert_or_assign(name, std::move(endpoint));
    }
    if (at.endpoints_.size() > gslb::max_cluster_records)
        co_return Error{Code::too_large, fmt::format("the cluster would have {} records; the maximum is {}", at.endpoints_.size(),
                                                     gslb::max_cluster_records)};
    for (auto& stray : at.stray_hosts()) hosts.insert(std::move(stray));
    const std::vector<std::string> touched(hosts.begin(), hosts.end());
    const auto batches = at.in_batches(fresh, removed, names);
    CO_TRY(std::ignore, co_await all_of(touched.size(), [&](std::size_t i) { return add_members(at, ctx, touched[i]); }));
    CO_TRY(std::ignore, co_await all_of(batches.size(), [&](std::size_t i) { return apply(at, ctx, batches[i]); }));
    CO_TRY(std::ignore, co_await all_of(touched.size(), [&](std::size_t i) { return remove_members(at, ctx, touched[i]); }));
    auto status = at.cluster_.status;
    status["records"] = at.endpoints_.size();
    status["finished"] = status["changes"];
    status["changed_at"] = to_rfc3339(at.state_.clock.wall());
    CO_TRY(std::ignore, co_await at.state_.resources.set_status(ctx, at.kind("Cluster"), at.cluster_.name, std::move(status),
                                                                {.if_revision = at.cluster_.revision}));
    co_return Unit{};
}

std::vector<std::string> ExternalDnsRequest::stray_hosts() const {
    std::map<std::string, std::vector<std::string>> all;
    for (const auto& [host, records] : records_of_host_) all.merge(wanted(host));
    std::set<std::string> out, used;
    for (const auto& object : labelled(members_, member_label, cluster_.name)) {
        const auto pool = text_at(object.spec, "pool");
        used.insert(pool);
        const auto found = all.find(object.name);
        if (found == all.end() || texts_at(object.spec, "addresses") != found->second) out.insert(host_of_pool(pool));
    }
    for (const auto& [host, records] : records_of_host_) used.insert(gslb::cluster_pool_name(host));
    for (const auto& pool : labelled(pools_, generated_label, member_label)) {
        if (used.contains(pool.name)) continue;
        const auto members = listed(members_, "pool", pool.name);
        if (members.ok() && members->empty()) out.insert(host_of_pool(pool.name));
    }
    return {out.begin(), out.end()};
}

std::vector<Object> ExternalDnsRequest::labelled(const resource::Kind& kind, std::string_view label, std::string_view value) const {
    std::vector<Object> out;
    resource::ListQuery query;
    query.labels = resource::LabelSelector::parse(fmt::format("{}={}", label, value)).value_or(resource::LabelSelector{});
    query.limit = 5000;
    do {
        const auto page = state_.resources.list(kind, query);
        if (!page.ok()) break;
        for (const auto& record : page->records)
            if (auto object = resource::from_stored(*record); object.ok()) out.push_back(std::move(*object));
        query.after = page->next;
    } while (!query.after.empty());
    return out;
}

std::string ExternalDnsRequest::host_of_pool(const std::string& pool) const {
    if (const auto balancer = state_.resources.get(balancers_, pool); balancer.ok())
        if (auto host = text_at(balancer->spec, "fqdn"); gslb::cluster_pool_name(host) == pool) return host;
    return pool;
}

std::vector<store::Transaction> ExternalDnsRequest::in_batches(const std::map<std::string, ClusterEndpoint>& come,
                                                               const std::set<std::string>& removed,
                                                               const std::map<std::string, std::string>& names) const {
    // ExternalDNS identifies its records by a TXT record, named like the host with a prefix. Both are written in one transaction;
    // otherwise ExternalDNS would lose track of the record.
    std::set<std::string_view> hosts;
    for (const auto& [host, records] : records_of_host_) hosts.insert(host);
    const auto host_of = [&](std::string_view name) {
        for (auto rest = name; !rest.empty();) {
            if (hosts.contains(rest)) return std::string(rest);
            const auto cut = rest.find_first_of("-.");
            rest.remove_prefix(cut == std::string_view::npos ? rest.size() : cut + 1);
        }
        return std::string(name);
    };
    std::map<std::string, std::vector<std::string>> groups;
    for (const auto& [record, name] : names) groups[host_of(name)].push_back(record);
    std::vector<store::Transaction> out;
    std::size_t size = 0;
    for (const auto& [host, records] : groups) {
        std::size_t adds = 0;
        for (const auto& record : records)
            if (const auto one = come.find(record); one != come.end()) adds += json::serialize(one->second.as_given).size() + 1024;
        if (out.empty() || out.back().changes.size() + records.size() > max_batch_changes || size + adds > max_batch_bytes) {
            claimed_->guard(out.emplace_back());
            size = 0;
        }
        size += adds;
        for (const auto& record : records) {
            const auto key = records_.prefix() + record;
            if (const auto one = come.find(record); one != come.end())
                out.back().put(key, stored(record, one->second));
            else if (removed.contains(record))
                out.back().remove(key);
        }
    }
    return out;
}

std::string ExternalDnsRequest::stored(const std::string& name, const ClusterEndpoint& endpoint) const {
    Object object;
    object.kind = records_.name();
    object.name = name;
    object.created_at = object.updated_at = state_.clock.wall();
    if (const auto before = state_.resources.get(records_, name); before.ok()) object.created_at = before->created_at;
    object.spec = {{"cluster", cluster_.name}, {"fqdn", endpoint.name}, {"type", endpoint.type}, {"endpoint", endpoint.as_given}};
    return resource::to_stored(object);
}

Task<Unit> ExternalDnsRequest::apply(ExternalDnsRequest& at, Context ctx, store::Transaction batch) {
    CO_TRY(std::ignore, co_await at.state_.resources.store().apply(std::move(ctx), std::move(batch)));
    co_return Unit{};
}

Task<json::array> ExternalDnsRequest::adjust(ExternalDnsRequest& at, Context ctx, std::vector<ClusterEndpoint> endpoints) {
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

void ExternalDnsRequest::add_endpoint(const std::string& name, ClusterEndpoint endpoint) {
    if (endpoint.is_address()) records_of_host_[endpoint.name].insert(name);
    endpoints_.insert_or_assign(name, std::move(endpoint));
}

std::map<std::string, std::vector<std::string>> ExternalDnsRequest::wanted(const std::string& host) const {
    std::vector<ClusterEndpoint> of_host;
    if (const auto names = records_of_host_.find(host); names != records_of_host_.end())
        for (const auto& name : names->second) of_host.push_back(endpoints_.at(name));
    return gslb::cluster_members(cluster_.name, host, of_host);
}

Task<Unit> ExternalDnsRequest::put(ExternalDnsRequest& at, Context ctx, const resource::Kind& kind, std::string name,
                                   json::object labels, json::object spec) {
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

/// A missing object is no error.
Task<Unit> ExternalDnsRequest::remove(ExternalDnsRequest& at, Context ctx, const resource::Kind& kind, std::string name) {
    auto done = co_await at.state_.resources.remove(std::move(ctx), kind, std::move(name), at.options());
    if (!done.ok() && done.error().code != Code::not_found) co_return std::move(done).error();
    co_return Unit{};
}

Result<std::vector<Object>> ExternalDnsRequest::listed(const resource::Kind& kind, std::string field, std::string value) const {
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

Result<std::map<std::string, Object>> ExternalDnsRequest::own_members(const std::string& pool, std::size_t& others) const {
    TRY(auto members, listed(members_, "pool", pool));
    std::map<std::string, Object> out;
    others = 0;
    for (auto& member : members) {
        const auto label = member.labels.find(std::string(member_label));
        if (label != member.labels.end() && label->second == cluster_.name)
            out.emplace(member.name, std::move(member));
        else
            ++others;
    }
    return out;
}

Task<Unit> ExternalDnsRequest::add_members(ExternalDnsRequest& at, Context ctx, std::string host) {
    const auto pool = gslb::cluster_pool_name(host);
    const auto members = at.wanted(host);
    if (members.empty()) co_return Unit{};
    CO_TRY(std::ignore, co_await create_pool_and_balancer(at, ctx, host, pool));
    std::size_t others = 0;
    CO_TRY(const auto ours, at.own_members(pool, others));
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
                                                                            {"site", text_at(at.cluster_.spec, "site")}}}}));
            CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.members_, std::move(object), at.options()));
        } else if (texts_at(found->second.spec, "addresses") != addresses) {
            // A patch keeps the other fields, which people may have set.
            const json::object patch{{"spec", json::object{{"addresses", wanted}}}};
            CO_TRY(std::ignore, co_await at.state_.resources.patch(ctx, at.members_, name, patch, at.options()));
        }
    }
    co_return Unit{};
}

Task<Unit> ExternalDnsRequest::remove_members(ExternalDnsRequest& at, Context ctx, std::string host) {
    const auto pool = gslb::cluster_pool_name(host);
    const auto members = at.wanted(host);
    std::size_t others = 0;
    CO_TRY(const auto ours, at.own_members(pool, others));
    for (const auto& [name, member] : ours)
        if (!members.contains(name)) {
            CO_TRY(std::ignore, co_await remove(at, ctx, at.members_, name));
        }
    if (members.empty() && others == 0) {
        CO_TRY(std::ignore, co_await remove_pool_and_balancer(at, ctx, host, pool));
    }
    co_return Unit{};
}

/// Creates the pool and the load balancer of a host if they do not exist.
Task<Unit> ExternalDnsRequest::create_pool_and_balancer(ExternalDnsRequest& at, Context ctx, const std::string& host,
                                                        const std::string& pool) {
    const json::object labels{{generated_label, member_label}};
    if (!at.state_.resources.exists(at.pools_, pool)) {
        json::array monitors;
        for (const auto& monitor : texts_at(at.cluster_.spec, "monitors")) monitors.emplace_back(monitor);
        CO_TRY(std::ignore, co_await put(at, ctx, at.pools_, pool, labels,
                                         {{"description", fmt::format("{}, from Kubernetes clusters", host)},
                                          {"min_healthy", 1},
                                          {"monitors", std::move(monitors)}}));
    }
    CO_TRY(const auto balancers, at.listed(at.balancers_, "fqdn", host));
    if (!balancers.empty()) co_return Unit{};
    json::object spec{
        {"fqdn", host}, {"zone", gslb::cluster_domain(host, at.domains_)}, {"pools", json::array{json::object{{"pool", pool}}}}};
    for (const auto& name : at.records_of_host_[host])
        if (const auto ttl = at.endpoints_.at(name).ttl; ttl > 0) spec["ttl"] = json::object{{"max", fmt::format("{}s", ttl)}};
    CO_TRY(auto object,
           resource::read_object(at.balancers_, pool, json::object{{"name", pool}, {"labels", labels}, {"spec", std::move(spec)}}));
    CO_TRY(std::ignore, co_await at.state_.resources.create(ctx, at.balancers_, std::move(object), at.options()));
    co_return Unit{};
}

/// Removes the generated pool and load balancer of a host after its last member, unless other resources use them.
Task<Unit> ExternalDnsRequest::remove_pool_and_balancer(ExternalDnsRequest& at, Context ctx, const std::string& host,
                                                        const std::string& pool) {
    CO_TRY(const auto balancers, at.listed(at.balancers_, "fqdn", host));
    for (const auto& balancer : balancers)
        if (is_generated(balancer)) {
            CO_TRY(std::ignore, co_await remove(at, ctx, at.balancers_, balancer.name));
        }
    const auto found = at.state_.resources.get(at.pools_, pool);
    if (!found.ok() || !is_generated(*found)) co_return Unit{};
    auto removed = co_await remove(at, ctx, at.pools_, pool);
    if (!removed.ok() && removed.error().code != Code::conflict) co_return removed;
    co_return Unit{};
}

} // namespace orrery::api
