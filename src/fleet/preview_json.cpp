#include "fleet/preview.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

/// The preview for people and programs.
namespace orrery::fleet {

namespace {

std::string_view change_of(const PlannedMachine& machine) {
    if (machine.deployed == machine.assigned) return "keep";
    return machine.deployed == no_role ? "add" : "move";
}

json::array text_array(const std::vector<std::string>& texts) {
    json::array out;
    for (const auto& text : texts) out.emplace_back(text);
    return out;
}

json::object machine_json(const Preview& preview, const PlannedMachine& machine) {
    const auto& spec = machine.machine->spec();
    const auto& cost = machine.fits[static_cast<std::size_t>(machine.assigned)].cost;
    json::object out{{"machine", spec.name}, {"change", change_of(machine)}};
    if (machine.deployed != machine.assigned && machine.deployed != no_role) out["from"] = spec.deployed.role;
    if (machine.pinned == machine.assigned) out["pinned"] = true;
    if (!spec.failure_domain.empty()) out["failure_domain"] = spec.failure_domain;
    out["cost"] = json::object{
        {"surplus", cost.surplus}, {"scarcity", cost.scarcity}, {"benchmark", cost.benchmark}, {"total", cost.total()}};
    return out;
}

json::object role_json(const Preview& preview, std::size_t index) {
    const auto& role = preview.roles[index];
    json::array machines;
    std::int64_t suitable = 0;
    for (const auto& machine : preview.machines) {
        if (machine.unusable.empty() && machine.unassignable.empty() && machine.fits[index].fits) ++suitable;
        if (machine.assigned == static_cast<std::int32_t>(index)) machines.push_back(machine_json(preview, machine));
    }
    json::object out{{"role", role.name}, {"version", role.version}, {"flavor", role.flavor}};
    if (!role.image.empty()) out["image"] = role.image;
    out["count"] = preview.plan.roles[index].count;
    out["assigned"] = machines.size();
    out["missing"] = preview.assignment.missing[index];
    out["suitable"] = suitable;
    out["machines"] = std::move(machines);
    return out;
}

/// Machines that no role can use, with the reasons; machines with the same reasons together.
json::array rejected_json(const Preview& preview) {
    struct Group {
        json::array machines, reasons;
    };
    std::vector<Group> groups;
    std::map<std::string, std::size_t> known;
    for (const auto& machine : preview.machines) {
        if (machine.assigned != no_role) continue;
        json::array reasons;
        std::string key;
        const auto add = [&](std::string_view role, const std::string& message) {
            json::object reason;
            if (!role.empty()) reason["role"] = role;
            reason["message"] = message;
            reasons.push_back(std::move(reason));
            key += fmt::format("{}\n{}\n", role, message);
        };
        if (const auto& unusable = machine.unusable.empty() ? machine.unassignable : machine.unusable; !unusable.empty()) {
            add({}, unusable);
        } else {
            if (std::any_of(machine.fits.begin(), machine.fits.end(), [](const RoleFit& fit) { return fit.fits; })) continue;
            for (std::size_t i = 0; i < machine.fits.size(); ++i)
                add(preview.roles[i].name, fmt::format("{}", fmt::join(machine.fits[i].unmet, "; ")));
        }
        const auto [at, inserted] = known.emplace(std::move(key), groups.size());
        if (inserted) groups.push_back({{}, std::move(reasons)});
        groups[at->second].machines.emplace_back(machine.machine->spec().name);
    }
    json::array out;
    for (auto& group : groups)
        out.push_back(json::object{{"machines", std::move(group.machines)}, {"reasons", std::move(group.reasons)}});
    return out;
}

} // namespace

const PlannedMachine* Preview::find(std::string_view machine) const {
    const auto found =
        std::lower_bound(machines.begin(), machines.end(), machine,
                         [](const PlannedMachine& one, std::string_view wanted) { return one.machine->spec().name < wanted; });
    return found == machines.end() || found->machine->spec().name != machine ? nullptr : &*found;
}

std::vector<const PlannedMachine*> Preview::released() const {
    std::vector<const PlannedMachine*> out;
    for (const auto& machine : machines)
        if (machine.deployed != no_role && machine.assigned == no_role) out.push_back(&machine);
    return out;
}

std::string Preview::message() const {
    if (!feasible()) return fmt::format("plan {} is infeasible: {}", plan.name, fmt::join(problems, "; "));
    std::size_t kept_count = 0;
    for (const auto& machine : machines) kept_count += machine.assigned != no_role && machine.assigned == machine.deployed;
    const auto released_count = released().size();
    if (assignment.cost.added == 0 && assignment.cost.moved == 0 && released_count == 0)
        return fmt::format("plan {}: no change; {} machines keep their role", plan.name, kept_count);
    return fmt::format("plan {} is feasible: {} machines keep their role, {} are added, {} are moved, {} are released", plan.name,
                       kept_count, assignment.cost.added, assignment.cost.moved, released_count);
}

json::object Preview::to_json() const {
    json::object out{{"plan", plan.name}, {"feasible", feasible()}, {"message", message()}, {"digest", digest}};
    out["problems"] = text_array(problems);
    out["warnings"] = text_array(warnings);
    json::array role_list, released_list, spare;
    for (std::size_t i = 0; i < roles.size(); ++i) role_list.push_back(role_json(*this, i));
    for (const auto* machine : released())
        released_list.push_back(
            json::object{{"machine", machine->machine->spec().name}, {"role", machine->machine->spec().deployed.role}});
    for (const auto& machine : machines)
        if (machine.assigned == no_role && machine.deployed == no_role && machine.unusable.empty() &&
            machine.unassignable.empty() &&
            std::any_of(machine.fits.begin(), machine.fits.end(), [](const RoleFit& fit) { return fit.fits; }))
            spare.emplace_back(machine.machine->spec().name);
    const auto& cost = assignment.cost;
    out["cost"] = json::object{
        {"unmet", cost.unmet}, {"moved", cost.moved}, {"added", cost.added}, {"spread", cost.spread}, {"fit", cost.fit}};
    out["roles"] = std::move(role_list);
    out["released"] = std::move(released_list);
    out["spare"] = std::move(spare);
    out["rejected"] = rejected_json(*this);
    return out;
}

std::string machine_message(const Preview& preview, const PlannedMachine& machine) {
    const auto& name = machine.machine->spec().name;
    if (machine.assigned != no_role) {
        const auto& role = preview.roles[static_cast<std::size_t>(machine.assigned)].name;
        const auto& cost = machine.fits[static_cast<std::size_t>(machine.assigned)].cost;
        if (machine.deployed == machine.assigned)
            return fmt::format("plan {} keeps machine {} in role {}", preview.plan.name, name, role);
        if (machine.pinned == machine.assigned)
            return fmt::format("plan {} gives machine {} role {}: it is pinned", preview.plan.name, name, role);
        return fmt::format("plan {} gives machine {} role {} at cost {} (surplus {}, scarcity {}, benchmark {})", preview.plan.name,
                           name, role, cost.total(), cost.surplus, cost.scarcity, cost.benchmark);
    }
    if (const auto& reason = machine.unusable.empty() ? machine.unassignable : machine.unusable; !reason.empty())
        return fmt::format("plan {} does not use machine {}: {}", preview.plan.name, name, reason);
    if (std::any_of(machine.fits.begin(), machine.fits.end(), [](const RoleFit& fit) { return fit.fits; }))
        return fmt::format("plan {} does not need machine {}: other machines fit at a lower cost", preview.plan.name, name);
    return fmt::format("machine {} fits no role of plan {}", name, preview.plan.name);
}

} // namespace orrery::fleet
