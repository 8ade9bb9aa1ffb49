#pragma once

#include "gslb/engine.h"
#include "gslb/places.h"
#include "gslb/ports.h"
#include "store/store.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace orrery::gslb {

/// Private to the module: keeps an engine's inputs as the store says: load balancers, pools, members and monitors, and the Nodes
/// and Instances that members stand for. Loop thread only.
class World {
public:
    /// `changed` is called after each change, while it is being taken in: it may only note. `leads`: whether this server does;
    /// while it does not, whom the guards of pools let go is as their status says. `places` may be null. All must outlive this.
    World(store::Store& store, Engine& engine, Watcher& watcher, Places* places, std::function<bool()> leads,
          std::function<void()> changed);
    ~World();
    /// This server leads no more: whoever does is followed.
    void follow();

private:
    struct Place {
        std::string address, site, rack;
        bool maintenance = false;
        std::string reason; ///< of the maintenance
        bool operator==(const Place&) const = default;
    };
    struct InstancePlace {
        std::string address, node;
        std::uint16_t port = 0;
        bool operator==(const InstancePlace&) const = default;
    };

    void take(const std::string& prefix, const store::Event& event);
    void load_balancer(const std::string& name, const store::Record* record, const Trigger& by);
    void pool(const std::string& name, const store::Record* record, const Trigger& by);
    void member(const std::string& name, const store::Record* record, const Trigger& by);
    void monitor(const std::string& name, const store::Record* record);
    void node(const std::string& name, const store::Record* record, const Trigger& by);
    void instance(const std::string& name, const store::Record* record, const Trigger& by);
    /// Who changed a resource and why, as the audit event says that was written with it; nothing where it is not found.
    Trigger author_of(const store::Event& event);

    /// One whose clients are sorted by where they are: its rule holds from when they are.
    struct Steered {
        Rule rule;
        std::function<void()> remember; ///< once, when it first holds
        std::shared_ptr<const GeoClasses> sorted;
    };
    void steer(const std::string& name, Steered& steered, const Trigger& trigger);
    void steer_all(const Trigger& trigger, const std::string& pool = {});
    void place(const std::string& member, const Trigger& by = {});
    void watch(const std::string& member);
    void place_those_on(const std::string& node, const Trigger& by);
    void found_at(const std::string& member, Addresses addresses);
    Watcher::Target::Check check_of(const std::string& monitor, const json::object& spec) const;
    /// What a calculated Monitor takes is what its slowest part takes.
    void tell_engine_of_monitors();

    store::Store& store_;
    Engine& engine_;
    Watcher& watcher_;
    Places* places_;
    std::function<bool()> leads_;
    std::function<void()> changed_;
    std::map<std::string, Steered> steered_; ///< load balancers that are
    std::map<std::string, MemberSpec> members_;
    std::map<std::string, Health> remembered_; ///< of members, until they are watched
    std::map<std::string, PoolSpec> pools_;
    std::map<std::string, json::object> monitors_;
    std::map<std::string, Addresses> found_; ///< of members that are load balancers: where whoever knows them says they are
    std::map<std::string, Place> nodes_;
    std::map<std::string, InstancePlace> instances_;
    std::map<std::string, std::set<std::string>> in_pool_, on_node_, of_instance_; ///< members by what they depend on
    std::map<std::string, Watcher::Target> watched_;
    std::set<std::string> seen_; ///< load balancers and pools whose memory has been taken over
    struct Authors {
        store::Revision revision = 0;
        std::map<std::string, Trigger, std::less<>> by_subject;
    };
    Authors authors_; ///< of the last revision: what was written at once is read once
    std::vector<std::shared_ptr<void>> observed_;
};

} // namespace orrery::gslb
