#pragma once

#include "catalog/check.h"
#include "catalog/kinds.h"
#include "catalog/membership.h"
#include "resource/object.h"
#include "store/store.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::catalog {

/// A check with what is known of it.
struct CheckView {
    Check check;
    CheckResult result;
    bool stale = false; ///< the result is from before this server began to lead; it stands until there is a fresh one
    store::Revision created = 0, modified = 0;
};

/// A node as the catalog shows it: joined from the Node and the CatalogNode of that name. Immutable.
struct NodeView {
    std::string name, id, address;
    std::string resource; ///< of its CatalogNode, or ""
    bool managed = false; ///< there is a Node of that name
    std::map<std::string, std::string> meta, tagged_addresses;
    std::vector<CheckView> checks; ///< of the machine, by id
    bool maintenance = false;
    std::string maintenance_reason;
    store::Revision created = 0, modified = 0;
};
using NodePtr = std::shared_ptr<const NodeView>;

/// An instance as the catalog shows it: joined from the Instance, its Service and its node. Immutable.
struct InstanceView {
    std::string resource; ///< the Instance's name
    std::string service, id, node;
    std::string own_address; ///< as registered, perhaps ""
    std::string address;     ///< own, else the node's
    std::uint16_t port = 0;
    std::vector<std::string> tags; ///< as registered
    std::map<std::string, std::string> meta;
    json::value tagged_addresses; ///< an object, or null
    int weight_passing = 1, weight_warning = 1;
    bool tag_override = false;
    bool maintenance = false;
    std::string maintenance_reason;
    std::vector<CheckView> checks; ///< of its Service, then its own
    store::Revision created = 0;
    store::Revision modified = 0; ///< of what was registered; checks do not count
    State state = State::registered;
    std::string why;
    CheckStatus worst = CheckStatus::passing; ///< over its own checks and its node's
    NodePtr on;                               ///< its node; null where nobody knows it

    bool has_tag(std::string_view tag) const;
    Member member() const;
};
using InstancePtr = std::shared_ptr<const InstanceView>;

/// Sets `state`, `why` and `worst` from its checks, its node's and its maintenance.
void judge(InstanceView& view);

/// The built-in catalog: services and instances in memory, joined and indexed, fed by the store. As exact as the store's copy.
/// Names of services and nodes compare without regard to case. Loop thread only.
class Catalog final : public Membership {
public:
    explicit Catalog(store::Store& store);
    ~Catalog() override;

    // Membership
    Result<Members> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) override;
    std::shared_ptr<void> follow(std::string_view service) override;

    /// Instances of a service, or on a node, by node and id.
    std::vector<InstancePtr> instances(std::string_view service) const;
    std::vector<InstancePtr> instances_on(std::string_view node) const;
    InstancePtr find(std::string_view node, std::string_view id) const;
    InstancePtr find_resource(std::string_view resource) const; ///< by the Instance's name
    NodePtr node(std::string_view name) const;
    NodePtr find_node_resource(std::string_view resource) const; ///< by the CatalogNode's name
    std::vector<NodePtr> nodes() const;                          ///< by name
    /// Names of services that have instances, as first registered, in order.
    std::vector<std::string> services() const;
    /// How many instances of it are wanted; nothing where no Service says so.
    std::optional<std::int64_t> wanted(std::string_view service) const;
    std::optional<Wanted> wanted_rule(std::string_view service) const;

    /// When something last changed; never less than 1, never going back while the process lives.
    struct Revisions {
        store::Revision services = 1; ///< which services there are, with which tags
        store::Revision nodes = 1;
        store::Revision checks = 1;
        store::Revision all = 1;
    };
    const Revisions& revisions() const;
    store::Revision service_revision(std::string_view service) const; ///< its instances, their checks and nodes
    store::Revision node_revision(std::string_view node) const;       ///< the node, its checks, its instances

    /// This server begins to run checks: what others found before is stale until `confirm`ed.
    void suspect_all();
    void confirm(std::string_view resource_key, std::string_view check); ///< "instances/x" or "catalognodes/x"

private:
    struct State_;
    std::unique_ptr<State_> state_;
};

} // namespace orrery::catalog
