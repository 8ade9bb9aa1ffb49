#include "fleet/assignment/assignment_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

/// Why a plan is infeasible: the minimum cut of its flow.
namespace orrery::fleet {

namespace {

constexpr std::size_t named_machines = 12;

/// "a", "a and b", "a, b and c".
std::string enumeration(const std::vector<std::string>& names) {
    if (names.size() < 2) return names.empty() ? "" : names.front();
    return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

std::string_view plural(std::int64_t count) { return count == 1 ? "machine" : "machines"; }

class ShortageSearch {
public:
    ShortageSearch(const AssignmentSetup& setup, const ResidualGraph& graph)
        : setup_(setup), problem_(setup.problem), graph_(graph), neighbours_(setup.problem.roles.size()) {
        for (std::size_t i = 0; i < problem_.machines.size(); ++i) {
            const auto& machine = problem_.machines[i];
            if (machine.pinned != no_role || setup.role_of[i] == no_role) continue;
            for (std::size_t role = 0; role < problem_.roles.size(); ++role)
                if (machine.fit[role] != unfit) neighbours_[role] |= std::uint64_t{1} << static_cast<unsigned>(setup.role_of[i]);
        }
    }

    /// All that can be reached from a role with unmet demand in the residual graph, without the sink. The roles among it share
    /// their machines, and all of these are in use.
    std::vector<bool> reachable_from(std::size_t role) const {
        std::vector<bool> reached(graph_.ways.size(), false);
        std::vector<std::uint32_t> open{static_cast<std::uint32_t>(first_role_node + role)};
        reached[open.front()] = true;
        while (!open.empty()) {
            const auto node = open.back();
            open.pop_back();
            const auto reach = [&](std::uint32_t to) {
                if (to < first_role_node || reached[to]) return;
                reached[to] = true;
                open.push_back(to);
            };
            for (const auto& way : graph_.ways[node])
                if (way.left > 0) reach(way.to);
            if (node >= first_role_node + problem_.roles.size()) continue;
            for (std::uint32_t other = 0; other < problem_.roles.size(); ++other) // their machines were placed before the search
                if ((neighbours_[node - first_role_node] >> other & 1U) != 0) reach(first_role_node + other);
        }
        return reached;
    }

    Shortage shortage_of(const std::vector<bool>& reached) const {
        Shortage out;
        for (std::size_t i = 0; i < problem_.roles.size(); ++i)
            if (reached[first_role_node + i]) add_role(i, reached, out);
        for (std::size_t i = 0; i < setup_.classes.size(); ++i) {
            if (!reached[graph_.class_nodes[i]]) continue;
            const auto& members = setup_.classes[i].members;
            out.available += static_cast<std::int64_t>(members.size());
            out.machines.insert(out.machines.end(), members.begin(), members.end());
        }
        for (std::size_t i = 0; i < problem_.machines.size(); ++i)
            if (const auto role = setup_.role_of[i]; role != no_role && reached[first_role_node + static_cast<std::size_t>(role)])
                out.machines.push_back(i);
        std::sort(out.machines.begin(), out.machines.end());
        out.message = describe(out);
        return out;
    }

private:
    void add_role(std::size_t role, const std::vector<bool>& reached, Shortage& out) const {
        out.roles.push_back(role);
        out.needed += problem_.roles[role].count;
        out.available += problem_.roles[role].count - setup_.demand[role]; // placed before the search
        bool limited = false;
        for (const auto& way : graph_.ways[first_role_node + role]) {
            if (!way.forward || way.to < first_role_node || reached[way.to]) continue;
            limited = true; // a domain that is full although machines are left in it
            out.available += way.flow;
        }
        if (limited) out.limited.push_back(role);
    }

    std::string describe(const Shortage& shortage) const {
        std::vector<std::string> roles, machines, limits;
        for (const auto role : shortage.roles) roles.push_back(problem_.roles[role].name);
        for (const auto machine : shortage.machines) {
            if (machines.size() == named_machines) break;
            machines.push_back(problem_.machines[machine].name);
        }
        const bool one = roles.size() == 1;
        auto out = fmt::format("{} {} {} {} {}, ", one ? "role" : "roles", enumeration(roles), one ? "needs" : "need",
                               shortage.needed, plural(shortage.needed));
        if (shortage.limited.empty()) {
            if (shortage.machines.empty())
                out += one ? "but no machine fits it" : "but no machine fits any of them";
            else
                out += fmt::format("but only {} {} {}{}: {}", shortage.available, plural(shortage.available),
                                   shortage.available == 1 ? "fits" : "fit", one ? "" : " any of them", fmt::join(machines, ", "));
            if (const auto more = shortage.machines.size() - machines.size(); more > 0) out += fmt::format(" and {} more", more);
        } else {
            for (const auto role : shortage.limited)
                limits.push_back(
                    fmt::format("at most {} of role {} in each failure domain", setup_.share_of(role), problem_.roles[role].name));
            out += fmt::format("but only {} can be used with {}", shortage.available, enumeration(limits));
        }
        const auto missing = shortage.needed - shortage.available;
        return out + fmt::format("; {} {} missing", missing, missing == 1 ? "is" : "are");
    }

    const AssignmentSetup& setup_;
    const AssignmentProblem& problem_;
    const ResidualGraph& graph_;
    std::vector<std::uint64_t> neighbours_; ///< for each role: the roles that keep a machine that fits it
};

} // namespace

/// Unmet roles whose sets overlap are one shortage: the machines that they share are counted once.
std::vector<Shortage> find_shortages(const AssignmentSetup& setup, const Assignment& solved, const ResidualGraph& graph) {
    const ShortageSearch search(setup, graph);
    std::vector<std::vector<bool>> groups;
    for (std::size_t role = 0; role < setup.problem.roles.size(); ++role) {
        if (solved.missing[role] == 0) continue;
        auto reached = search.reachable_from(role);
        std::erase_if(groups, [&](const std::vector<bool>& known) {
            bool overlaps = false;
            for (std::size_t i = 0; i < known.size() && !overlaps; ++i) overlaps = known[i] && reached[i];
            for (std::size_t i = 0; i < known.size() && overlaps; ++i) reached[i] = reached[i] || known[i];
            return overlaps;
        });
        groups.push_back(std::move(reached));
    }
    std::vector<Shortage> out;
    for (const auto& group : groups) out.push_back(search.shortage_of(group));
    std::sort(out.begin(), out.end(), [](const Shortage& a, const Shortage& b) { return a.roles.front() < b.roles.front(); });
    return out;
}

} // namespace orrery::fleet
