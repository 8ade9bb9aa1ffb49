#include "fleet/model.h"

#include "core/json_fields.h"
#include "resource/object.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::fleet {

namespace {

std::optional<std::int64_t> optional_integer(const json::object& object, std::string_view key) {
    const auto* value = object.if_contains(key);
    if (value == nullptr || !value->is_int64()) return {};
    return value->get_int64();
}

HardwareProperties read_properties(const json::object& object) {
    return {.cpus = optional_integer(object, "cpus"),
            .memory_mb = optional_integer(object, "memory_mb"),
            .local_gb = optional_integer(object, "local_gb"),
            .cpu_arch = text_at(object, "cpu_arch")};
}

Flagged read_flag(const json::object& spec, std::string_view key) {
    const auto& object = object_at(spec, key);
    return {.enabled = flag_at(object, "enabled"), .reason = text_at(object, "reason")};
}

std::set<std::string> text_set(const json::object& object, std::string_view key) {
    const auto texts = texts_at(object, key);
    return {texts.begin(), texts.end()};
}

} // namespace

const std::vector<BmcDriver>& bmc_drivers() {
    static const std::vector<BmcDriver> drivers = {{"ipmi", 623, true}, {"redfish", 443, true}, {"idrac", 443, true},
                                                   {"ilo", 443, true},  {"irmc", 443, true},    {"fake", 0, false}};
    return drivers;
}

const BmcDriver* find_bmc_driver(std::string_view name) {
    const auto& all = bmc_drivers();
    const auto found = std::find_if(all.begin(), all.end(), [&](const BmcDriver& one) { return one.name == name; });
    return found == all.end() ? nullptr : &*found;
}

std::string BmcSpec::identity() const {
    const auto* known = find_bmc_driver(driver);
    if (address.empty() || known == nullptr || !known->has_bmc) return {};
    return fmt::format("{}:{}{}", address, port != 0 ? port : known->default_port, system_id);
}

MachineSpec MachineSpec::from(const resource::Object& object) {
    MachineSpec out;
    out.name = object.name;
    const auto& bmc = object_at(object.spec, "bmc");
    out.bmc = {.driver = text_at(bmc, "driver"),
               .address = text_at(bmc, "address"),
               .port = integer_at(bmc, "port"),
               .credentials = text_at(bmc, "credentials"),
               .system_id = text_at(object_at(bmc, "options"), "system_id")};
    out.macs = texts_at(object.spec, "macs");
    out.properties = read_properties(object_at(object.spec, "properties"));
    out.capabilities = text_map_at(object.spec, "capabilities");
    out.traits = text_set(object.spec, "traits");
    out.resource_class = text_at(object.spec, "resource_class");
    out.failure_domain = text_at(object.spec, "failure_domain");
    out.maintenance = read_flag(object.spec, "maintenance");
    out.retired = read_flag(object.spec, "retired");
    out.protection = read_flag(object.spec, "protected");
    const auto& deployed = object_at(object.status, "deployment");
    out.deployed = {.plan = text_at(deployed, "plan"), .role = text_at(deployed, "role")};
    return out;
}

FlavorSpec FlavorSpec::from(const resource::Object& object) {
    FlavorSpec out;
    out.name = object.name;
    const auto mode = text_at(object.spec, "mode", "at-least");
    out.mode = mode == "any" ? MatchMode::any : mode == "exact" ? MatchMode::exact : MatchMode::at_least;
    out.properties = read_properties(object.spec);
    out.capabilities = text_map_at(object.spec, "capabilities");
    out.traits = text_set(object.spec, "traits");
    out.resource_class = text_at(object.spec, "resource_class");
    if (const auto text = text_at(object.spec, "match"); !text.empty())
        if (auto spec = MatchSpec::parse(text); spec.ok()) out.match = std::make_shared<const MatchSpec>(std::move(*spec));
    return out;
}

RoleSpec RoleSpec::from(const resource::Object& object) {
    RoleSpec out;
    out.name = object.name;
    out.description = text_at(object.spec, "description");
    out.image = text_at(object.spec, "image");
    out.flavor = text_at(object.spec, "flavor");
    for (const auto& one : array_at(object.spec, "allowed_counts"))
        if (one.is_int64()) out.allowed_counts.push_back(one.get_int64());
    out.version = integer_at(object.status, "version", 1);
    return out;
}

PlanSpec PlanSpec::from(const resource::Object& object) {
    PlanSpec out;
    out.name = object.name;
    for (const auto& one : array_at(object.spec, "roles")) {
        if (!one.is_object()) continue;
        const auto& fields = one.get_object();
        const auto spread = text_at(fields, "spread", "soft");
        out.roles.push_back({.role = text_at(fields, "role"),
                             .count = integer_at(fields, "count", 1),
                             .priority = integer_at(fields, "priority"),
                             .spread = spread == "hard"   ? Spread::hard
                                       : spread == "none" ? Spread::none
                                                          : Spread::soft,
                             .version = optional_integer(fields, "version")});
    }
    for (const auto& one : array_at(object.spec, "pins"))
        if (one.is_object()) out.pins[text_at(one.get_object(), "machine")] = text_at(one.get_object(), "role");
    out.excluded = text_set(object.spec, "exclude");
    const auto& benchmarks = object_at(object.spec, "benchmarks");
    const auto policy = text_at(benchmarks, "policy", "exclude");
    out.benchmark_policy = policy == "warn"    ? BenchmarkPolicy::warn
                           : policy == "block" ? BenchmarkPolicy::block
                                               : BenchmarkPolicy::exclude;
    out.ignored_categories = text_set(benchmarks, "ignore_categories");
    return out;
}

std::string_view name_of(MatchMode mode) {
    return mode == MatchMode::any ? "any" : mode == MatchMode::exact ? "exact" : "at-least";
}

std::string_view name_of(BenchmarkPolicy policy) {
    return policy == BenchmarkPolicy::warn ? "warn" : policy == BenchmarkPolicy::block ? "block" : "exclude";
}

} // namespace orrery::fleet
