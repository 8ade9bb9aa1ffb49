#pragma once

#include "catalog/catalog.h"

#include <map>
#include <string>
#include <vector>

/// Private to the catalog: what is in the store, read, before it is joined.
namespace orrery::catalog {

/// What was registered, before it is joined with anything.
struct Registered {
    InstanceView view; ///< without checks, state, address
    std::vector<Check> own_checks;
    std::map<std::string, CheckResult> results;
};

std::vector<Check> checks_of(const json::object& spec);
std::map<std::string, CheckResult> results_of(const json::object& status);
Registered read_instance(const resource::Object& object);
/// Whether only checks and words differ.
bool same_registration(const Registered& a, const Registered& b);

} // namespace orrery::catalog
