#pragma once

#include "fleet/facts/fact.h"
#include "fleet/facts/match_spec.h"

#include <boost/json/object.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::resource {
struct Object;
}

/// The kinds of the module as structs. Each `from` reads a stored object that its kind has validated.
namespace orrery::fleet {

/// How to reach a machine's BMC. Credentials are a reference to a Secret with the values `username` and `password`.
struct BmcSpec {
    std::string driver;  ///< ipmi, redfish, idrac, ilo, irmc or fake
    std::string address; ///< a host; of redfish also a URL
    std::int64_t port = 0;
    std::string credentials;
    std::string system_id; ///< of redfish: one BMC can serve several machines
    /// "10.0.0.8:623": what identifies a machine in an import; empty for a driver without a BMC.
    std::string identity() const;
};
/// Drivers that machines may name, and the port of each where none is given.
struct BmcDriver {
    std::string_view name;
    std::int64_t default_port;
    bool has_bmc;
};
const std::vector<BmcDriver>& bmc_drivers();
const BmcDriver* find_bmc_driver(std::string_view name);

/// A switch with a reason, as maintenance, retired and protected are.
struct Flagged {
    bool enabled = false;
    std::string reason;
};

/// The role that a machine was deployed with.
struct DeployedRole {
    std::string plan, role;
    bool empty() const { return plan.empty(); }
};

struct MachineSpec {
    std::string name;
    BmcSpec bmc;
    std::vector<std::string> macs;
    HardwareProperties properties; ///< as declared
    std::map<std::string, std::string> capabilities;
    std::set<std::string> traits;
    std::string resource_class, failure_domain;
    Flagged maintenance, retired, protection;
    DeployedRole deployed; ///< from status
    static MachineSpec from(const resource::Object& object);
};

/// any: every machine fits. at_least: the machine has as much or more. exact: the figures are equal.
enum class MatchMode { any, at_least, exact };

/// A requirement on machines: a filter, not a size to allocate.
struct FlavorSpec {
    std::string name;
    MatchMode mode = MatchMode::at_least;
    HardwareProperties properties;
    std::map<std::string, std::string> capabilities;
    std::set<std::string> traits;
    std::string resource_class;
    std::shared_ptr<const MatchSpec> match; ///< null: no spec
    static FlavorSpec from(const resource::Object& object);
};

struct RoleSpec {
    std::string name, description, image, flavor;
    std::vector<std::int64_t> allowed_counts; ///< empty: any
    std::int64_t version = 1;                 ///< from status
    static RoleSpec from(const resource::Object& object);
};

/// How machines of a role are spread over failure domains: not at all, as evenly as possible, or at most the fair share in each.
enum class Spread { none, soft, hard };
/// What an under-performing machine means for a plan.
enum class BenchmarkPolicy { warn, exclude, block };

struct PlannedRole {
    std::string role;
    std::int64_t count = 1;
    std::int64_t priority = 0; ///< the higher one gets machines first when there are too few
    Spread spread = Spread::soft;
    std::optional<std::int64_t> version; ///< of the Role that was reviewed; nothing: any
};

struct PlanSpec {
    std::string name;
    std::vector<PlannedRole> roles;
    std::map<std::string, std::string> pins; ///< machine to role
    std::set<std::string> excluded;
    BenchmarkPolicy benchmark_policy = BenchmarkPolicy::exclude;
    std::set<std::string> ignored_categories; ///< of facts, when machines are grouped for comparison
    static PlanSpec from(const resource::Object& object);
};

std::string_view name_of(MatchMode mode);
std::string_view name_of(BenchmarkPolicy policy);

} // namespace orrery::fleet
