#pragma once

#include "gslb/engine.h"
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
    /// while it does not, whom the guards of pools let go is as their status says. All must outlive this.
    World(store::Store& store, Engine& engine, Watcher& watcher, std::function<bool()> leads, std::function<void()> changed);
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
    void load_balancer(const std::string& name, const store::Record* record);
    void pool(const std::string& name, const store::Record* record);
    void member(const std::string& name, const store::Record* record);
    void monitor(const std::string& name, const store::Record* record);
    void node(const std::string& name, const store::Record* record);
    void instance(const std::string& name, const store::Record* record);

    void place(const std::string& member);
    void watch(const std::string& member);
    void place_those_on(const std::string& node);

    store::Store& store_;
    Engine& engine_;
    Watcher& watcher_;
    std::function<bool()> leads_;
    std::function<void()> changed_;
    std::map<std::string, MemberSpec> members_;
    std::map<std::string, Health> remembered_; ///< of members, until they are watched
    std::map<std::string, PoolSpec> pools_;
    std::map<std::string, json::object> monitors_;
    std::map<std::string, Place> nodes_;
    std::map<std::string, InstancePlace> instances_;
    std::map<std::string, std::set<std::string>> in_pool_, on_node_, of_instance_; ///< members by what they depend on
    std::map<std::string, Watcher::Target> watched_;
    std::set<std::string> seen_; ///< load balancers and pools whose memory has been taken over
    std::vector<std::shared_ptr<void>> observed_;
};

} // namespace orrery::gslb
