#pragma once

#include "health/engine/pattern.h"
#include "health/probes/probe.h"
#include "net/outbound.h"

#include <cstdint>
#include <string>

namespace orrery::health {

/// Good if a datagram is answered with the expected contents. Sent up to three times within the deadline, because datagrams get
/// lost.
struct UdpProbeOptions {
    std::string host;
    std::uint16_t port = 0;
    std::string send;
    Pattern expect;                           ///< searched in the reply; empty: every reply is good
    net::OutboundRulesPtr outbound = nullptr; ///< null: every address is permitted
};
ProbePtr udp_probe(UdpProbeOptions options);

} // namespace orrery::health
