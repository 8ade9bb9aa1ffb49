#include "fleet/assignment/assignment_graph.h"

#include <algorithm>

namespace orrery::fleet {

namespace {
/// More than any demand.
constexpr std::int32_t unlimited = max_roles * max_demand + 1;

std::int32_t capacity_of(std::int64_t number) { return static_cast<std::int32_t>(std::min<std::int64_t>(number, unlimited)); }
} // namespace

template <class Cost>
AssignmentGraph<Cost>::AssignmentGraph(const AssignmentSetup& setup, const CostWeights& weights)
    : setup_(setup),
      problem_(setup.problem),
      spread_(static_cast<Cost>(weights.spread)),
      added_(static_cast<Cost>(weights.added)),
      moved_(static_cast<Cost>(weights.moved)),
      unmet_(static_cast<Cost>(weights.unmet)) {
    out_.role_of = setup.role_of;
    out_.missing.assign(problem_.roles.size(), 0);
    out_.classes = setup.classes.size();
}

template <class Cost> Cost AssignmentGraph<Cost>::cost_of_arc(std::size_t role, const AssignmentMachine& machine) const {
    const Cost fit = machine.fit[role];
    if (machine.deployed == static_cast<std::int32_t>(role)) return fit;
    return fit + (machine.deployed == no_role ? added_ : moved_);
}

/// Parallel arcs of rising cost: convex, so that the flow fills the cheap ones first. The last one has no limit unless the spread
/// is hard: then the minimum cut runs through machines, which can be named, and not through this arc.
template <class Cost> void AssignmentGraph<Cost>::add_domain_arcs(std::size_t role, std::uint32_t domain, Node node) {
    const auto& use = setup_.uses[role].at(domain);
    const auto share = setup_.share_of(role);
    const auto role_node = static_cast<Node>(first_role_node + role);
    const bool hard = problem_.roles[role].spread == Spread::hard;
    auto left = hard ? use.suitable : std::min(use.suitable, setup_.demand[role]);
    for (auto used = use.placed; left > 0;) {
        const auto level = used / share;
        if (hard && level > 0) break;
        const auto room = (level + 1) * share - used;
        flow_.add_arc(role_node, node, left <= room ? unlimited : capacity_of(room), spread_ * level);
        used += room;
        left -= room;
    }
}

template <class Cost> void AssignmentGraph<Cost>::build() {
    const auto roles = problem_.roles.size();
    const auto& classes = setup_.classes;
    std::size_t nodes = first_role_node + roles + classes.size();
    for (std::size_t role = 0; role < roles; ++role)
        if (problem_.roles[role].spread != Spread::none) nodes += setup_.uses[role].size();
    flow_ = Flow(nodes);
    auto next = static_cast<Node>(first_role_node + roles);
    for (std::size_t i = 0; i < classes.size(); ++i) class_nodes_.push_back(next++);
    std::vector<std::vector<Node>> domain_nodes(roles, std::vector<Node>(setup_.domains, 0));
    for (std::size_t role = 0; role < roles; ++role) {
        const auto node = static_cast<Node>(first_role_node + role);
        flow_.add_arc(source_node, node, capacity_of(setup_.demand[role]), 0);
        unmet_arcs_.push_back(flow_.add_arc(node, sink_node, capacity_of(setup_.demand[role]), unmet_ * setup_.rank[role]));
        if (problem_.roles[role].spread == Spread::none) continue;
        for (const auto& [domain, use] : setup_.uses[role]) {
            domain_nodes[role][domain] = next;
            add_domain_arcs(role, domain, next++);
        }
    }
    for (std::size_t i = 0; i < classes.size(); ++i) {
        const auto& one = classes[i];
        for (std::size_t role = 0; role < roles; ++role) {
            if (one.sample->fit[role] == unfit || setup_.demand[role] == 0) continue;
            const auto from = problem_.roles[role].spread == Spread::none ? static_cast<Node>(first_role_node + role)
                                                                          : domain_nodes[role][one.domain];
            role_arcs_.push_back({flow_.add_arc(from, class_nodes_[i], unlimited, cost_of_arc(role, *one.sample)), role, i});
        }
        flow_.add_arc(class_nodes_[i], sink_node, capacity_of(static_cast<std::int64_t>(one.members.size())), 0);
    }
}

template <class Cost> void AssignmentGraph<Cost>::read_flow() {
    std::vector<std::size_t> next(setup_.classes.size(), 0);
    for (const auto& arc : role_arcs_)
        for (auto left = flow_.flow(arc.arc); left > 0; --left)
            out_.role_of[setup_.classes[arc.machine_class].members[next[arc.machine_class]++]] =
                static_cast<std::int32_t>(arc.role);
    for (std::size_t role = 0; role < problem_.roles.size(); ++role) out_.missing[role] = flow_.flow(unmet_arcs_[role]);
}

template <class Cost> void AssignmentGraph<Cost>::explain() {
    if (std::all_of(out_.missing.begin(), out_.missing.end(), [](auto missing) { return missing == 0; })) return;
    ResidualGraph graph;
    graph.class_nodes = class_nodes_;
    graph.ways.resize(flow_.nodes());
    for (std::size_t node = 0; node < flow_.nodes(); ++node) {
        const auto [begin, end] = flow_.halves_of(static_cast<Node>(node));
        for (const auto* half = begin; half != end; ++half)
            graph.ways[node].push_back({half->to, half->forward, half->capacity, half->forward ? flow_.flow_of(*half) : 0});
    }
    out_.shortages = find_shortages(setup_, out_, graph);
}

template <class Cost> Assignment AssignmentGraph<Cost>::solve() {
    build();
    flow_.solve(source_node, sink_node);
    read_flow();
    explain();
    out_.cost = cost_of(problem_, out_.role_of);
    return std::move(out_);
}

template class AssignmentGraph<std::int64_t>;
template class AssignmentGraph<WideCost>;

} // namespace orrery::fleet
