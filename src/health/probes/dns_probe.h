#pragma once

#include "core/result.h"
#include "health/probes/probe.h"
#include "net/outbound.h"

#include <cstdint>
#include <string>

namespace orrery::health {

/// Good if a name server answers a query over UDP as expected. A truncated response counts by its code.
struct DnsProbeOptions {
    std::string host;
    std::uint16_t port = 53;
    std::string name;                         ///< of the query
    std::string type = "A";                   ///< A, AAAA, CNAME, MX, NS, SOA, SRV, TXT
    std::uint16_t rcode = 0;                  ///< expected: 0 NOERROR, 3 NXDOMAIN, ...
    std::string contains;                     ///< must be in one record of the answer section, as text: "192.0.2.1"
    bool authoritative = false;               ///< the response must be authoritative
    net::OutboundRulesPtr outbound = nullptr; ///< null: every address is permitted
};
/// `invalid`: the name or the type is not valid.
Result<ProbePtr> dns_probe(DnsProbeOptions options);

} // namespace orrery::health
