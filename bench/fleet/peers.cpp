// The same assignment by LEMON's network simplex and by Boost.Graph's successive shortest paths, one vertex for each machine: what
// a user of these libraries would write. Reads what `bench_fleet generate` prints; prints CPU time and cost as JSON. Compiled by
// `run`, because the packages of both libraries are needed for this bench only, and as C++17, because LEMON 1.3 uses what C++20
// removed.
//
//   peers lemon|boost REPEATS < fleet
#define LEMON_ONLY_TEMPLATES 1
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/successive_shortest_path_nonnegative_weights.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>
#include <vector>

namespace {

double cpu_ms() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

struct Fleet {
    int roles = 0, machines = 0;
    std::vector<long> counts, fit;
};

Fleet read_fleet() {
    Fleet out;
    if (std::scanf("%d %d", &out.roles, &out.machines) != 2) std::exit(2);
    out.counts.resize(static_cast<std::size_t>(out.roles));
    out.fit.resize(static_cast<std::size_t>(out.roles) * static_cast<std::size_t>(out.machines));
    for (auto* list : {&out.counts, &out.fit})
        for (auto& one : *list)
            if (std::scanf("%ld", &one) != 1) std::exit(2);
    return out;
}

long long solve_by_lemon(const Fleet& fleet) {
    using Graph = lemon::SmartDigraph;
    Graph graph;
    graph.reserveNode(fleet.roles + fleet.machines + 2);
    std::vector<Graph::Node> nodes;
    for (int i = 0; i < fleet.roles + fleet.machines + 2; ++i) nodes.push_back(graph.addNode());
    Graph::ArcMap<long> capacity(graph), cost(graph);
    const auto add = [&](int from, int to, long limit, long price) {
        const auto arc = graph.addArc(nodes[static_cast<std::size_t>(from)], nodes[static_cast<std::size_t>(to)]);
        capacity[arc] = limit;
        cost[arc] = price;
    };
    long demand = 0;
    for (int r = 0; r < fleet.roles; ++r) {
        add(0, 2 + r, fleet.counts[static_cast<std::size_t>(r)], 0);
        demand += fleet.counts[static_cast<std::size_t>(r)];
    }
    for (int m = 0; m < fleet.machines; ++m) {
        for (int r = 0; r < fleet.roles; ++r)
            if (const auto price =
                    fleet.fit[static_cast<std::size_t>(m) * static_cast<std::size_t>(fleet.roles) + static_cast<std::size_t>(r)];
                price >= 0)
                add(2 + r, 2 + fleet.roles + m, 1, price);
        add(2 + fleet.roles + m, 1, 1, 0);
    }
    lemon::NetworkSimplex<Graph, long, long long> simplex(graph);
    simplex.upperMap(capacity).costMap(cost).stSupply(nodes[0], nodes[1], demand);
    if (simplex.run() != decltype(simplex)::OPTIMAL) return -1;
    return simplex.totalCost<long long>();
}

long long solve_by_boost(const Fleet& fleet) {
    using namespace boost;
    using Traits = adjacency_list_traits<vecS, vecS, directedS>;
    using Graph =
        adjacency_list<vecS, vecS, directedS, no_property,
                       property<edge_capacity_t, long,
                                property<edge_residual_capacity_t, long,
                                         property<edge_reverse_t, Traits::edge_descriptor, property<edge_weight_t, long>>>>>;
    Graph graph(static_cast<std::size_t>(fleet.roles + fleet.machines + 2));
    auto capacity = get(edge_capacity, graph);
    auto reverse = get(edge_reverse, graph);
    auto weight = get(edge_weight, graph);
    const auto add = [&](int from, int to, long limit, long price) {
        const auto there = add_edge(static_cast<std::size_t>(from), static_cast<std::size_t>(to), graph).first;
        const auto back = add_edge(static_cast<std::size_t>(to), static_cast<std::size_t>(from), graph).first;
        capacity[there] = limit;
        capacity[back] = 0;
        weight[there] = price;
        weight[back] = -price;
        reverse[there] = back;
        reverse[back] = there;
    };
    for (int r = 0; r < fleet.roles; ++r) add(0, 2 + r, fleet.counts[static_cast<std::size_t>(r)], 0);
    for (int m = 0; m < fleet.machines; ++m) {
        for (int r = 0; r < fleet.roles; ++r)
            if (const auto price =
                    fleet.fit[static_cast<std::size_t>(m) * static_cast<std::size_t>(fleet.roles) + static_cast<std::size_t>(r)];
                price >= 0)
                add(2 + r, 2 + fleet.roles + m, 1, price);
        add(2 + fleet.roles + m, 1, 1, 0);
    }
    successive_shortest_path_nonnegative_weights(graph, 0, 1);
    const auto residual = get(edge_residual_capacity, graph);
    long long total = 0;
    for (auto [edge, end] = edges(graph); edge != end; ++edge)
        if (capacity[*edge] > 0) total += static_cast<long long>(capacity[*edge] - residual[*edge]) * weight[*edge];
    return total;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const auto fleet = read_fleet();
    std::vector<double> times;
    long long cost = 0;
    for (int i = 0; i < std::atoi(argv[2]); ++i) {
        const auto began = cpu_ms();
        cost = std::strcmp(argv[1], "lemon") == 0 ? solve_by_lemon(fleet) : solve_by_boost(fleet);
        times.push_back(cpu_ms() - began);
    }
    std::sort(times.begin(), times.end());
    std::printf("{\"ms\": %.4f, \"fit\": %lld}\n", times[times.size() / 2], cost);
    return 0;
}
