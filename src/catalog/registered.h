#pragma once

#include "catalog/catalog.h"

#include <map>
#include <string>
#include <vector>

/// Parsed contents of the store, before they are joined. Private to the catalog.
namespace orrery::catalog {

/// A registered instance, before it is joined with its Service and node.
struct Registered {
    InstanceView view; ///< without checks, state, address
    std::vector<Check> own_checks;
    std::map<std::string, CheckResult> results;
};

std::vector<Check> checks_of(const json::object& spec);
std::map<std::string, CheckResult> results_of(const json::object& status);
Registered read_instance(const resource::Object& object);
/// Whether two registrations differ only in checks and messages.
bool same_registration(const Registered& a, const Registered& b);

} // namespace orrery::catalog
