#include "fleet/planner.h"

#include "core/truncate.h"
#include "fleet/flavor.h"
#include "resource/object.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::fleet {

namespace {

/// An explanation covers this many plans at most.
constexpr std::size_t max_explained_plans = 20;

json::object suggestions_json(const Inventory& inventory, const std::vector<store::RecordPtr>& flavor_records) {
    std::vector<FlavorSpec> flavors;
    for (const auto& record : flavor_records)
        if (auto object = resource::from_stored(*record); object.ok()) flavors.push_back(FlavorSpec::from(*object));
    std::vector<std::pair<std::string, HardwareProperties>> machines;
    for (const auto& machine : inventory.machines) machines.emplace_back(machine.spec().name, machine.properties);
    const auto found = suggest_flavors(machines, flavors);
    json::array list, unknown;
    for (const auto& one : found.flavors) {
        json::array names;
        for (const auto& name : one.machines) names.emplace_back(name);
        auto spec = to_json(one.properties);
        spec["mode"] = "exact";
        list.push_back(json::object{{"name", one.name}, {"spec", std::move(spec)}, {"machines", std::move(names)}});
    }
    for (const auto& name : found.not_introspected) unknown.emplace_back(name);
    return {{"flavors", std::move(list)}, {"not_introspected", std::move(unknown)}};
}

json::object outliers_json(const Inventory& inventory) {
    json::array list;
    std::size_t measured = 0, compared = 0;
    for (const auto& machine : inventory.machines) {
        const auto verdict = machine.performance.verdict;
        if (verdict == PerformanceVerdict::not_measured) continue;
        ++measured;
        if (verdict != PerformanceVerdict::not_enough_data) ++compared;
        if (verdict == PerformanceVerdict::normal || verdict == PerformanceVerdict::not_enough_data) continue;
        auto one = to_json(machine.performance);
        json::object entry{{"machine", machine.spec().name}};
        for (auto& [key, value] : one) entry[key] = std::move(value);
        list.push_back(std::move(entry));
    }
    return {{"machines", std::move(list)}, {"measured", measured}, {"compared", compared}};
}

/// The machine in one plan: the result of each role.
json::object machine_in_plan(const Preview& preview, const PlannedMachine& machine) {
    json::object out{{"plan", preview.plan.name}, {"message", machine_message(preview, machine)}};
    json::array roles;
    for (std::size_t i = 0; i < preview.roles.size(); ++i) {
        const auto& fit = machine.fits[i];
        json::object one{{"role", preview.roles[i].name}};
        one["message"] =
            fit.fits ? fmt::format("fits at cost {}", fit.cost.total()) : fmt::format("{}", fmt::join(fit.unmet, "; "));
        if (machine.assigned == static_cast<std::int32_t>(i)) one["state"] = "assigned";
        roles.push_back(std::move(one));
    }
    out["roles"] = std::move(roles);
    return out;
}

} // namespace

Task<json::object> Planner::preview(Context, std::string plan) {
    auto work = [records = FleetRecords::collect(resources_), plan = std::move(plan), &reader = reader_]() -> Result<json::object> {
        TRY(const auto made, make_preview(records, plan, reader));
        return made.to_json();
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<json::object> Planner::suggest_flavors(Context) {
    auto work = [records = FleetRecords::collect(resources_), &reader = reader_]() -> Result<json::object> {
        return suggestions_json(reader.read(records, {}), records.flavors);
    };
    co_return co_await blocking(pool_, std::move(work));
}

Task<json::object> Planner::outliers(Context) {
    auto work = [records = FleetRecords::collect(resources_), &reader = reader_]() -> Result<json::object> {
        return outliers_json(reader.read(records, {}));
    };
    co_return co_await blocking(pool_, std::move(work));
}

Result<json::object> Planner::explain_machine(const resource::ExplainRequest& request) {
    const auto records = FleetRecords::collect(resources_);
    const auto inventory = reader_.read(records, {});
    const auto* machine = inventory.find(request.name);
    if (machine == nullptr)
        return Error{Code::not_found, fmt::format("there is no Machine named \"{}\"", truncate(request.name, 253))};
    json::object out;
    std::vector<std::string> sentences;
    const auto& deployed = machine->spec().deployed;
    if (!deployed.empty())
        sentences.push_back(fmt::format("machine {} runs role {} of plan {}", request.name, deployed.role, deployed.plan));
    json::array plans;
    for (const auto& record : records.plans) {
        if (plans.size() == max_explained_plans) break;
        const auto plan = record->key.substr(record->key.find('/') + 1);
        const auto made = make_preview(records, plan, reader_);
        const auto* planned = made.ok() ? made->find(request.name) : nullptr;
        if (planned == nullptr) continue;
        if (planned->assigned != no_role && deployed.empty()) sentences.push_back(machine_message(*made, *planned));
        plans.push_back(machine_in_plan(*made, *planned));
    }
    if (sentences.empty())
        sentences.push_back(plans.empty() ? fmt::format("machine {} has no role: there is no plan", request.name)
                                          : fmt::format("machine {} has no role in any plan", request.name));
    out["message"] = fmt::format("{}", fmt::join(sentences, "; "));
    out["properties"] = to_json(machine->properties);
    out["facts"] =
        machine->facts ? fmt::format("{} facts", machine->facts->facts.size()) : std::string("none: it was not introspected");
    out["benchmark"] = json::array{to_json(machine->performance)};
    out["plans"] = std::move(plans);
    return out;
}

Result<json::object> Planner::explain_plan(const resource::ExplainRequest& request) {
    const auto records = FleetRecords::collect(resources_);
    TRY(const auto made, make_preview(records, request.name, reader_));
    auto out = made.to_json();
    json::array roles;
    for (std::size_t i = 0; i < made.roles.size(); ++i)
        roles.push_back(json::object{{"role", made.roles[i].name},
                                     {"count", made.plan.roles[i].count},
                                     {"missing", made.assignment.missing[i]},
                                     {"flavor", made.roles[i].flavor}});
    out["roles"] = std::move(roles);
    for (const auto* key : {"plan", "cost", "spare"}) out.erase(key);
    return out;
}

void add_explainers(resource::Explainers& explainers, Planner& planner) {
    using resource::Explainers;
    explainers.add("Machine", Explainers::History::no,
                   [&planner](const auto& request) { return planner.explain_machine(request); });
    explainers.add("Plan", Explainers::History::no, [&planner](const auto& request) { return planner.explain_plan(request); });
}

} // namespace orrery::fleet
