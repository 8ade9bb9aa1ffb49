#include "fleet/flavor.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace orrery::fleet {

namespace {

constexpr std::int64_t max_surplus_of_one = max_surplus / 3;

void compare_size(MatchMode mode, std::string_view name, const std::optional<std::int64_t>& needed,
                  const std::optional<std::int64_t>& has, std::vector<std::string>& out) {
    if (!needed) return;
    if (!has)
        out.push_back(fmt::format("{} is unknown; {} is needed", name, *needed));
    else if (mode == MatchMode::exact && *has != *needed)
        out.push_back(fmt::format("{} is {}; exactly {} is needed", name, *has, *needed));
    else if (mode == MatchMode::at_least && *has < *needed)
        out.push_back(fmt::format("{} is {}; at least {} is needed", name, *has, *needed));
}

void compare_capabilities(const FlavorSpec& flavor, const MachineTraits& machine, std::vector<std::string>& out) {
    for (const auto& [key, value] : flavor.capabilities) {
        // Exact mode compares the profile only: other capabilities follow from the profile's hardware.
        if (flavor.mode == MatchMode::exact && key != "profile") continue;
        const auto found =
            machine.capabilities == nullptr ? decltype(machine.capabilities->end()){} : machine.capabilities->find(key);
        if (machine.capabilities == nullptr || found == machine.capabilities->end())
            out.push_back(fmt::format("capability {} is missing; {}:{} is needed", key, key, value));
        else if (found->second != value)
            out.push_back(fmt::format("capability {} is {}; {} is needed", key, found->second, value));
    }
}

std::int64_t surplus_of(const std::optional<std::int64_t>& needed, const std::optional<std::int64_t>& has) {
    if (!needed || !has || *needed <= 0 || *has <= *needed) return 0;
    const auto thousandths = static_cast<double>(*has - *needed) * 1000.0 / static_cast<double>(*needed);
    return thousandths >= static_cast<double>(max_surplus_of_one) ? max_surplus_of_one : static_cast<std::int64_t>(thousandths);
}

/// As the name of a resource: lower case, with a dash for what a name may not have.
std::string resource_name(std::string text) {
    for (auto& c : text) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.')) c = '-';
    }
    return text;
}

} // namespace

std::vector<std::string> unmet_requirements(const FlavorSpec& flavor, const MachineTraits& machine) {
    std::vector<std::string> out;
    if (flavor.mode == MatchMode::any) return out;
    compare_size(flavor.mode, "cpus", flavor.properties.cpus, machine.properties.cpus, out);
    compare_size(flavor.mode, "memory_mb", flavor.properties.memory_mb, machine.properties.memory_mb, out);
    compare_size(flavor.mode, "local_gb", flavor.properties.local_gb, machine.properties.local_gb, out);
    const auto& arch = flavor.properties.cpu_arch;
    if (!arch.empty() && machine.properties.cpu_arch.empty())
        out.push_back(fmt::format("cpu_arch is unknown; {} is needed", arch));
    else if (!arch.empty() && machine.properties.cpu_arch != arch)
        out.push_back(fmt::format("cpu_arch is {}; {} is needed", machine.properties.cpu_arch, arch));
    compare_capabilities(flavor, machine, out);
    if (!flavor.resource_class.empty() && machine.resource_class != flavor.resource_class)
        out.push_back(machine.resource_class.empty()
                          ? fmt::format("resource_class is not set; {} is needed", flavor.resource_class)
                          : fmt::format("resource_class is {}; {} is needed", machine.resource_class, flavor.resource_class));
    for (const auto& trait : flavor.traits)
        if (machine.traits == nullptr || !machine.traits->contains(trait)) out.push_back(fmt::format("trait {} is missing", trait));
    return out;
}

std::int64_t surplus(const FlavorSpec& flavor, const HardwareProperties& machine) {
    return surplus_of(flavor.properties.cpus, machine.cpus) + surplus_of(flavor.properties.memory_mb, machine.memory_mb) +
           surplus_of(flavor.properties.local_gb, machine.local_gb);
}

FlavorSuggestions suggest_flavors(const std::vector<std::pair<std::string, HardwareProperties>>& machines,
                                  const std::vector<FlavorSpec>& flavors) {
    FlavorSuggestions out;
    using Key = std::tuple<std::int64_t, std::string, std::int64_t, std::int64_t>;
    std::map<Key, FlavorSuggestion> groups;
    for (const auto& [name, properties] : machines) {
        if (!properties.complete()) {
            out.not_introspected.push_back(name);
            continue;
        }
        auto& group = groups[{*properties.cpus, properties.cpu_arch, *properties.memory_mb, *properties.local_gb}];
        group.properties = properties;
        group.machines.push_back(name);
    }
    for (auto& [key, group] : groups) {
        const bool known = std::any_of(flavors.begin(), flavors.end(),
                                       [&](const FlavorSpec& flavor) { return flavor.properties == group.properties; });
        if (known) continue;
        const auto& properties = group.properties;
        group.name = resource_name(fmt::format("flavor-{}cpu-{}-{}mb-{}gb", *properties.cpus, properties.cpu_arch,
                                               *properties.memory_mb, *properties.local_gb));
        out.flavors.push_back(std::move(group));
    }
    return out;
}

} // namespace orrery::fleet
