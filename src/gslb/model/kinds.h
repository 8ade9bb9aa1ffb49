#pragma once

#include "resource/kind.h"

#include <vector>

namespace orrery::resource {
class Registry;
}

namespace orrery::gslb {

/// A DNS name whose answers follow health and policy.
resource::Kind load_balancer_kind();
/// Members that can replace each other, usually at one site. Any number of load balancers may use it.
resource::Kind pool_kind();
/// One address that serves: given, or that of a Node or of an Instance of the catalog.
resource::Kind member_kind();
/// A check of members: the probe, its schedule and its thresholds.
resource::Kind monitor_kind();
/// A zone that this server is authoritative for.
resource::Kind zone_kind();
/// An external DNS service to which answers are published.
resource::Kind publisher_kind();
/// The record of a decision or of a withheld change, with its inputs. Only the server writes it.
resource::Kind decision_kind();

/// All kinds of the module, those of observe/ included.
std::vector<resource::Kind> all_kinds();
void add_kinds(resource::Registry& registry);

} // namespace orrery::gslb
