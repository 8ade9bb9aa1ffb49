#pragma once

#include "health/engine/pattern.h"
#include "health/probes/probe.h"
#include "net/outbound.h"

#include <cstdint>
#include <string>

namespace orrery::health {

/// Good if the target accepts a connection and, with `expect`, if the pattern is in what it sends.
struct TcpProbeOptions {
    std::string host;
    std::uint16_t port = 0;
    std::string send;
    Pattern expect;                           ///< searched in the first 4 KiB
    net::OutboundRulesPtr outbound = nullptr; ///< null: every address is permitted
};
ProbePtr tcp_probe(TcpProbeOptions options);

} // namespace orrery::health
