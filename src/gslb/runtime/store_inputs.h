#pragma once

#include "gslb/clients/geo_databases.h"
#include "gslb/runtime/engine.h"
#include "gslb/runtime/ports.h"
#include "store/store.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace orrery::gslb {

/// Private to the module: feeds an engine from the store: load balancers, pools, members, monitors, and the Nodes and Instances
/// that members refer to. Loop thread only.
class StoreInputs {
public:
    /// `changed` is called within each change and must only enqueue work. `leads()`: is this server the leader? Followers take the
    /// set of withdrawn members from the Pool's status. `geo` may be null. All must outlive this.
    StoreInputs(store::Store& store, Engine& engine, Watcher& watcher, GeoDatabases* geo, std::function<bool()> leads,
                std::function<void()> changed);
    ~StoreInputs();
    /// This server is no longer the leader: follow the state of the leader.
    void follow();

private:
    struct NodeAddress {
        std::string address, site, rack;
        bool maintenance = false;
        std::string reason; ///< of the maintenance
        bool operator==(const NodeAddress&) const = default;
    };
    struct InstanceAddress {
        std::string address, node;
        std::uint16_t port = 0;
        bool operator==(const InstanceAddress&) const = default;
    };

    void apply_event(const std::string& prefix, const store::Event& event);
    void load_balancer(const std::string& name, const store::Record* record, const Trigger& by);
    void pool(const std::string& name, const store::Record* record, const Trigger& by);
    void member(const std::string& name, const store::Record* record, const Trigger& by);
    void monitor(const std::string& name, const store::Record* record);
    void node(const std::string& name, const store::Record* record, const Trigger& by);
    void instance(const std::string& name, const store::Record* record, const Trigger& by);
    /// The actor and reason of a change, from the audit event of the same transaction; empty without an event.
    bool may_change_members(std::string_view prefix, const std::string& name) const;
    Trigger author_of(const store::Event& event);

    /// A load balancer with geo steering: its spec takes effect once its clients are classified.
    struct Steered {
        LoadBalancerSpec spec;
        std::function<void()> restore_lb; ///< once, when the spec first takes effect
        std::shared_ptr<const GeoClasses> sorted;
    };
    void steer(const std::string& name, Steered& steered, const Trigger& trigger);
    void steer_all(const Trigger& trigger, const std::string& pool = {});
    void update_member(const std::string& member, const Trigger& by = {});
    void watch(const std::string& member);
    void update_members_on(const std::string& node, const Trigger& by);
    void addresses_found(const std::string& member, Addresses addresses);
    Watcher::Target::Check check_of(const std::string& monitor, const json::object& spec) const;
    /// The detection time of a calculated Monitor is that of its slowest part.
    void update_calculated_monitors();

    store::Store& store_;
    Engine& engine_;
    Watcher& watcher_;
    GeoDatabases* geo_;
    std::function<bool()> leads_;
    std::function<void()> changed_;
    std::map<std::string, Steered> steered_; ///< load balancers with geo steering
    std::map<std::string, MemberSpec> members_;
    std::map<std::string, HealthState> last_known_; ///< of members that are not watched yet
    std::map<std::string, PoolSpec> pools_;
    std::map<std::string, json::object> monitors_;
    std::map<std::string, Addresses> found_; ///< addresses of regional load balancers, as their Source reports them
    std::map<std::string, NodeAddress> nodes_;
    std::map<std::string, InstanceAddress> instances_;
    std::map<std::string, std::set<std::string>> in_pool_, on_node_, of_instance_; ///< members by pool, Node and Instance
    std::map<std::string, Watcher::Target> watched_;
    std::set<std::string> seen_; ///< load balancers and pools whose state was restored
    struct Authors {
        store::Revision revision = 0;
        std::map<std::string, Trigger, std::less<>> by_subject;
    };
    Authors authors_; ///< of the last revision: one transaction is read once
    std::vector<std::shared_ptr<void>> observed_;
};

} // namespace orrery::gslb
