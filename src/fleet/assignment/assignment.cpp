#include "fleet/assignment/assignment.h"

#include "core/digest.h"
#include "fleet/assignment/assignment_graph.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

namespace orrery::fleet {

namespace {

std::vector<std::int64_t> priority_ranks(const std::vector<AssignmentRole>& roles) {
    std::set<std::int64_t> priorities;
    for (const auto& role : roles) priorities.insert(role.priority);
    std::vector<std::int64_t> out;
    for (const auto& role : roles) out.push_back(1 + std::distance(priorities.begin(), priorities.find(role.priority)));
    return out;
}

/// What one more machine of a role costs in a domain that has `count` of them: 0 within the fair share, 1 within twice that, ...
std::int64_t crowding(std::int64_t count, std::int64_t share) { return count / share; }

std::uint64_t class_hash(std::uint32_t domain, const AssignmentMachine& machine) {
    std::uint64_t out = mix_bits((static_cast<std::uint64_t>(domain) << 32U) | static_cast<std::uint32_t>(machine.deployed));
    for (const auto cost : machine.fit) out = mix_bits(out ^ static_cast<std::uint32_t>(cost));
    return out;
}

/// Can every deployed machine keep its role? Then an optimum that leaves no demand unmet keeps them all, for each that does not
/// adds or moves one machine more.
bool all_can_stay(const AssignmentProblem& problem) {
    std::vector<std::int64_t> left;
    for (const auto& role : problem.roles) left.push_back(role.spread == Spread::hard ? 0 : role.count);
    bool any = false;
    for (const auto& machine : problem.machines) {
        if (machine.pinned != no_role && --left[static_cast<std::size_t>(machine.pinned)] < 0) return false;
        if (machine.pinned != no_role || machine.deployed == no_role) continue;
        any = true;
        const auto role = static_cast<std::size_t>(machine.deployed);
        if (role >= problem.roles.size() || machine.fit[role] == unfit || --left[role] < 0) return false;
    }
    return any;
}

/// Could a machine that keeps its role meet more of the demand, or more important demand, in another one? Answers for chains of
/// moves over roles, without failure domains, so that "no" is certain and "yes" is not.
bool moves_could_help(const AssignmentProblem& problem, const std::vector<std::int64_t>& ranks, const Assignment& solved) {
    const auto roles = problem.roles.size();
    std::vector<std::uint64_t> from(roles, 0); // for each role: the roles whose machines fit it
    std::uint64_t has_spare = 0;               // roles that an unused machine fits
    for (std::size_t i = 0; i < problem.machines.size(); ++i) {
        const auto& machine = problem.machines[i];
        if (machine.pinned != no_role) continue;
        for (std::size_t role = 0; role < roles; ++role) {
            if (machine.fit[role] == unfit) continue;
            if (solved.role_of[i] == no_role)
                has_spare |= std::uint64_t{1} << role;
            else
                from[role] |= std::uint64_t{1} << static_cast<unsigned>(solved.role_of[i]);
        }
    }
    for (std::size_t role = 0; role < roles; ++role) {
        if (solved.missing[role] == 0) continue;
        std::uint64_t reached = std::uint64_t{1} << role;
        for (std::uint64_t before = 0; before != reached;) {
            before = reached;
            for (std::size_t other = 0; other < roles; ++other)
                if ((reached >> other & 1U) != 0) reached |= from[other];
        }
        if ((reached & has_spare) != 0) return true;
        for (std::size_t other = 0; other < roles; ++other)
            if ((reached >> other & 1U) != 0 && ranks[other] < ranks[role]) return true;
    }
    return false;
}

Assignment solve_setup(const AssignmentSetup& setup) {
    const CostWeights weights(setup);
    return weights.fit_in_64_bits() ? AssignmentGraph<std::int64_t>(setup, weights).solve()
                                    : AssignmentGraph<WideCost>(setup, weights).solve();
}

} // namespace

std::int64_t fair_share(std::int64_t count, std::size_t domains) {
    if (domains == 0) return std::max<std::int64_t>(count, 1);
    const auto number = static_cast<std::int64_t>(domains);
    return std::max<std::int64_t>(1, (count + number - 1) / number);
}

AssignmentSetup::AssignmentSetup(const AssignmentProblem& problem_, Keep keep)
    : problem(problem_), rank(priority_ranks(problem_.roles)) {
    role_of.assign(problem.machines.size(), no_role);
    for (const auto& role : problem.roles) demand.push_back(std::clamp<std::int64_t>(role.count, 0, max_demand));
    uses.resize(problem.roles.size());
    std::unordered_map<std::string_view, std::uint32_t> indexes;
    for (const auto& machine : problem.machines)
        domain_of.push_back(indexes.emplace(machine.domain, static_cast<std::uint32_t>(indexes.size())).first->second);
    domains = indexes.size();
    for (std::size_t i = 0; i < problem.machines.size(); ++i) {
        const auto& machine = problem.machines[i];
        if (machine.pinned != no_role)
            preassign(i, machine.pinned);
        else if (keep == Keep::all && machine.deployed != no_role)
            preassign(i, machine.deployed);
    }
    group_machines();
    for (const auto& one : classes)
        for (std::size_t role = 0; role < problem.roles.size(); ++role)
            if (one.sample->fit[role] != unfit) uses[role][one.domain].suitable += static_cast<std::int64_t>(one.members.size());
    count_domains_of_placed();
}

/// A domain counts for the fair share of every role that a machine there fits, also where the machine is placed already.
void AssignmentSetup::count_domains_of_placed() {
    std::vector<bool> seen(problem.roles.size() * domains, false);
    for (std::size_t i = 0; i < problem.machines.size(); ++i) {
        if (problem.machines[i].pinned != no_role || role_of[i] == no_role) continue;
        for (std::size_t role = 0; role < problem.roles.size(); ++role) {
            const auto at = role * domains + domain_of[i];
            if (seen[at] || problem.machines[i].fit[role] == unfit) continue;
            seen[at] = true;
            uses[role].try_emplace(domain_of[i]);
        }
    }
}

/// A machine that is placed before the search makes the demand smaller by one.
void AssignmentSetup::preassign(std::size_t machine, std::int32_t role) {
    auto& left = demand[static_cast<std::size_t>(role)];
    if (left == 0) return;
    --left;
    role_of[machine] = role;
    ++uses[static_cast<std::size_t>(role)][domain_of[machine]].placed;
}

void AssignmentSetup::group_machines() {
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_hash;
    by_hash.reserve(problem.machines.size() / 4 + 16);
    for (std::size_t i = 0; i < problem.machines.size(); ++i) {
        const auto& machine = problem.machines[i];
        if (machine.pinned != no_role || role_of[i] != no_role) continue;
        if (std::all_of(machine.fit.begin(), machine.fit.end(), [](auto cost) { return cost == unfit; })) continue;
        any_deployed = any_deployed || machine.deployed != no_role;
        auto& candidates = by_hash[class_hash(domain_of[i], machine)];
        const auto same = std::find_if(candidates.begin(), candidates.end(), [&](std::size_t at) {
            const auto& known = classes[at];
            return known.domain == domain_of[i] && known.sample->deployed == machine.deployed && known.sample->fit == machine.fit;
        });
        if (same != candidates.end()) {
            classes[*same].members.push_back(i);
            continue;
        }
        candidates.push_back(classes.size());
        classes.push_back({domain_of[i], &machine, {i}});
    }
}

CostWeights::CostWeights(const AssignmentSetup& setup) {
    WideCost units = 1, fit = 1, levels = 1, ranks = 1;
    for (const auto demand : setup.demand) units += demand;
    for (const auto& one : setup.classes)
        for (const auto cost : one.sample->fit) fit = std::max<WideCost>(fit, cost);
    for (std::size_t role = 0; role < setup.uses.size(); ++role) {
        ranks = std::max<WideCost>(ranks, setup.rank[role]);
        for (const auto& [domain, use] : setup.uses[role])
            levels = std::max<WideCost>(levels, 1 + crowding(use.placed + use.suitable, setup.share_of(role)));
    }
    spread = units * fit + 1;
    const WideCost next = spread * units * levels;
    added = setup.any_deployed ? next : 0; // else every machine is added, and the level decides nothing
    moved = added * units;
    unmet = setup.any_deployed ? moved * units : next;
    total = unmet * ranks * units;
}

bool CostWeights::fit_in_64_bits() const { return total < std::numeric_limits<std::int64_t>::max() / 16; }

Assignment assign(const AssignmentProblem& problem) {
    if (all_can_stay(problem)) {
        const AssignmentSetup setup(problem, AssignmentSetup::Keep::all);
        auto out = solve_setup(setup);
        if (out.shortages.empty() || !moves_could_help(problem, setup.rank, out)) return out;
    }
    return solve_setup(AssignmentSetup(problem, AssignmentSetup::Keep::by_cost));
}

AssignmentCost cost_of(const AssignmentProblem& problem, const std::vector<std::int32_t>& role_of) {
    AssignmentCost out;
    const auto roles = problem.roles.size();
    std::unordered_map<std::string_view, std::size_t> domains;
    for (const auto& machine : problem.machines) domains.emplace(machine.domain, domains.size());
    constexpr std::int64_t no_candidate = -1;
    std::vector<std::int64_t> assigned(roles, 0), in_domain(roles * domains.size(), no_candidate);
    for (std::size_t i = 0; i < role_of.size(); ++i) {
        const auto& machine = problem.machines[i];
        const auto domain = domains.at(machine.domain);
        for (std::size_t role = 0; role < roles; ++role) { // the domains that the fair share counts
            auto& count = in_domain[role * domains.size() + domain];
            const bool candidate =
                machine.pinned == no_role ? machine.fit[role] != unfit : role_of[i] == static_cast<std::int32_t>(role);
            if (candidate && count == no_candidate) count = 0;
        }
        if (role_of[i] == no_role) continue;
        const auto role = static_cast<std::size_t>(role_of[i]);
        ++assigned[role];
        ++in_domain[role * domains.size() + domain];
        out.fit += std::max(machine.fit[role], 0);
        if (machine.deployed == role_of[i]) continue;
        ++(machine.deployed == no_role ? out.added : out.moved);
    }
    const auto ranks = priority_ranks(problem.roles);
    for (std::size_t role = 0; role < roles; ++role) {
        out.unmet += ranks[role] * std::max<std::int64_t>(0, problem.roles[role].count - assigned[role]);
        if (problem.roles[role].spread == Spread::none) continue;
        const auto* begin = in_domain.data() + role * domains.size();
        const auto* end = begin + domains.size();
        const auto candidates = std::count_if(begin, end, [](auto count) { return count != no_candidate; });
        const auto share = fair_share(problem.roles[role].count, static_cast<std::size_t>(candidates));
        for (const auto* count = begin; count != end; ++count)
            for (std::int64_t i = 0; i < *count; ++i) out.spread += crowding(i, share);
    }
    return out;
}

} // namespace orrery::fleet
