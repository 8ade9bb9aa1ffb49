#include "fleet/preview.h"

#include "core/digest.h"
#include "core/truncate.h"
#include "fleet/flavor.h"
#include "resource/object.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::fleet {

namespace {

constexpr std::int64_t slow_penalty = 4'000;
constexpr std::int64_t subpopulation_penalty = 500;
/// Of a deployed machine that is the first to be released when a role shrinks.
constexpr std::int64_t reluctance = 2'000;

std::string with_reason(std::string text, const std::string& reason) { return reason.empty() ? text : text + ": " + reason; }

/// The name in a key such as "plans/cloud".
std::string_view name_in(const store::Record& record) { return std::string_view(record.key).substr(record.key.find('/') + 1); }

template <class Spec>
std::map<std::string, std::pair<Spec, std::string>> parse_records(const std::vector<store::RecordPtr>& records) {
    std::map<std::string, std::pair<Spec, std::string>> out;
    for (const auto& record : records)
        if (auto object = resource::from_stored(*record); object.ok())
            out.emplace(object->name, std::pair(Spec::from(*object), json::serialize(object->spec)));
    return out;
}

class PreviewBuilder {
public:
    PreviewBuilder(const FleetRecords& records, InventoryReader& reader) : records_(records), reader_(reader) {}

    Result<Preview> build(std::string_view plan) {
        const auto found = std::find_if(records_.plans.begin(), records_.plans.end(),
                                        [&](const store::RecordPtr& record) { return name_in(*record) == plan; });
        if (found == records_.plans.end())
            return Error{Code::not_found, fmt::format("there is no Plan named \"{}\"", truncate(plan, 253)),
                         "see: orrery get plans"};
        TRY(const auto object, resource::from_stored(**found));
        out_.plan = PlanSpec::from(object);
        inputs_ = fmt::format("plan {}\n", json::serialize(object.spec));
        out_.inventory = reader_.read(records_, out_.plan.ignored_categories);
        read_roles();
        for (const auto& machine : out_.inventory.machines) add_machine(machine);
        add_scarcity();
        solve();
        check_plan();
        finish_digest();
        return std::move(out_);
    }

private:
    void read_roles() {
        const auto roles = parse_records<RoleSpec>(records_.roles);
        const auto flavors = parse_records<FlavorSpec>(records_.flavors);
        for (const auto& planned : out_.plan.roles) {
            RoleSpec role;
            role.name = planned.role;
            if (const auto found = roles.find(planned.role); found != roles.end()) {
                role = found->second.first;
                inputs_ += fmt::format("role {} {} {}\n", role.name, role.version, found->second.second);
            }
            if (const auto flavor = flavors.find(role.flavor); flavor != flavors.end()) {
                out_.flavors.emplace(role.flavor, flavor->second.first);
                inputs_ += fmt::format("flavor {} {}\n", role.flavor, flavor->second.second);
            }
            for (const auto& record : records_.images)
                if (name_in(*record) == role.image)
                    if (const auto image = resource::from_stored(*record); image.ok())
                        inputs_ += fmt::format("image {} {}\n", role.image, json::serialize(image->spec));
            out_.roles.push_back(std::move(role));
        }
    }

    std::int32_t role_index(std::string_view name) const {
        for (std::size_t i = 0; i < out_.roles.size(); ++i)
            if (out_.roles[i].name == name) return static_cast<std::int32_t>(i);
        return no_role;
    }

    /// Why no role of the plan may use the machine.
    std::string reason_unusable(const MachineSpec& spec) const {
        if (out_.plan.excluded.contains(spec.name)) return "the plan excludes it";
        if (!spec.deployed.empty() && spec.deployed.plan != out_.plan.name)
            return fmt::format("it is deployed with role {} of plan {}", spec.deployed.role, spec.deployed.plan);
        return {};
    }

    /// Why only the role that the machine has may go on to use it.
    std::string reason_unassignable(const InventoryMachine& machine) const {
        const auto& spec = machine.spec();
        if (spec.maintenance.enabled) return with_reason("it is in maintenance", spec.maintenance.reason);
        if (spec.retired.enabled) return with_reason("it is retired", spec.retired.reason);
        if (spec.protection.enabled) return with_reason("it is protected", spec.protection.reason);
        if (machine.performance.verdict == PerformanceVerdict::slow && out_.plan.benchmark_policy == BenchmarkPolicy::exclude)
            return with_reason("its benchmark excludes it", machine.performance.message());
        return {};
    }

    void add_machine(const InventoryMachine& machine) {
        const auto& spec = machine.spec();
        PlannedMachine planned{
            .machine = &machine, .unusable = reason_unusable(spec), .unassignable = reason_unassignable(machine), .fits = {}};
        if (spec.deployed.plan == out_.plan.name) {
            planned.deployed = role_index(spec.deployed.role);
            if (planned.deployed == no_role) planned.deployed = static_cast<std::int32_t>(out_.roles.size());
        }
        if (const auto pin = out_.plan.pins.find(spec.name); pin != out_.plan.pins.end()) planned.pinned = role_index(pin->second);
        const bool own_role = planned.deployed != no_role && static_cast<std::size_t>(planned.deployed) < out_.roles.size();
        if (own_role && spec.protection.enabled && planned.pinned == no_role) planned.pinned = planned.deployed;
        planned.fits = fits_of(machine);
        out_.machines.push_back(std::move(planned));
    }

    /// Requirements on properties are checked once for machines that have the same.
    std::vector<RoleFit> fits_of(const InventoryMachine& machine) {
        const auto& spec = machine.spec();
        const auto& p = machine.properties;
        auto key = fmt::format("{}/{}/{}/{}/{}", p.cpus.value_or(-1), p.memory_mb.value_or(-1), p.local_gb.value_or(-1), p.cpu_arch,
                               spec.resource_class);
        for (const auto& [name, value] : spec.capabilities) key += fmt::format("/{}:{}", name, value);
        for (const auto& trait : spec.traits) key += "/" + trait;
        auto known = fits_.find(key);
        if (known == fits_.end()) {
            std::vector<RoleFit> fits;
            const MachineTraits traits{p, &spec.capabilities, &spec.traits, spec.resource_class};
            for (const auto& role : out_.roles) {
                RoleFit fit;
                const auto flavor = out_.flavors.find(role.flavor);
                if (flavor == out_.flavors.end())
                    fit.unmet.push_back("the flavor of the role does not exist");
                else
                    fit = {.fits = false,
                           .cost = {.surplus = surplus(flavor->second, p)},
                           .unmet = unmet_requirements(flavor->second, traits)};
                fits.push_back(std::move(fit));
            }
            known = fits_.emplace(std::move(key), std::move(fits)).first;
        }
        auto out = known->second;
        for (std::size_t i = 0; i < out.size(); ++i) {
            add_match_failures(machine, out_.roles[i], out[i].unmet);
            out[i].fits = out[i].unmet.empty();
            out[i].cost.benchmark = machine.performance.verdict == PerformanceVerdict::slow            ? slow_penalty
                                    : machine.performance.verdict == PerformanceVerdict::subpopulation ? subpopulation_penalty
                                                                                                       : 0;
        }
        return out;
    }

    void add_match_failures(const InventoryMachine& machine, const RoleSpec& role, std::vector<std::string>& unmet) const {
        const auto flavor = out_.flavors.find(role.flavor);
        if (flavor == out_.flavors.end() || flavor->second.match == nullptr || flavor->second.mode == MatchMode::any) return;
        if (machine.facts == nullptr) {
            unmet.push_back("it has no facts, which the match spec of the flavor reads");
            return;
        }
        for (const auto& failure : flavor->second.match->match(machine.facts->facts).failures) unmet.push_back(failure.message);
    }

    void add_scarcity() {
        for (auto& machine : out_.machines) {
            const auto suitable =
                std::count_if(machine.fits.begin(), machine.fits.end(), [](const RoleFit& fit) { return fit.fits; });
            for (auto& fit : machine.fits)
                if (fit.fits) fit.cost.scarcity = suitable - 1;
        }
    }

    std::int32_t fit_cost(const PlannedMachine& machine, std::size_t role) const {
        if (!machine.unusable.empty()) return unfit;
        const auto& fit = machine.fits[role];
        if (machine.deployed == static_cast<std::int32_t>(role)) // it stays although it would not be chosen again
            return static_cast<std::int32_t>(fit.cost.benchmark + (machine.unassignable.empty() ? 0 : reluctance));
        if (!machine.unassignable.empty() || !fit.fits) return unfit;
        return static_cast<std::int32_t>(fit.cost.total());
    }

    void solve() {
        AssignmentProblem problem;
        for (const auto& role : out_.plan.roles) problem.roles.push_back({role.role, role.count, role.priority, role.spread});
        for (const auto& machine : out_.machines) {
            AssignmentMachine one{.name = machine.machine->spec().name,
                                  .domain = machine.machine->spec().failure_domain,
                                  .deployed = machine.deployed,
                                  .pinned = machine.unusable.empty() && !blocks_pin(machine) ? machine.pinned : no_role};
            for (std::size_t role = 0; role < out_.roles.size(); ++role) one.fit.push_back(fit_cost(machine, role));
            problem.machines.push_back(std::move(one));
        }
        out_.assignment = assign(problem);
        for (std::size_t i = 0; i < out_.machines.size(); ++i) out_.machines[i].assigned = out_.assignment.role_of[i];
        check_pins(problem);
    }

    /// A pin overrides flavor and benchmark; it does not override maintenance and retirement, unless the machine runs that role.
    static bool blocks_pin(const PlannedMachine& machine) {
        const auto& spec = machine.machine->spec();
        return machine.deployed != machine.pinned && (spec.maintenance.enabled || spec.retired.enabled);
    }

    void check_pins(const AssignmentProblem& problem) {
        for (std::size_t i = 0; i < out_.machines.size(); ++i) {
            const auto& machine = out_.machines[i];
            if (machine.pinned == no_role) continue;
            const auto& name = machine.machine->spec().name;
            const auto& role = out_.roles[static_cast<std::size_t>(machine.pinned)].name;
            if (problem.machines[i].pinned == no_role)
                out_.problems.push_back(fmt::format("machine {} is pinned to role {}, but {}", name, role,
                                                    machine.unusable.empty() ? machine.unassignable : machine.unusable));
            else if (machine.assigned != machine.pinned)
                out_.problems.push_back(fmt::format("machine {} must have role {}, whose count is too small", name, role));
            else if (const auto& unmet = machine.fits[static_cast<std::size_t>(machine.pinned)].unmet; !unmet.empty())
                out_.warnings.push_back(
                    fmt::format("machine {} is pinned to role {} although {}", name, role, fmt::join(unmet, "; ")));
        }
    }

    void check_plan() {
        for (const auto& shortage : out_.assignment.shortages) out_.problems.push_back(shortage.message);
        for (std::size_t i = 0; i < out_.roles.size(); ++i) {
            const auto& role = out_.roles[i];
            const auto& planned = out_.plan.roles[i];
            if (planned.version && *planned.version != role.version)
                out_.problems.push_back(fmt::format("the plan was reviewed with version {} of role {}, whose version is {} now",
                                                    *planned.version, role.name, role.version));
            const auto& allowed = role.allowed_counts;
            if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), planned.count) == allowed.end())
                out_.problems.push_back(
                    fmt::format("role {} has count {}; allowed are {}", role.name, planned.count, fmt::join(allowed, ", ")));
            if (role.image.empty()) out_.warnings.push_back(fmt::format("role {} has no image", role.name));
        }
        check_performance();
        check_deployed();
    }

    void check_performance() {
        std::vector<std::string> slow;
        for (const auto& machine : out_.machines) {
            const auto& performance = machine.machine->performance;
            if (performance.verdict != PerformanceVerdict::slow || !machine.unusable.empty()) continue;
            if (out_.plan.benchmark_policy == BenchmarkPolicy::block) slow.push_back(machine.machine->spec().name);
            if (machine.assigned != no_role)
                out_.warnings.push_back(fmt::format("machine {} is slower than identical ones: {}", machine.machine->spec().name,
                                                    performance.message()));
        }
        if (!slow.empty())
            out_.problems.push_back(fmt::format("the benchmarks of {} {} block the plan", slow.size() == 1 ? "machine" : "machines",
                                                fmt::join(slow, ", ")));
    }

    void check_deployed() {
        for (const auto& machine : out_.machines) {
            if (machine.assigned == no_role || machine.assigned != machine.deployed) continue;
            const auto& unmet = machine.fits[static_cast<std::size_t>(machine.assigned)].unmet;
            if (!machine.unassignable.empty() && !machine.machine->spec().protection.enabled)
                out_.warnings.push_back(
                    fmt::format("machine {} keeps its role although {}", machine.machine->spec().name, machine.unassignable));
            else if (!unmet.empty() && machine.pinned == no_role)
                out_.warnings.push_back(
                    fmt::format("machine {} keeps its role although {}", machine.machine->spec().name, fmt::join(unmet, "; ")));
        }
    }

    void finish_digest() {
        for (const auto& machine : out_.machines) inputs_ += fmt::format("machine {}\n", machine.machine->digest);
        out_.digest = sha256_hex(inputs_, 32);
    }

    const FleetRecords& records_;
    InventoryReader& reader_;
    Preview out_;
    std::string inputs_; ///< that the digest covers
    std::map<std::string, std::vector<RoleFit>> fits_;
};

} // namespace

Result<Preview> make_preview(const FleetRecords& records, std::string_view plan, InventoryReader& reader) {
    return PreviewBuilder(records, reader).build(plan);
}

} // namespace orrery::fleet
