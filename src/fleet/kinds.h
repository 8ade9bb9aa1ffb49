#pragma once

#include "resource/kind.h"

#include <vector>

namespace orrery::fleet {

/// A piece of hardware with a BMC.
resource::Kind machine_kind();
/// What introspection found out about a machine, as fact tuples.
resource::Kind facts_kind();
/// One benchmark run of a machine.
resource::Kind benchmark_kind();
/// A requirement on machines.
resource::Kind flavor_kind();
/// An operating system image that machines are provisioned with.
resource::Kind image_kind();
/// Image and flavor of machines with the same duty; its versions are counted.
resource::Kind role_kind();
/// Roles with counts: which machines are wanted.
resource::Kind plan_kind();

/// All kinds of the module.
std::vector<resource::Kind> all_kinds();
void add_kinds(resource::Registry& registry);

} // namespace orrery::fleet
