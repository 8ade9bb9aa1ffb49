#pragma once

#include "fleet/assignment/assignment.h"
#include "fleet/assignment/min_cost_flow.h"

#include <map>
#include <optional>
#include <string_view>
#include <vector>

/// Private to this folder: the flow graph of an assignment.
///
///     source -> role -> (role, failure domain) -> class of machines -> sink
///                  \--> sink: demand that stays unmet, at a cost above all others
namespace orrery::fleet {

/// Machines that have equal costs in every role.
struct MachineClass {
    std::uint32_t domain = 0;
    const AssignmentMachine* sample = nullptr;
    std::vector<std::size_t> members; ///< in the order of their names
};

/// The state of a search before the flow: what is placed already, what is left, in which classes.
struct AssignmentSetup {
    /// Keep::all places every deployed machine in its role, before the search.
    enum class Keep { by_cost, all };
    AssignmentSetup(const AssignmentProblem& problem, Keep keep);

    struct DomainUse {
        std::int64_t placed = 0;   ///< machines of the role that are there before the search
        std::int64_t suitable = 0; ///< further machines that fit
    };
    const AssignmentProblem& problem;
    std::vector<std::int32_t> role_of;    ///< of each machine that is placed
    std::vector<std::int64_t> demand;     ///< of each role, without what is placed
    std::vector<std::int64_t> rank;       ///< of each role's priority, 1 for the lowest
    std::vector<std::uint32_t> domain_of; ///< of each machine
    std::size_t domains = 0;
    std::vector<MachineClass> classes;
    std::vector<std::map<std::uint32_t, DomainUse>> uses; ///< of each role, by domain
    bool any_deployed = false;                            ///< among the classes

    std::int64_t share_of(std::size_t role) const { return fair_share(problem.roles[role].count, uses[role].size()); }

private:
    void preassign(std::size_t machine, std::int32_t role);
    void group_machines();
    void count_domains_of_placed();
};

/// The importance of each level of AssignmentCost as one number: each weight exceeds all that the lower levels can add up to.
struct CostWeights {
    WideCost spread = 0, added = 0, moved = 0, unmet = 0, total = 0;
    explicit CostWeights(const AssignmentSetup& setup);
    bool fit_in_64_bits() const;
};

/// A solved flow graph without its costs.
struct ResidualGraph {
    struct Way {
        std::uint32_t to;
        bool forward;
        std::int64_t left, flow; ///< capacity that is left, and flow of a forward arc
    };
    std::vector<std::vector<Way>> ways;     ///< of each node
    std::vector<std::uint32_t> class_nodes; ///< of each class of machines
};
/// Nodes of the graph: source, sink, then the roles.
constexpr std::uint32_t source_node = 0, sink_node = 1, first_role_node = 2;

/// Why demand is unmet: the minimum cut of the flow. One shortage for roles that share machines.
std::vector<Shortage> find_shortages(const AssignmentSetup& setup, const Assignment& solved, const ResidualGraph& graph);

template <class Cost> class AssignmentGraph {
public:
    AssignmentGraph(const AssignmentSetup& setup, const CostWeights& weights);
    Assignment solve();

private:
    using Flow = MinCostFlow<Cost>;
    using Node = typename Flow::Node;
    struct RoleArc {
        typename Flow::Arc arc;
        std::size_t role, machine_class;
    };

    void build();
    void add_domain_arcs(std::size_t role, std::uint32_t domain, Node node);
    Cost cost_of_arc(std::size_t role, const AssignmentMachine& machine) const;
    void read_flow();
    void explain();

    const AssignmentSetup& setup_;
    const AssignmentProblem& problem_;
    Cost spread_, added_, moved_, unmet_;
    std::vector<RoleArc> role_arcs_;
    std::vector<typename Flow::Arc> unmet_arcs_;
    std::vector<Node> class_nodes_;
    Flow flow_{0};
    Assignment out_;
};

extern template class AssignmentGraph<std::int64_t>;
extern template class AssignmentGraph<WideCost>;

} // namespace orrery::fleet
