#pragma once

#include "api/state.h"
#include "gslb/cluster.h"
#include "store/leadership.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::api {

/// One request of one cluster's ExternalDNS: what it has here, and what becomes of what it wants. Private to this folder.
class ClusterCall {
public:
    ClusterCall(Api::State& state, resource::Object cluster);

    const std::vector<std::string>& domains() const { return domains_; }
    const resource::Object& cluster() const { return cluster_; }

    /// The last change was begun and not made to its end: who made it was killed, or is still at it.
    bool is_cut_off() const;
    /// Reads the records it has. Before `shown`, `everything` and `change`.
    Result<Unit> load();
    /// As they were given. Addresses whose members somebody removed are not there: then they are sent again.
    json::array shown() const;
    /// What takes all of it back.
    gslb::ClusterChanges everything() const;

    /// From here on this call's writes count only as long as no other server claims the same cluster. `conflict` where another was
    /// sooner.
    static Task<Unit> claim(ClusterCall& at, Context ctx);
    /// After `claim` and `load`. Many writes at a time, in an order in which whatever is cut off does no harm: records that come
    /// are written before their members, and records that go are removed after them. `invalid` before anything is written.
    static Task<Unit> change(ClusterCall& at, Context ctx, gslb::ClusterChanges changes);
    /// What it may have of these; the rest is said in its status.
    static Task<json::array> adjust(ClusterCall& at, Context ctx, std::vector<gslb::ClusterEndpoint> endpoints);

private:
    const resource::Kind& kind(std::string_view name) const { return *state_.resources.registry().find(name); }
    resource::WriteOptions options() const;
    void stands(const std::string& name, gslb::ClusterEndpoint endpoint);
    /// Whether all its members are there.
    bool is_whole(const std::string& host) const;
    std::map<std::string, std::vector<std::string>> wanted(const std::string& host) const;
    Result<std::vector<resource::Object>> listed(const resource::Kind& kind, std::string field, std::string value) const;

    Result<std::map<std::string, resource::Object>> own_members(const std::string& pool, std::size_t& others) const;
    /// Host names with members that are not as the records want them, and those that were made for members and have none.
    std::vector<std::string> stray_hosts() const;
    std::vector<resource::Object> labelled(const resource::Kind& kind, std::string_view label, std::string_view value) const;
    std::string host_of_pool(const std::string& pool) const;
    std::vector<store::Transaction> in_batches(const std::map<std::string, gslb::ClusterEndpoint>& come,
                                               const std::set<std::string>& gone,
                                               const std::map<std::string, std::string>& names) const;
    std::string stored(const std::string& name, const gslb::ClusterEndpoint& endpoint) const;

    static Task<Unit> apply(ClusterCall& at, Context ctx, store::Transaction batch);
    static Task<Unit> put(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name, json::object labels,
                          json::object spec);
    static Task<Unit> remove(ClusterCall& at, Context ctx, const resource::Kind& kind, std::string name);
    static Task<Unit> add_members(ClusterCall& at, Context ctx, std::string host);
    static Task<Unit> take_members(ClusterCall& at, Context ctx, std::string host);
    static Task<Unit> furnish(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool);
    static Task<Unit> clear(ClusterCall& at, Context ctx, const std::string& host, const std::string& pool);

    Api::State& state_;
    resource::Object cluster_;
    std::vector<std::string> domains_;
    const resource::Kind &records_, &members_, &pools_, &balancers_;
    std::optional<store::Fence> claimed_;
    std::map<std::string, gslb::ClusterEndpoint> standing_; ///< by the record's name
    std::map<std::string, std::set<std::string>> of_host_;  ///< addresses: the records of a host name
};

} // namespace orrery::api
