#include "fleet/assignment/min_cost_flow.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace orrery::fleet {

namespace {
/// Larger than any distance, and two of them can still be added.
template <class Cost> constexpr Cost unreachable = static_cast<Cost>(1) << (sizeof(Cost) * 8 - 3);
enum Mark : std::uint8_t { fresh, on_path, dead };
} // namespace

template <class Cost> void MinCostFlow<Cost>::index_arcs() {
    first_.assign(nodes_ + 1, 0);
    for (const auto& arc : given_) {
        ++first_[arc.from + 1];
        ++first_[arc.to + 1];
    }
    for (std::size_t i = 0; i < nodes_; ++i) first_[i + 1] += first_[i];
    halves_.resize(2 * given_.size());
    half_of_.resize(given_.size());
    auto at = first_;
    for (std::size_t i = 0; i < given_.size(); ++i) {
        const auto& arc = given_[i];
        const auto there = at[arc.from]++, back = at[arc.to]++;
        halves_[there] = {arc.cost, arc.to, back, arc.capacity, true};
        halves_[back] = {-arc.cost, arc.from, there, 0, false};
        half_of_[i] = there;
    }
}

/// Dijkstra until the sink is reached; then the potentials are raised so that the arcs of shortest paths have reduced cost zero.
/// Nodes at the distance of the current one are most of all, and go past the heap.
template <class Cost> bool MinCostFlow<Cost>::find_distances(Node source, Node sink) {
    std::fill(distances_.begin(), distances_.end(), unreachable<Cost>);
    open_.clear();
    distances_[source] = 0;
    same_.assign(1, source);
    for (Cost distance = 0; distance < distances_[sink];) {
        if (same_.empty()) {
            if (open_.empty()) break;
            std::pop_heap(open_.begin(), open_.end(), std::greater<>());
            const auto [next, node] = open_.back();
            open_.pop_back();
            if (next > distances_[node]) continue;
            distance = next;
            same_.push_back(node);
            continue;
        }
        const auto node = same_.back();
        same_.pop_back();
        const auto base = distance + potentials_[node];
        for (auto i = first_[node]; i < first_[node + 1]; ++i) {
            const auto& half = halves_[i];
            if (half.capacity == 0) continue;
            const auto through = base + half.cost - potentials_[half.to];
            if (through >= distances_[half.to] || through >= distances_[sink]) continue;
            distances_[half.to] = through;
            if (through == distance) {
                same_.push_back(half.to);
            } else if (half.to != sink) {
                open_.emplace_back(through, half.to);
                std::push_heap(open_.begin(), open_.end(), std::greater<>());
            }
        }
    }
    const auto limit = distances_[sink];
    if (limit >= unreachable<Cost>) return false;
    for (std::size_t node = 0; node < nodes_; ++node) potentials_[node] += std::min(distances_[node], limit);
    return true;
}

/// Sends what the path can carry and goes back to where it is full.
template <class Cost> std::int64_t MinCostFlow<Cost>::push_along(std::vector<std::uint32_t>& path, Node& node) {
    std::int32_t amount = std::numeric_limits<std::int32_t>::max();
    for (const auto half : path) amount = std::min(amount, halves_[half].capacity);
    std::size_t full = path.size();
    for (std::size_t i = path.size(); i-- > 0;) {
        auto& half = halves_[path[i]];
        half.capacity -= amount;
        halves_[half.pair].capacity += amount;
        if (half.capacity == 0) full = i;
    }
    for (std::size_t i = full; i < path.size(); ++i) marks_[halves_[path[i]].to] = fresh;
    node = halves_[halves_[path[full]].pair].to;
    path.resize(full);
    return amount;
}

/// Depth-first search for paths of reduced cost zero. A node without a way on is not tried again before the next search; that may
/// miss a path over a cycle of cost zero, which the next search then finds at distance zero.
template <class Cost> std::int64_t MinCostFlow<Cost>::push_flow(Node source, Node sink) {
    std::fill(marks_.begin(), marks_.end(), fresh);
    std::copy(first_.begin(), first_.end() - 1, next_.begin());
    std::int64_t total = 0;
    std::vector<std::uint32_t> path;
    Node node = source;
    marks_[source] = on_path;
    for (;;) {
        if (node == sink) {
            total += push_along(path, node);
            continue;
        }
        bool advanced = false;
        for (; next_[node] < first_[node + 1]; ++next_[node]) {
            const auto& half = halves_[next_[node]];
            if (half.capacity == 0 || marks_[half.to] != fresh) continue;
            if (half.cost + potentials_[node] - potentials_[half.to] != 0) continue;
            path.push_back(next_[node]);
            marks_[half.to] = on_path;
            node = half.to;
            advanced = true;
            break;
        }
        if (advanced) continue;
        marks_[node] = dead;
        if (path.empty()) return total;
        node = halves_[halves_[path.back()].pair].to;
        path.pop_back();
    }
}

template <class Cost> std::int64_t MinCostFlow<Cost>::solve(Node source, Node sink) {
    index_arcs();
    potentials_.assign(nodes_, 0);
    distances_.assign(nodes_, 0);
    next_.assign(nodes_, 0);
    marks_.assign(nodes_, fresh);
    std::int64_t total = 0;
    while (find_distances(source, sink)) total += push_flow(source, sink);
    return total;
}

template class MinCostFlow<std::int64_t>;
template class MinCostFlow<WideCost>;

} // namespace orrery::fleet
