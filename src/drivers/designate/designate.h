#pragma once

#include "drivers/keystone/session.h"
#include "gslb/publish/dns_provider.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct DesignateOptions {
    std::string endpoint; ///< overrides the endpoint of the catalog; may be empty
};

/// Publishes through OpenStack Designate's v2 API. Designate has neither batches nor compare-and-swap: there is one request for
/// each recordset, four at a time, and the version in the answer shows afterwards whether another client wrote meanwhile. Designate
/// serves a change some 5 to 15 s after it accepted it. The owner mark is the description of each recordset. A name that changes
/// between addresses and an alias has no answer in between, because Designate refuses the two together.
Result<std::unique_ptr<gslb::DnsProvider>> designate_publisher(std::shared_ptr<OpenstackSession> session, DesignateOptions options);

} // namespace orrery::drivers
