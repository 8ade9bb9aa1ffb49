#pragma once

#include "drivers/keystone/session.h"
#include "health/sources/status_source.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct OctaviaOptions {
    std::string endpoint;                  ///< overrides the endpoint of the catalog; may be empty
    std::string service = "load-balancer"; ///< "network" for Neutron's LBaaS v2, with paths below /v2.0
    int min_members = 1;                   ///< a degraded balancer with at least this many members online is up
};

/// The health of regional load balancers, by id, as OpenStack Octavia (or Neutron LBaaS v2) reports it. Many balancers are read
/// with one list; the tree of members is read only for balancers that are DEGRADED or DRAINING. A balancer that cannot be read is
/// no evidence; a balancer that does not exist is down.
std::shared_ptr<health::StatusSource> octavia_source(std::shared_ptr<OpenstackSession> session, OctaviaOptions options);

} // namespace orrery::drivers
