#pragma once

#include "fleet/model.h"

#include <string>
#include <vector>

/// Does a machine satisfy a flavor, and how much larger is it than the flavor asks for?
namespace orrery::fleet {

/// The parts of a machine that a flavor reads.
struct MachineTraits {
    HardwareProperties properties; ///< found, or declared where nothing was found
    const std::map<std::string, std::string>* capabilities = nullptr;
    const std::set<std::string>* traits = nullptr;
    std::string_view resource_class;
};

/// Every requirement of the flavor that the machine does not meet, one sentence each; empty: it fits. Match specs are separate,
/// because they read all facts.
std::vector<std::string> unmet_requirements(const FlavorSpec& flavor, const MachineTraits& machine);

/// Surplus of cpus, memory and disk over the flavor, each in thousandths of what is asked for and at most twice that, added up:
/// 0 to 6000. The smaller, the tighter the fit.
std::int64_t surplus(const FlavorSpec& flavor, const HardwareProperties& machine);
constexpr std::int64_t max_surplus = 6'000;

/// Hardware that no flavor describes.
struct FlavorSuggestion {
    std::string name; ///< flavor-32cpu-x86-64-65536mb-398gb
    HardwareProperties properties;
    std::vector<std::string> machines;
};
struct FlavorSuggestions {
    std::vector<FlavorSuggestion> flavors;
    std::vector<std::string> not_introspected; ///< machines that lack one of the four properties
};
/// Groups machines by their four properties; each combination that no flavor has exactly is suggested.
FlavorSuggestions suggest_flavors(const std::vector<std::pair<std::string, HardwareProperties>>& machines,
                                  const std::vector<FlavorSpec>& flavors);

} // namespace orrery::fleet
