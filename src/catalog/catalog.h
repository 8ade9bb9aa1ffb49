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

/// A check with its result.
struct CheckView {
    Check check;
    CheckResult result;
    std::string error;  ///< why it cannot run; the last result stays in effect
    bool stale = false; ///< the result is older than the term of this leader; it stays in effect until a new one
    store::Revision created = 0, modified = 0;
};

/// A node of the catalog: the Node and the CatalogNode of that name, joined. Immutable.
struct NodeView {
    std::string name, id, address;
    std::string resource; ///< name of its CatalogNode, or ""
    bool managed = false; ///< a Node of that name exists
    std::map<std::string, std::string> meta, tagged_addresses;
    std::vector<CheckView> checks; ///< of the node, by id
    bool maintenance = false;
    std::string maintenance_reason;
    store::Revision created = 0, modified = 0;
};
using NodePtr = std::shared_ptr<const NodeView>;

/// An instance of the catalog: the Instance, its Service and its node, joined. Immutable.
struct InstanceView {
    std::string resource; ///< name of the Instance
    std::string service, id, node;
    std::string own_address; ///< as registered; may be ""
    std::string address;     ///< its own, or that of the node
    std::uint16_t port = 0;
    std::vector<std::string> tags; ///< as registered
    std::map<std::string, std::string> meta;
    json::value tagged_addresses; ///< an object, or null
    int weight_passing = 1, weight_warning = 1;
    bool tag_override = false;
    bool maintenance = false;
    std::string maintenance_reason;
    bool planned = false;          ///< not started yet
    bool declared = false;         ///< its Service exists; an instance without one is not a member
    std::string invalid;           ///< why its node name or address is invalid, so that it is not a member; or ""
    std::vector<CheckView> checks; ///< of its Service, then its own
    store::Revision created = 0;
    store::Revision modified = 0; ///< of the registration, without checks
    State state = State::registered;
    std::string message;                      ///< explanation of the state
    CheckStatus worst = CheckStatus::passing; ///< of its own checks and those of its node
    NodePtr on;                               ///< its node; null if unknown

    bool has_tag(std::string_view tag) const;
    bool stale() const;                   ///< a check of it or of its node is not confirmed in this term
    std::string why_not_a_member() const; ///< "" for a member
    Member member() const;
};
using InstancePtr = std::shared_ptr<const InstanceView>;

/// Sets `state`, `message` and `worst` from its checks, the checks of its node, and maintenance.
void judge(InstanceView& view);

/// The built-in catalog: services and instances in memory, joined and indexed, updated by observers of the store. Names of services
/// and nodes are case-insensitive. Loop thread only.
class Catalog final : public Membership {
public:
    explicit Catalog(store::Store& store);
    ~Catalog() override;

    // Membership
    Result<Members> members(std::string_view service, std::string_view tag) const override;
    std::shared_ptr<void> subscribe(std::function<void(const std::string& service)> changed) override;
    std::shared_ptr<void> follow(std::string_view service) override;

    /// Instances of a service, or on a node, ordered by node and id.
    std::vector<InstancePtr> instances(std::string_view service) const;
    std::vector<InstancePtr> instances_on(std::string_view node) const;
    InstancePtr find(std::string_view node, std::string_view id) const;
    InstancePtr find_resource(std::string_view resource) const; ///< by name of the Instance
    NodePtr node(std::string_view name) const;
    NodePtr find_node_resource(std::string_view resource) const; ///< by name of the CatalogNode
    std::vector<NodePtr> nodes() const;                          ///< ordered by name
    /// Names of services that have instances, sorted; spelled as first registered.
    std::vector<std::string> services() const;
    /// The wanted number of instances; nullopt when no Service declares it.
    std::optional<std::int64_t> wanted(std::string_view service) const;
    std::optional<Wanted> wanted_rule(std::string_view service) const;

    /// The declaration of the Service; nullopt when the Service does not exist.
    std::optional<DeclaredService> declared(std::string_view service) const override;
    bool requires_declaration() const override { return true; }
    /// The evidence for the state of an instance; `confirmed` when it is not in this catalog.
    Evidence evidence(std::string_view node, std::string_view id) const;

    /// Revisions of the last changes; at least 1, and never decreasing while the process runs.
    struct Revisions {
        store::Revision services = 1; ///< the set of services and their tags
        store::Revision nodes = 1;
        store::Revision checks = 1;
        store::Revision all = 1;
    };
    const Revisions& revisions() const;
    store::Revision service_revision(std::string_view service) const; ///< its instances, their checks and nodes
    store::Revision node_revision(std::string_view node) const;       ///< the node, its checks, its instances

    /// This server starts to run checks: stored results are stale until `confirm`, and awaited until `end_first_round`. Both calls
    /// notify all subscribers.
    void suspect_all();
    void end_first_round();
    /// While `closed()` returns true, `members` is `unavailable`: this server leads, and its checks have not started.
    void close_while(std::function<bool()> closed);
    void confirm(std::string_view resource_key, std::string_view check); ///< "instances/x" or "catalognodes/x"

private:
    struct State_;
    std::unique_ptr<State_> state_;
};

} // namespace orrery::catalog
