#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace orrery::fleet {

/// Costs have several levels of importance in one number (assignment_graph.h), which may need more than 64 bits.
__extension__ using WideCost = __int128;

/// An exact minimum-cost flow over a graph with capacities and costs that are not negative. `Cost` is std::int64_t or WideCost.
///
/// Method: shortest paths by Dijkstra over reduced costs; then as much flow as possible over all arcs whose reduced cost is zero,
/// before the next search (primal-dual). Deterministic: the same arcs in the same order give the same flow.
template <class Cost> class MinCostFlow {
public:
    using Node = std::uint32_t;
    using Arc = std::uint32_t;

    explicit MinCostFlow(std::size_t nodes) : nodes_(nodes) {}

    /// `cost` must not be negative. Arcs cannot be added after `solve`.
    Arc add_arc(Node from, Node to, std::int32_t capacity, Cost cost) {
        given_.push_back({from, to, capacity, cost});
        return static_cast<Arc>(given_.size() - 1);
    }
    /// Sends as much flow as the graph can carry, at the least cost, and returns its amount.
    std::int64_t solve(Node source, Node sink);

    std::int64_t flow(Arc arc) const { return halves_[halves_[half_of_[arc]].pair].capacity; }
    std::size_t nodes() const { return nodes_; }

    /// An arc, or the way back over one: what is left of its capacity, or the flow that could be taken back.
    struct Half {
        Cost cost;
        Node to;
        std::uint32_t pair; ///< the index of the other direction
        std::int32_t capacity;
        bool forward;
    };
    /// Both directions of the arcs at a node, after `solve`.
    std::pair<const Half*, const Half*> halves_of(Node node) const {
        return {halves_.data() + first_[node], halves_.data() + first_[node + 1]};
    }
    std::int64_t flow_of(const Half& forward) const { return halves_[forward.pair].capacity; }

private:
    struct Given {
        Node from, to;
        std::int32_t capacity;
        Cost cost;
    };
    void index_arcs();
    bool find_distances(Node source, Node sink);
    std::int64_t push_flow(Node source, Node sink);
    std::int64_t push_along(std::vector<std::uint32_t>& path, Node& node);

    std::size_t nodes_;
    std::vector<Given> given_;
    std::vector<std::uint32_t> half_of_; ///< of an arc: its forward direction
    std::vector<Half> halves_;           ///< sorted by the node that they leave
    std::vector<std::uint32_t> first_;   ///< of a node, in `halves_`
    std::vector<Cost> potentials_, distances_;
    std::vector<std::pair<Cost, Node>> open_;
    std::vector<Node> same_;          ///< nodes at the distance of the current one
    std::vector<std::uint32_t> next_; ///< of a node: the half to try next
    std::vector<std::uint8_t> marks_;
};

extern template class MinCostFlow<std::int64_t>;
extern template class MinCostFlow<WideCost>;

} // namespace orrery::fleet
