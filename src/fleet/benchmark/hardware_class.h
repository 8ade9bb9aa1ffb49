#pragma once

#include "fleet/facts/fact.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

/// Which facts describe the hardware, and which machines and disks are identical.
namespace orrery::fleet {

/// The digest of the facts that describe the hardware: identifying keys (serial, uuid, addresses) and measured keys are left out.
/// Machines with the same class are compared with each other. `ignored_categories` are left out too. Empty where no fact is left.
std::string hardware_class(const std::vector<Fact>& facts, const std::set<std::string>& ignored_categories);

/// The class of one disk: its model and size. Disks are compared beyond the class of their machine, because machines of one class
/// often have disks of several models.
std::string disk_class(const std::vector<Fact>& facts, std::string_view disk);

/// Categories that make up a hardware class.
const std::vector<std::string_view>& hardware_categories();

} // namespace orrery::fleet
