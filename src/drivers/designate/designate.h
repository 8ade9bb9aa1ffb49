#pragma once

#include "drivers/keystone/session.h"
#include "gslb/publisher.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct DesignateOptions {
    std::string endpoint; ///< in place of the catalog's; may be empty
};

/// Publishes through OpenStack Designate's v2 API. It has no batches and no compare-and-swap: one request a set, four side by side,
/// and a version that tells afterwards whether somebody else was there meanwhile. What it takes it serves some 5 to 15 s later. The
/// mark is the description of each recordset. A name that changes between addresses and an alias is without answer in between,
/// because Designate takes the one only when the other is gone.
Result<std::unique_ptr<gslb::Publisher>> designate_publisher(std::shared_ptr<OpenstackSession> session, DesignateOptions options);

} // namespace orrery::drivers
