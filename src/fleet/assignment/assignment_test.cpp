#include "fleet/assignment/assignment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

namespace orrery::fleet {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

AssignmentMachine fitting(std::string name, std::vector<std::int32_t> fit, std::string domain = {},
                          std::int32_t deployed = no_role) {
    return {.name = std::move(name), .domain = std::move(domain), .deployed = deployed, .fit = std::move(fit)};
}

/// An independent solver: one vertex for each machine, successive shortest paths by Bellman-Ford, one unit at a time.
class ReferenceSolver {
public:
    __extension__ using Cost = __int128;

    explicit ReferenceSolver(const AssignmentProblem& problem) {
        const auto roles = problem.roles.size();
        std::map<std::int64_t, std::int64_t> ranks;
        for (const auto& role : problem.roles) ranks[role.priority] = 0;
        for (std::int64_t rank = 0; auto& [priority, value] : ranks) value = ++rank;
        nodes_ = static_cast<int>(2 + roles + problem.machines.size());
        for (std::size_t r = 0; r < roles; ++r) {
            std::map<std::string, int> domains;
            for (const auto& machine : problem.machines)
                if (machine.fit[r] != unfit) domains.emplace(machine.domain, 0);
            const auto share = domains.empty() ? 1 : (problem.roles[r].count + std::ssize(domains) - 1) / std::ssize(domains);
            const int role = static_cast<int>(2 + r);
            add(0, role, problem.roles[r].count, 0);
            add(role, 1, problem.roles[r].count, unmet * ranks[problem.roles[r].priority]);
            for (auto& [name, node] : domains) {
                node = nodes_++;
                for (std::int64_t i = 0; i < problem.roles[r].count; ++i) {
                    const auto level = problem.roles[r].spread == Spread::none ? 0 : i / std::max<std::int64_t>(1, share);
                    if (problem.roles[r].spread == Spread::hard && level > 0) break;
                    add(role, node, 1, crowded * level);
                }
            }
            for (std::size_t m = 0; m < problem.machines.size(); ++m) {
                const auto& machine = problem.machines[m];
                if (machine.fit[r] == unfit) continue;
                Cost cost = machine.fit[r];
                if (machine.deployed == no_role) cost += added;
                if (machine.deployed != no_role && machine.deployed != static_cast<int>(r)) cost += moved;
                add(domains.at(machine.domain), static_cast<int>(2 + roles + m), 1, cost);
            }
        }
        for (std::size_t m = 0; m < problem.machines.size(); ++m) add(static_cast<int>(2 + roles + m), 1, 1, 0);
    }

    Cost solve() {
        Cost total = 0;
        for (;;) {
            std::vector<Cost> distance(static_cast<std::size_t>(nodes_), infinite);
            std::vector<int> via(static_cast<std::size_t>(nodes_), -1);
            distance[0] = 0;
            for (bool changed = true; changed;) {
                changed = false;
                for (std::size_t a = 0; a < arcs_.size(); ++a) {
                    const auto& arc = arcs_[a];
                    const auto from = static_cast<std::size_t>(arc.from), to = static_cast<std::size_t>(arc.to);
                    if (arc.left == 0 || distance[from] >= infinite || distance[from] + arc.cost >= distance[to]) continue;
                    distance[to] = distance[from] + arc.cost;
                    via[to] = static_cast<int>(a);
                    changed = true;
                }
            }
            if (distance[1] >= infinite) return total;
            total += distance[1];
            for (int node = 1; node != 0;) {
                const auto a = static_cast<std::size_t>(via[static_cast<std::size_t>(node)]);
                --arcs_[a].left;
                ++arcs_[a ^ 1U].left;
                node = arcs_[a].from;
            }
        }
    }

    static Cost total(const AssignmentCost& cost) {
        return cost.unmet * unmet + cost.moved * moved + cost.added * added + cost.spread * crowded + cost.fit;
    }

private:
    static constexpr Cost crowded = Cost(1) << 40, added = Cost(1) << 60, moved = Cost(1) << 80, unmet = Cost(1) << 100,
                          infinite = Cost(1) << 120;
    struct ReferenceArc {
        int from, to;
        std::int64_t left;
        Cost cost;
    };
    void add(int from, int to, std::int64_t capacity, Cost cost) {
        arcs_.push_back({from, to, capacity, cost});
        arcs_.push_back({to, from, 0, -cost});
    }
    int nodes_ = 0;
    std::vector<ReferenceArc> arcs_;
};

void expect_valid(const AssignmentProblem& problem, const Assignment& solved) {
    std::vector<std::int64_t> assigned(problem.roles.size(), 0);
    for (std::size_t m = 0; m < problem.machines.size(); ++m) {
        if (solved.role_of[m] == no_role) continue;
        const auto role = static_cast<std::size_t>(solved.role_of[m]);
        ++assigned[role];
        EXPECT_TRUE(problem.machines[m].pinned == solved.role_of[m] || problem.machines[m].fit[role] != unfit);
    }
    for (std::size_t r = 0; r < problem.roles.size(); ++r)
        EXPECT_EQ(assigned[r] + solved.missing[r], problem.roles[r].count) << problem.roles[r].name;
}

} // namespace

TEST(Assignment, SolvesWhatGreedyMatchingFails) {
    // n1 fits both roles and n2 only control: a greedy match that takes n1 for control finds nothing for storage.
    const AssignmentProblem problem{{{"control", 1}, {"storage", 1}}, {fitting("n1", {0, 0}), fitting("n2", {5, unfit})}};
    const auto solved = assign(problem);
    EXPECT_THAT(solved.role_of, ElementsAre(1, 0));
    EXPECT_TRUE(solved.shortages.empty());
}

TEST(Assignment, TakesTheTightestFit) {
    const AssignmentProblem problem{{{"control", 1}}, {fitting("big", {900}), fitting("small", {10})}};
    EXPECT_THAT(assign(problem).role_of, ElementsAre(no_role, 0));
}

TEST(Assignment, KeepsDeployedMachinesAlthoughOthersFitBetter) {
    const AssignmentProblem problem{{{"control", 2}}, {fitting("a", {0}), fitting("b", {5000}, "", 0), fitting("c", {0})}};
    const auto solved = assign(problem);
    EXPECT_THAT(solved.role_of, ElementsAre(0, 0, no_role));
    EXPECT_EQ(solved.cost.added, 1);
    EXPECT_EQ(solved.cost.moved, 0);
}

TEST(Assignment, MovesADeployedMachineOnlyWhenNothingElseMeetsTheDemand) {
    AssignmentProblem problem{{{"control", 1}, {"compute", 1}}, {fitting("a", {0, 0}, "", 1), fitting("b", {unfit, 0})}};
    EXPECT_THAT(assign(problem).role_of, ElementsAre(0, 1));
    problem.machines.push_back(fitting("c", {9000, unfit}));
    EXPECT_THAT(assign(problem).role_of, ElementsAre(1, no_role, 0));
}

TEST(Assignment, SpreadsOverFailureDomains) {
    const std::vector<AssignmentMachine> machines = {fitting("a1", {0}, "a"), fitting("a2", {0}, "a"), fitting("a3", {0}, "a"),
                                                     fitting("b1", {50}, "b"), fitting("c1", {50}, "c")};
    const AssignmentProblem soft{{{"control", 3, 0, Spread::soft}}, machines};
    EXPECT_THAT(assign(soft).role_of, ElementsAre(0, no_role, no_role, 0, 0));
    const AssignmentProblem none{{{"control", 3, 0, Spread::none}}, machines};
    EXPECT_THAT(assign(none).role_of, ElementsAre(0, 0, 0, no_role, no_role));
}

TEST(Assignment, HardSpreadLeavesDemandUnmetAndExplainsIt) {
    const AssignmentProblem problem{
        {{"control", 3, 0, Spread::hard}},
        {fitting("a1", {0}, "a"), fitting("a2", {0}, "a"), fitting("a3", {0}, "a"), fitting("b1", {0}, "b")}};
    auto solved = assign(problem);
    EXPECT_THAT(solved.missing, ElementsAre(0)) << "two in each domain are the fair share of three";
    AssignmentProblem larger = problem;
    larger.roles[0].count = 4;
    solved = assign(larger);
    EXPECT_THAT(solved.missing, ElementsAre(1));
    ASSERT_EQ(solved.shortages.size(), 1U);
    EXPECT_EQ(solved.shortages[0].message,
              "role control needs 4 machines, but only 3 can be used with at most 2 of role control in "
              "each failure domain; 1 is missing");
}

TEST(Assignment, ExplainsAnInfeasiblePlanByTheMinimumCut) {
    const AssignmentProblem problem{{{"ceph", 3}, {"compute", 1}, {"control", 3}},
                                    {fitting("n1", {0, unfit, 0}), fitting("n2", {unfit, 0, unfit}),
                                     fitting("n4", {0, unfit, unfit}), fitting("n7", {0, unfit, 0}),
                                     fitting("n9", {unfit, unfit, 0})}};
    const auto solved = assign(problem);
    ASSERT_EQ(solved.shortages.size(), 1U);
    EXPECT_EQ(solved.shortages[0].message,
              "roles ceph and control need 6 machines, but only 4 machines fit any of them: n1, n4, n7, n9; 2 are missing");
}

TEST(Assignment, ReportsSeparateShortagesSeparately) {
    const AssignmentProblem problem{{{"a", 2}, {"b", 1}}, {fitting("n1", {0, unfit})}};
    const auto solved = assign(problem);
    ASSERT_EQ(solved.shortages.size(), 2U);
    EXPECT_EQ(solved.shortages[0].message, "role a needs 2 machines, but only 1 machine fits: n1; 1 is missing");
    EXPECT_EQ(solved.shortages[1].message, "role b needs 1 machine, but no machine fits it; 1 is missing");
}

TEST(Assignment, GivesScarceMachinesToTheHigherPriority) {
    AssignmentProblem problem{{{"a", 2, 0}, {"b", 2, 5}}, {fitting("n1", {0, 0}), fitting("n2", {0, 0})}};
    EXPECT_THAT(assign(problem).missing, ElementsAre(2, 0));
    problem.roles[0].priority = 9;
    EXPECT_THAT(assign(problem).missing, ElementsAre(0, 2));
}

TEST(Assignment, PinsReduceTheDemand) {
    AssignmentProblem problem{{{"control", 2}, {"compute", 1}},
                              {fitting("n1", {0, 0}), fitting("n2", {0, 0}), fitting("n3", {unfit, unfit})}};
    problem.machines[2].pinned = 0;
    auto solved = assign(problem);
    EXPECT_EQ(solved.role_of[2], 0);
    EXPECT_TRUE(solved.shortages.empty());
    problem.roles[0].count = 4;
    solved = assign(problem);
    ASSERT_EQ(solved.shortages.size(), 1U);
    EXPECT_THAT(solved.shortages[0].message, HasSubstr("roles control and compute need 5 machines, but only 3 machines fit"));
}

TEST(Assignment, TheSameInputGivesTheSameResult) {
    std::mt19937 dice(7);
    AssignmentProblem problem;
    for (int r = 0; r < 4; ++r) problem.roles.push_back({fmt::format("r{}", r), 20, r % 2, Spread::soft});
    for (int m = 0; m < 200; ++m)
        problem.machines.push_back(fitting(fmt::format("m{:03}", m), {int(dice() % 3), int(dice() % 3), unfit, int(dice() % 9)},
                                           fmt::format("rack{}", dice() % 5)));
    const auto first = assign(problem), second = assign(problem);
    EXPECT_EQ(first.role_of, second.role_of);
}

/// Every edit is made to a fleet that runs the result of the edit before. After each, the cost is the optimum that the independent
/// solver finds, so that no machine changes without need.
class AssignmentEdits : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, AssignmentEdits, ::testing::Values(20261116U, 7U));

TEST_P(AssignmentEdits, AThousandEditsEachGiveTheOptimumOfAnIndependentSolver) {
    std::mt19937 dice(GetParam());
    const auto below = [&dice](int limit) { return static_cast<int>(dice() % static_cast<unsigned>(limit)); };
    AssignmentProblem problem;
    for (int r = 0; r < 4; ++r)
        problem.roles.push_back({fmt::format("r{}", r), 1 + below(4), below(3), static_cast<Spread>(below(3))});
    int next = 0;
    const auto new_machine = [&] {
        AssignmentMachine machine = fitting(fmt::format("m{:05}", next++), {}, fmt::format("d{}", below(4)));
        for (std::size_t r = 0; r < problem.roles.size(); ++r) machine.fit.push_back(below(3) == 0 ? unfit : 100 * below(4));
        return machine;
    };
    for (int i = 0; i < 12; ++i) problem.machines.push_back(new_machine());
    int changed_role = 0;
    for (int edit = 0; edit < 1000; ++edit) {
        switch (below(6)) {
        case 0: problem.machines.push_back(new_machine()); break;
        case 1:
            if (problem.machines.size() > 4)
                problem.machines.erase(problem.machines.begin() + below(static_cast<int>(problem.machines.size())));
            break;
        case 2: problem.roles[static_cast<std::size_t>(below(4))].count = below(6); break;
        case 3: problem.roles[static_cast<std::size_t>(below(4))].priority = below(3); break;
        case 4: problem.roles[static_cast<std::size_t>(below(4))].spread = static_cast<Spread>(below(3)); break;
        default: {
            auto& machine = problem.machines[static_cast<std::size_t>(below(static_cast<int>(problem.machines.size())))];
            machine.fit[static_cast<std::size_t>(below(4))] = below(3) == 0 ? unfit : 100 * below(4);
            machine.deployed = below(8) == 0 ? no_role : machine.deployed;
        }
        }
        const auto solved = assign(problem);
        expect_valid(problem, solved);
        const auto ours = ReferenceSolver::total(solved.cost), best = ReferenceSolver(problem).solve();
        ASSERT_TRUE(ours == best) << "edit " << edit << " is not optimal: unmet " << solved.cost.unmet << " moved "
                                  << solved.cost.moved << " added " << solved.cost.added << " spread " << solved.cost.spread
                                  << " fit " << solved.cost.fit;
        std::int64_t missing = 0, explained = 0;
        for (const auto one : solved.missing) missing += one;
        for (const auto& one : solved.shortages) explained += one.needed - one.available;
        ASSERT_EQ(missing, explained) << "edit " << edit;
        for (std::size_t m = 0; m < problem.machines.size(); ++m) {
            changed_role += problem.machines[m].deployed != solved.role_of[m];
            problem.machines[m].deployed = solved.role_of[m];
        }
    }
    EXPECT_GT(changed_role, 100) << "the edits had consequences";
}

TEST(Assignment, SolvesFiveThousandMachinesInFewClasses) {
    std::mt19937 dice(5);
    AssignmentProblem problem;
    for (int r = 0; r < 8; ++r) problem.roles.push_back({fmt::format("r{}", r), 500, r, Spread::soft});
    std::vector<std::vector<std::int32_t>> types;
    for (int t = 0; t < 20; ++t) {
        types.emplace_back();
        for (int r = 0; r < 8; ++r) types.back().push_back(dice() % 3 == 0 ? unfit : static_cast<int>(dice() % 3000));
    }
    for (int m = 0; m < 5000; ++m)
        problem.machines.push_back(fitting(fmt::format("m{:05}", m), types[dice() % types.size()], fmt::format("rack{}", m / 250)));
    const auto solved = assign(problem);
    EXPECT_LE(solved.classes, 400U);
    EXPECT_TRUE(solved.shortages.empty());
    expect_valid(problem, solved);
}

} // namespace orrery::fleet
