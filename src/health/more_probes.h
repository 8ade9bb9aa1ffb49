#pragma once

#include "health/probe.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Looks that are made seldom enough to be coroutines on the loop.
namespace orrery::health {

/// An echo comes back. Unprivileged where the system allows it (net.ipv4.ping_group_range), else with CAP_NET_RAW; with neither it
/// is evidence of nothing, and says what to do.
struct IcmpLook {
    std::string host;
};
ProbePtr icmp_probe(IcmpLook look);

/// A datagram is answered. Sent again twice within the deadline, because datagrams get lost.
struct UdpLook {
    std::string host;
    std::uint16_t port = 0;
    std::string send;
    Pattern expect; ///< in the answer; nothing: any answer is good
};
ProbePtr udp_probe(UdpLook look);

/// A name server answers. Over UDP; an answer that was cut short counts by its code.
struct DnsLook {
    std::string host;
    std::uint16_t port = 53;
    std::string name;           ///< asked for
    std::string type = "A";     ///< A, AAAA, CNAME, MX, NS, SOA, SRV, TXT
    std::uint16_t rcode = 0;    ///< wanted: 0 NOERROR, 3 NXDOMAIN, ...
    std::string contains;       ///< must be in one of the records, as text: "192.0.2.1"
    bool authoritative = false; ///< the answer must be
};
/// `invalid` for a name or type that is none.
Result<ProbePtr> dns_probe(DnsLook look);

/// gRPC's health service, version 1, says SERVING.
struct GrpcLook {
    std::string host;
    std::uint16_t port = 0;
    std::string service;     ///< empty: the server as a whole
    bool secure = false;     ///< TLS, verified with `authorities`
    std::string authorities; ///< PEM; empty: the system's
    std::string server_name; ///< asked for and verified; empty: the host
};
ProbePtr grpc_probe(GrpcLook look);
/// The status in a HealthCheckResponse: 0 unknown, 1 serving, 2 not serving, 3 service unknown; nothing for what is none.
std::optional<int> read_grpc_health(std::string_view bytes);

} // namespace orrery::health
