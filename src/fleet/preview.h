#pragma once

#include "fleet/assignment/assignment.h"
#include "fleet/inventory.h"

#include <boost/json/object.hpp>

#include <map>
#include <string>
#include <vector>

/// The preview of a plan: which machine gets which role, at what cost, and why the others do not. Pure: the same records give the
/// same preview.
namespace orrery::fleet {

/// The parts of a machine's cost for a role, as shown to users.
struct FitCost {
    std::int64_t surplus = 0;   ///< of the machine over the flavor (flavor.h)
    std::int64_t scarcity = 0;  ///< other roles of the plan that could use the machine
    std::int64_t benchmark = 0; ///< penalty of a machine that deviates from identical ones
    std::int64_t total() const { return surplus + scarcity + benchmark; }
};

/// A machine and a role: the cost, or what is missing.
struct RoleFit {
    bool fits = false;
    FitCost cost;
    std::vector<std::string> unmet;
};

/// A machine under the plan.
struct PlannedMachine {
    const InventoryMachine* machine = nullptr;
    std::string unusable;            ///< why no role may use it; empty: usable
    std::string unassignable;        ///< why only the role that it has may use it; empty: any that fits
    std::vector<RoleFit> fits;       ///< for each role
    std::int32_t assigned = no_role; ///< index of the role
    std::int32_t deployed = no_role; ///< index of the role; the number of roles where the plan no longer has it
    std::int32_t pinned = no_role;
};

/// Machines point into the inventory, so that it moves but is not copied.
struct Preview {
    Preview() = default;
    Preview(Preview&&) = default;
    Preview& operator=(Preview&&) = default;

    PlanSpec plan;
    std::vector<RoleSpec> roles; ///< of the plan, in its order
    std::map<std::string, FlavorSpec> flavors;
    Inventory inventory;
    std::vector<PlannedMachine> machines; ///< all of the inventory, in the order of their names
    Assignment assignment;
    std::vector<std::string> problems; ///< why the plan cannot be carried out; empty: it can
    std::vector<std::string> warnings;
    std::string digest; ///< of all inputs

    bool feasible() const { return problems.empty(); }
    std::string message() const;
    const PlannedMachine* find(std::string_view machine) const;
    /// Machines that were deployed by the plan and are not wanted any more.
    std::vector<const PlannedMachine*> released() const;
    json::object to_json() const;
};

/// `not_found` where there is no such plan.
Result<Preview> make_preview(const FleetRecords& records, std::string_view plan, InventoryReader& reader);

/// Why the machine has its role or none, in one sentence.
std::string machine_message(const Preview& preview, const PlannedMachine& machine);

} // namespace orrery::fleet
