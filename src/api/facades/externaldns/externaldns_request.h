#pragma once

#include "api/state.h"
#include "gslb/observe/externaldns_source.h"
#include "store/leadership.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::api {

/// One request of the ExternalDNS of a Kubernetes cluster: the records of the cluster, and the pools, members and load balancers
/// that follow from them. Private to this folder.
class ExternalDnsRequest {
public:
    ExternalDnsRequest(Api::State& state, resource::Object cluster);

    const std::vector<std::string>& domains() const { return domains_; }
    const resource::Object& cluster() const { return cluster_; }

    /// Did the last change start and not finish? Its server was stopped, or is still at work.
    bool is_interrupted() const;
    /// Reads the records of the cluster. Call it before `shown`, `everything` and `change`.
    Result<Unit> load();
    /// The records as ExternalDNS sent them. Records with removed members are left out, so that ExternalDNS sends them again.
    json::array shown() const;
    /// The changes that remove all records.
    gslb::ClusterChanges everything() const;

    /// Fences the writes of this request: they fail after another server claims the same cluster. `conflict`: another server was
    /// faster.
    static Task<Unit> claim(ExternalDnsRequest& at, Context ctx);
    /// Applies changes, after `claim` and `load`, with concurrent writes. The order makes an interruption harmless: new members are
    /// written before their records, and old members are removed after them. `invalid`: nothing was written.
    static Task<Unit> change(ExternalDnsRequest& at, Context ctx, gslb::ClusterChanges changes);
    /// Filters the endpoints that the cluster may have; the status of the Cluster lists the others.
    static Task<json::array> adjust(ExternalDnsRequest& at, Context ctx, std::vector<gslb::ClusterEndpoint> endpoints);

private:
    const resource::Kind& kind(std::string_view name) const { return *state_.resources.registry().find(name); }
    resource::WriteOptions options() const;
    void add_endpoint(const std::string& name, gslb::ClusterEndpoint endpoint);
    /// Do all members of the host exist?
    bool has_all_members(const std::string& host) const;
    std::map<std::string, std::vector<std::string>> wanted(const std::string& host) const;
    Result<std::vector<resource::Object>> listed(const resource::Kind& kind, std::string field, std::string value) const;

    Result<std::map<std::string, resource::Object>> own_members(const std::string& pool, std::size_t& others) const;
    /// Hosts with members that differ from the records, and hosts with a generated pool without members.
    std::vector<std::string> stray_hosts() const;
    std::vector<resource::Object> labelled(const resource::Kind& kind, std::string_view label, std::string_view value) const;
    std::string host_of_pool(const std::string& pool) const;
    std::vector<store::Transaction> in_batches(const std::map<std::string, gslb::ClusterEndpoint>& come,
                                               const std::set<std::string>& removed,
                                               const std::map<std::string, std::string>& names) const;
    std::string stored(const std::string& name, const gslb::ClusterEndpoint& endpoint) const;

    static Task<Unit> apply(ExternalDnsRequest& at, Context ctx, store::Transaction batch);
    static Task<Unit> put(ExternalDnsRequest& at, Context ctx, const resource::Kind& kind, std::string name, json::object labels,
                          json::object spec);
    static Task<Unit> remove(ExternalDnsRequest& at, Context ctx, const resource::Kind& kind, std::string name);
    static Task<Unit> add_members(ExternalDnsRequest& at, Context ctx, std::string host);
    static Task<Unit> remove_members(ExternalDnsRequest& at, Context ctx, std::string host);
    static Task<Unit> create_pool_and_balancer(ExternalDnsRequest& at, Context ctx, const std::string& host,
                                               const std::string& pool);
    static Task<Unit> remove_pool_and_balancer(ExternalDnsRequest& at, Context ctx, const std::string& host,
                                               const std::string& pool);

    Api::State& state_;
    resource::Object cluster_;
    std::vector<std::string> domains_;
    const resource::Kind &records_, &members_, &pools_, &balancers_;
    std::optional<store::Fence> claimed_;
    std::map<std::string, gslb::ClusterEndpoint> endpoints_;       ///< by name of the record
    std::map<std::string, std::set<std::string>> records_of_host_; ///< names of the address records of a host
};

} // namespace orrery::api
