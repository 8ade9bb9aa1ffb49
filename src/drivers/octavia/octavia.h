#pragma once

#include "drivers/keystone/session.h"
#include "health/source.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct OctaviaOptions {
    std::string endpoint;                  ///< in place of the catalog's; may be empty
    std::string service = "load-balancer"; ///< "network" for Neutron's LBaaS v2, whose paths begin with /v2.0
    int least_members = 1;                 ///< a degraded balancer with so many members online is up
};

/// The health of regional load balancers, by their ids, as OpenStack Octavia (or Neutron LBaaS v2) tells of it. One list for many;
/// the tree of members only of those that are not ONLINE. What cannot be asked is evidence of nothing; what is not there any more
/// is down.
std::shared_ptr<health::StatusSource> octavia_source(std::shared_ptr<OpenstackSession> session, OctaviaOptions options);

} // namespace orrery::drivers
