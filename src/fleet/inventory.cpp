#include "fleet/inventory.h"

#include "core/digest.h"
#include "core/json_fields.h"
#include "fleet/benchmark/hardware_class.h"
#include "resource/object.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace orrery::fleet {

namespace {

constexpr std::size_t digest_digits = 32;

std::vector<store::RecordPtr> all_records(const resource::Resources& resources, std::string_view kind) {
    constexpr std::size_t page_size = 10'000;
    std::vector<store::RecordPtr> out;
    const auto prefix = resources.registry().find(kind)->prefix();
    for (std::string after;;) {
        auto page = resources.store().range(prefix, page_size, after);
        out.insert(out.end(), std::make_move_iterator(page.records.begin()), std::make_move_iterator(page.records.end()));
        if (page.next.empty()) return out;
        after = page.next;
    }
}

StoredMachine parse_machine(const resource::Object& object) {
    StoredMachine out{.spec = MachineSpec::from(object), .digest = {}};
    out.digest = sha256_hex(
        fmt::format("{}\n{}\n{}\n{}", object.name, json::serialize(object.spec), out.spec.deployed.plan, out.spec.deployed.role),
        digest_digits);
    return out;
}

StoredFacts parse_facts(const resource::Object& object) {
    StoredFacts out;
    out.machine = text_at(object.spec, "machine");
    out.facts = read_facts(array_at(object.spec, "facts"));
    out.properties = properties_of(out.facts);
    out.metrics = metrics_of(out.facts);
    out.digest = sha256_hex(json::serialize(array_at(object.spec, "facts")), digest_digits);
    return out;
}

StoredBenchmark parse_benchmark(const resource::Object& object) {
    StoredBenchmark out;
    out.machine = text_at(object.spec, "machine");
    out.measured_at = text_at(object.spec, "measured_at");
    out.metrics = metrics_of(read_facts(array_at(object.spec, "results")));
    out.digest = sha256_hex(json::serialize(object.spec), digest_digits);
    return out;
}

MeasuredMachine measured(const InventoryMachine& machine, const std::vector<std::shared_ptr<const StoredBenchmark>>& runs,
                         const std::set<std::string>& ignored_categories) {
    MeasuredMachine out{.name = machine.spec().name, .hardware_class = {}, .disk_classes = {}, .runs = {}};
    for (const auto& run : runs) out.runs.push_back({run->metrics});
    if (machine.facts == nullptr) return out;
    if (runs.empty() && !machine.facts->metrics.empty()) out.runs.push_back({machine.facts->metrics});
    if (out.runs.empty()) return out;
    out.hardware_class = hardware_class(machine.facts->facts, ignored_categories);
    for (const auto& run : out.runs)
        for (const auto& metric : run.metrics)
            if (metric.component.starts_with("disk ") && !out.disk_classes.contains(metric.component))
                out.disk_classes[metric.component] = disk_class(machine.facts->facts, metric.component.substr(5));
    return out;
}

} // namespace

FleetRecords FleetRecords::collect(const resource::Resources& resources) {
    return {.machines = all_records(resources, "Machine"),
            .facts = all_records(resources, "Facts"),
            .benchmarks = all_records(resources, "Benchmark"),
            .flavors = all_records(resources, "Flavor"),
            .roles = all_records(resources, "Role"),
            .images = all_records(resources, "Image"),
            .plans = all_records(resources, "Plan")};
}

const InventoryMachine* Inventory::find(std::string_view name) const {
    const auto found =
        std::lower_bound(machines.begin(), machines.end(), name,
                         [](const InventoryMachine& machine, std::string_view wanted) { return machine.spec().name < wanted; });
    return found == machines.end() || found->spec().name != name ? nullptr : &*found;
}

template <class T, class Parse>
std::vector<std::shared_ptr<const T>> InventoryReader::parse_all(Cache<T>& cache, const std::vector<store::RecordPtr>& records,
                                                                 Parse parse) {
    Cache<T> fresh;
    std::vector<std::shared_ptr<const T>> out;
    out.reserve(records.size());
    for (const auto& record : records) {
        std::shared_ptr<const T> parsed;
        if (const auto known = cache.find(record->key); known != cache.end() && known->second.first == record->modified)
            parsed = known->second.second;
        else if (auto object = resource::from_stored(*record); object.ok())
            parsed = std::make_shared<const T>(parse(*object));
        if (!parsed) continue;
        fresh.emplace(record->key, std::pair(record->modified, parsed));
        out.push_back(std::move(parsed));
    }
    cache = std::move(fresh);
    return out;
}

Inventory InventoryReader::read(const FleetRecords& records, const std::set<std::string>& ignored_categories) {
    const std::lock_guard lock(mutex_);
    const auto stored = parse_all(machines_, records.machines, parse_machine);
    const auto facts = parse_all(facts_, records.facts, parse_facts);
    const auto benchmarks = parse_all(benchmarks_, records.benchmarks, parse_benchmark);
    std::unordered_map<std::string_view, std::shared_ptr<const StoredFacts>> facts_of;
    for (const auto& one : facts) facts_of[one->machine] = one;
    std::unordered_map<std::string_view, std::vector<std::shared_ptr<const StoredBenchmark>>> runs_of;
    for (const auto& one : benchmarks) runs_of[one->machine].push_back(one);
    Inventory out;
    std::vector<MeasuredMachine> compared;
    for (const auto& one : stored) {
        InventoryMachine machine{
            .stored = one, .facts = {}, .properties = one->spec.properties, .performance = {}, .digest = one->digest};
        if (const auto found = facts_of.find(one->spec.name); found != facts_of.end()) {
            machine.facts = found->second;
            machine.properties = merge(machine.facts->properties, one->spec.properties);
            machine.digest += machine.facts->digest;
        }
        auto& runs = runs_of[one->spec.name];
        std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a->measured_at > b->measured_at; });
        for (const auto& run : runs) machine.digest += run->digest;
        if (!runs.empty() || (machine.facts != nullptr && !machine.facts->metrics.empty()))
            compared.push_back(measured(machine, runs, ignored_categories));
        out.machines.push_back(std::move(machine));
    }
    std::sort(out.machines.begin(), out.machines.end(),
              [](const InventoryMachine& a, const InventoryMachine& b) { return a.spec().name < b.spec().name; });
    if (compared.empty()) return out;
    auto verdicts = find_outliers(compared);
    for (auto& machine : out.machines)
        if (const auto found = verdicts.find(machine.spec().name); found != verdicts.end())
            machine.performance = std::move(found->second);
    return out;
}

json::object to_json(const HardwareProperties& properties) {
    json::object out;
    if (properties.cpus) out["cpus"] = *properties.cpus;
    if (properties.memory_mb) out["memory_mb"] = *properties.memory_mb;
    if (properties.local_gb) out["local_gb"] = *properties.local_gb;
    if (!properties.cpu_arch.empty()) out["cpu_arch"] = properties.cpu_arch;
    return out;
}

json::object to_json(const MachinePerformance& performance, std::size_t max_evidence) {
    json::object out{{"verdict", name_of(performance.verdict)}, {"message", performance.message()}};
    json::array evidence;
    for (const auto& one : performance.evidence) {
        if (evidence.size() == max_evidence) break;
        evidence.push_back(json::object{{"component", one.component},
                                        {"metric", one.metric},
                                        {"value", one.value},
                                        {"median", one.median},
                                        {"percent", std::round(one.percent * 10) / 10}});
    }
    if (!evidence.empty()) out["evidence"] = std::move(evidence);
    if (performance.evidence.size() > max_evidence) out["further_evidence"] = performance.evidence.size() - max_evidence;
    return out;
}

} // namespace orrery::fleet
