#pragma once

#include "catalog/catalog.h"
#include "resource/explain.h"
#include "store/leadership.h"

namespace orrery::catalog {

/// Registers explainers of services and instances, and the instances of a node. `membership` is the source of service members: the
/// built-in catalog, or Consul. All arguments must outlive `explainers`.
void add_explainers(resource::Explainers& explainers, const resource::Resources& resources, const Catalog& catalog,
                    const Membership& membership, const store::Leadership& leadership);

} // namespace orrery::catalog
