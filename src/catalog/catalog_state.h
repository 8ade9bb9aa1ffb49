#pragma once

#include "catalog/catalog.h"
#include "catalog/registered.h"
#include "resource/kinds.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

/// The implementation of Catalog, shared by its source files: changes of the store (catalog_changes.cpp), joins
/// (catalog_joins.cpp), and queries (catalog.cpp).
namespace orrery::catalog {

using store::Revision;

struct NodeSource {
    std::optional<resource::Node> node;
    Revision node_created = 0, node_modified = 0;
    struct Foreign {
        std::string resource;
        NodeView view;
        std::vector<Check> checks;
        std::map<std::string, CheckResult> results;
    };
    std::optional<Foreign> foreign;
    NodePtr view;
    Revision revision = 1;
    std::map<std::string, InstancePtr> instances; ///< by id
};

struct ServiceSpec {
    std::uint16_t port = 0;
    std::vector<Check> checks;
    std::optional<Wanted> wanted;
};

struct ServiceSource {
    std::string name; ///< as first registered
    std::optional<ServiceSpec> spec;
    std::map<std::pair<std::string, std::string>, InstancePtr> instances; ///< by node and id
    Revision revision = 1;
};

struct Catalog::State_ {
    explicit State_(store::Store& store);

    // --- changes of the store (catalog_changes.cpp)
    static std::optional<resource::Object> read(const store::Event& event);
    static std::string name_in(const store::Event& event) { return event.key.substr(event.key.find('/') + 1); }
    static Revision revision_of(const store::Event& event) {
        return std::max<Revision>(1, event.revision != 0 ? event.revision : event.record ? event.record->modified : 0);
    }
    void node_changed(const store::Event& event);
    void foreign_changed(const store::Event& event);
    void node_source_changed(const std::string& name, Revision now, bool registration);
    void service_changed(const store::Event& event);
    void instance_changed(const store::Event& event);
    void remove_instance(const InstancePtr& old, Revision now);
    /// Counts the Nodes of each role, for hosts(role).
    void count_roles(const std::string& name, const std::map<std::string, std::string>& labels, Revision now);
    void touch(Revision revision) { revisions.all = std::max(revisions.all, revision); }
    void notify(const std::string& service);

    // --- joins (catalog_joins.cpp)
    /// Rebuilds the view of the node and of its instances.
    void join_node(NodeSource& source, bool announce, Revision now = 0);
    void make_node_view(NodeSource& source);
    CheckView make_check_view(const Check& check, const std::map<std::string, CheckResult>& results, const std::string& key) const;
    InstancePtr join_instance(const Registered& registered, const ServiceSource& service, const NodeSource& node) const;
    Revision check_revision(const std::string& resource) const {
        const auto at = check_revisions.find(resource);
        return at == check_revisions.end() ? 0 : at->second;
    }

    bool loading = false;
    std::map<std::string, NodeSource> nodes;       ///< by lower-case name
    std::map<std::string, ServiceSource> services; ///< by lower-case name
    std::map<std::string, Registered> instances;   ///< by resource
    std::map<std::string, InstancePtr> by_resource;
    std::map<std::string, Revision> check_revisions;  ///< by resource of an Instance
    std::map<std::string, std::string> foreign_names; ///< resource of a CatalogNode → lower-case node
    std::map<std::string, std::string> role_of;       ///< Node → role
    std::map<std::string, std::int64_t> roles;
    mutable InvalidMemberLog invalid_members;
    std::unordered_set<std::string> suspects; ///< "instances/x check"
    bool first_round = false;                 ///< the first round of checks in this term is running
    std::function<bool()> closed;
    void trust_changed(const std::string& key, const std::map<std::string, CheckResult>& before,
                       const std::map<std::string, CheckResult>& after);
    Evidence evidence_of(const InstanceView& view) const {
        return !view.stale() ? Evidence::confirmed : first_round ? Evidence::awaited : Evidence::unconfirmed;
    }
    Revisions revisions;
    Revision extinct = 1; ///< revision at which a service last lost its last instance
    std::vector<std::weak_ptr<std::function<void(const std::string&)>>> subscribers;
    std::vector<std::shared_ptr<void>> observers;
};

} // namespace orrery::catalog
