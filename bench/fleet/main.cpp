// Assignment and preview of generated fleets.
//
//   bench_fleet solve MACHINES ROLES TYPES DOMAINS flat|full|short REPEATS   CPU time of solve and explain, as JSON
//   bench_fleet generate MACHINES ROLES TYPES DOMAINS                        the same fleet as text, for the peers
//   bench_fleet preview MACHINES ROLES REPEATS                               CPU time of a preview from stored records, as JSON
//
// flat: no failure domains, nothing deployed: what the peers solve. full: spread over failure domains, half of the demand deployed.
// short: as full, with more demand than machines, so that shortages are explained.
#include "fleet/assignment/assignment.h"
#include "fleet/inventory.h"
#include "fleet/preview.h"
#include "resource/object.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string_view>

namespace {

using namespace orrery;
using namespace orrery::fleet;

double cpu_ms() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

AssignmentProblem generated(int machines, int roles, int types, int domains, std::string_view form) {
    std::mt19937 dice(20261116);
    AssignmentProblem out;
    const bool flat = form == "flat";
    const double share = form == "short" ? 1.2 : 0.8;
    for (int r = 0; r < roles; ++r)
        out.roles.push_back({fmt::format("role-{}", r), static_cast<std::int64_t>(share * machines / roles), r % 3,
                             flat ? Spread::none : Spread::soft});
    std::vector<std::vector<std::int32_t>> fits;
    for (int t = 0; t < types; ++t) {
        fits.emplace_back();
        for (int r = 0; r < roles; ++r) fits.back().push_back(dice() % 4 == 0 ? unfit : static_cast<std::int32_t>(dice() % 6000));
    }
    for (int m = 0; m < machines; ++m) {
        AssignmentMachine machine{.name = fmt::format("m{:06}", m),
                                  .domain = flat ? "" : fmt::format("rack-{}", m % domains),
                                  .fit = fits[dice() % fits.size()]};
        const auto role = static_cast<std::size_t>(dice() % static_cast<unsigned>(roles));
        if (!flat && dice() % 2 == 0 && machine.fit[role] != unfit) machine.deployed = static_cast<std::int32_t>(role);
        out.machines.push_back(std::move(machine));
    }
    return out;
}

int solve(const AssignmentProblem& problem, int repeats) {
    std::vector<double> times;
    Assignment solved;
    for (int i = 0; i < repeats; ++i) {
        const auto began = cpu_ms();
        solved = assign(problem);
        times.push_back(cpu_ms() - began);
    }
    std::sort(times.begin(), times.end());
    std::int64_t missing = 0;
    for (const auto one : solved.missing) missing += one;
    fmt::print("{{\"ms\": {:.4f}, \"fit\": {}, \"missing\": {}, \"moved\": {}, \"added\": {}, \"spread\": {}, \"classes\": {}, "
               "\"shortages\": {}}}\n",
               times[times.size() / 2], solved.cost.fit, missing, solved.cost.moved, solved.cost.added, solved.cost.spread,
               solved.classes, solved.shortages.size());
    return 0;
}

/// roles machines, the counts, and for each machine its cost in every role, -1 where it does not fit.
int generate(const AssignmentProblem& problem) {
    fmt::print("{} {}\n", problem.roles.size(), problem.machines.size());
    for (const auto& role : problem.roles) fmt::print("{}\n", role.count);
    for (const auto& machine : problem.machines) {
        for (const auto cost : machine.fit) fmt::print("{} ", cost);
        fmt::print("\n");
    }
    return 0;
}

store::RecordPtr stored(std::string_view prefix, std::string kind, std::string name, json::object spec, json::object status = {}) {
    resource::Object object;
    object.kind = std::move(kind);
    object.name = std::move(name);
    object.spec = std::move(spec);
    object.status = std::move(status);
    auto record = std::make_shared<store::Record>();
    record->key = fmt::format("{}/{}", prefix, object.name);
    record->value = resource::to_stored(object);
    record->created = record->modified = 1;
    return record;
}

/// Every machine has 540 facts, of which 300 are measurements.
FleetRecords generated_records(int machines, int roles) {
    std::mt19937 dice(20261116);
    FleetRecords out;
    json::array planned;
    for (int r = 0; r < roles; ++r) {
        out.flavors.push_back(stored("flavors", "Flavor", fmt::format("f{}", r),
                                     {{"mode", "at-least"}, {"cpus", 8 << (r % 4)}, {"memory_mb", 32768}}));
        out.roles.push_back(stored("roles", "Role", fmt::format("r{}", r), {{"flavor", fmt::format("f{}", r)}}, {{"version", 1}}));
        planned.push_back(json::object{
            {"role", fmt::format("r{}", r)}, {"count", machines / roles * 8 / 10}, {"priority", r}, {"spread", "soft"}});
    }
    out.plans.push_back(stored("plans", "Plan", "p", {{"roles", std::move(planned)}}));
    for (int m = 0; m < machines; ++m) {
        const auto name = fmt::format("m{:06}", m);
        out.machines.push_back(stored(
            "machines", "Machine", name,
            {{"bmc", json::object{{"driver", "ipmi"}, {"address", fmt::format("10.{}.{}.{}", m >> 16, (m >> 8) & 255, m & 255)}}},
             {"failure_domain", fmt::format("rack-{}", m % 40)}}));
        const int cpus = 16 << (m % 4);
        json::array facts;
        const auto add = [&facts](std::string category, std::string item, std::string key, std::string value) {
            facts.push_back(json::array{std::move(category), std::move(item), std::move(key), std::move(value)});
        };
        add("cpu", "logical", "number", std::to_string(cpus));
        add("memory", "total", "size", std::to_string(65536LL << 20));
        add("system", "product", "serial", name);
        for (int i = 0; i < 236; ++i) add("network", fmt::format("eth{}", i / 30), fmt::format("feature-{}", i % 30), "on");
        for (int i = 0; i < 300; ++i)
            add("cpu", fmt::format("logical_{}", i / 9), fmt::format("bandwidth_{}", i % 9), fmt::format("{}", 9000 + dice() % 60));
        out.facts.push_back(stored("facts", "Facts", name, {{"machine", name}, {"facts", std::move(facts)}}));
    }
    return out;
}

int preview(int machines, int roles, int repeats) {
    const auto records = generated_records(machines, roles);
    InventoryReader reader;
    auto began = cpu_ms();
    auto first = make_preview(records, "p", reader);
    const auto bytes = first.ok() ? json::serialize(first->to_json()).size() : 0;
    const double cold = cpu_ms() - began;
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
        began = cpu_ms();
        const auto again = make_preview(records, "p", reader);
        if (!again.ok() || json::serialize(again->to_json()).size() != bytes) return 1;
        times.push_back(cpu_ms() - began);
    }
    std::sort(times.begin(), times.end());
    fmt::print("{{\"cold_ms\": {:.2f}, \"ms\": {:.2f}, \"bytes\": {}}}\n", cold, times[times.size() / 2], bytes);
    return bytes > 0 ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
    const std::string_view mode = argc > 1 ? argv[1] : "";
    const auto number = [argv](int at) { return std::atoi(argv[at]); };
    if (mode == "solve" && argc == 8) return solve(generated(number(2), number(3), number(4), number(5), argv[6]), number(7));
    if (mode == "generate" && argc == 6) return generate(generated(number(2), number(3), number(4), number(5), "flat"));
    if (mode == "preview" && argc == 5) return preview(number(2), number(3), number(4));
    std::fputs("usage: bench_fleet solve|generate|preview ...\n", stderr);
    return 2;
}
