#pragma once

#include "gslb/runtime/controller.h"
#include "resource/explain.h"

namespace orrery::gslb {

/// Registers explanations: why load balancers answer as they do (also at earlier times), why pools and members are in their state,
/// and which members are on a node. Both must outlive `explainers`.
void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Controller& controller);

} // namespace orrery::gslb
