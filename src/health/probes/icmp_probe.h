#pragma once

#include "health/probes/probe.h"
#include "net/outbound.h"

#include <string>

namespace orrery::health {

/// Good if an ICMP echo reply arrives. Uses an unprivileged socket where net.ipv4.ping_group_range permits it, otherwise a raw
/// socket (CAP_NET_RAW). Without both permissions the result is a local error that names the remedy.
struct IcmpProbeOptions {
    std::string host;
    net::OutboundRulesPtr outbound = nullptr; ///< null: every address is permitted
};
ProbePtr icmp_probe(IcmpProbeOptions options);

} // namespace orrery::health
