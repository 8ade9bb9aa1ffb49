#pragma once

#include "resource/kind.h"

#include <vector>

namespace orrery::resource {
class Registry;
}

namespace orrery::gslb {

/// A name whose answers follow health: which pools answer, for whom, how.
resource::Kind load_balancer_kind();
/// Members that stand in for each other, at one site as a rule. May serve any number of names.
resource::Kind pool_kind();
/// One address that can answer: given, or that of a Node or of an Instance of the catalog.
resource::Kind member_kind();
/// How to tell that a member works.
resource::Kind monitor_kind();
/// A zone that this server answers for.
resource::Kind zone_kind();
/// A DNS service outside that decisions go to as well.
resource::Kind publisher_kind();
/// What was decided about a name, or withheld: when, why, and from what. Written by the server only.
resource::Kind decision_kind();

/// These and those of cluster.h: all kinds of the module.
std::vector<resource::Kind> all_kinds();
void add_kinds(resource::Registry& registry);

} // namespace orrery::gslb
