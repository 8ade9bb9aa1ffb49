#pragma once

#include "fleet/model.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Which machine gets which role: the exact optimum of a minimum-cost flow, the same for the same input.
namespace orrery::fleet {

constexpr std::int32_t no_role = -1;
/// The machine does not fit the role.
constexpr std::int32_t unfit = -1;
/// Limits of one problem; with them every cost fits into one number.
constexpr std::size_t max_roles = 64;
constexpr std::int64_t max_demand = 100'000;
constexpr std::int32_t max_fit_cost = 16'000;

struct AssignmentRole {
    std::string name;
    std::int64_t count = 0;
    std::int64_t priority = 0;
    Spread spread = Spread::none;
};

struct AssignmentMachine {
    std::string name;
    std::string domain;                 ///< failure domain
    std::int32_t deployed = no_role;    ///< the role that it was deployed with
    std::int32_t pinned = no_role;      ///< the role that it must get
    std::vector<std::int32_t> fit = {}; ///< cost for each role, 0 to max_fit_cost, or `unfit`
};

struct AssignmentProblem {
    std::vector<AssignmentRole> roles;
    std::vector<AssignmentMachine> machines; ///< in the order of their names
};

/// The cost of an assignment. Earlier members count more than all later ones together.
struct AssignmentCost {
    std::int64_t unmet = 0;  ///< machines that are missing, weighted by the rank of the role's priority
    std::int64_t moved = 0;  ///< machines that change their role
    std::int64_t added = 0;  ///< machines that get a role and had none
    std::int64_t spread = 0; ///< machines beyond the fair share of a failure domain, weighted by how far beyond
    std::int64_t fit = 0;    ///< sum of the fit costs
    bool operator==(const AssignmentCost&) const = default;
};

/// Roles that together need more machines than fit any of them.
struct Shortage {
    std::vector<std::size_t> roles;
    std::vector<std::size_t> machines; ///< all that fit one of the roles and can be used
    std::int64_t needed = 0, available = 0;
    std::vector<std::size_t> limited; ///< roles that failure domains limit
    std::string message;              ///< one sentence
};

struct Assignment {
    std::vector<std::int32_t> role_of; ///< for each machine: its role, or no_role
    std::vector<std::int64_t> missing; ///< for each role
    std::vector<Shortage> shortages;   ///< empty: the plan is feasible
    AssignmentCost cost;
    std::size_t classes = 0; ///< groups of machines with different costs
};

/// The fair share of a role in each failure domain: the count, divided by the number of domains with a suitable machine, rounded
/// up.
std::int64_t fair_share(std::int64_t count, std::size_t domains);

/// Solves the problem. Machines with the same domain, deployed role and fit costs are one class, so that the effort depends on the
/// number of classes rather than of machines.
Assignment assign(const AssignmentProblem& problem);

/// The cost of any assignment of the problem, by definition: for tests and for the display.
AssignmentCost cost_of(const AssignmentProblem& problem, const std::vector<std::int32_t>& role_of);

} // namespace orrery::fleet
