#pragma once

#include "health/probes/probe.h"
#include "net/outbound.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::health {

/// Good if the gRPC health service (grpc.health.v1) reports SERVING.
struct GrpcProbeOptions {
    std::string host;
    std::uint16_t port = 0;
    std::string service;                      ///< empty: the server as a whole
    bool secure = false;                      ///< use TLS, verified with `authorities`
    std::string authorities;                  ///< PEM; empty: those of the system
    std::string server_name;                  ///< sent (SNI) and verified; empty: the host
    net::OutboundRulesPtr outbound = nullptr; ///< null: every address is permitted
};
ProbePtr grpc_probe(GrpcProbeOptions options);
/// The status of a HealthCheckResponse: 0 unknown, 1 serving, 2 not serving, 3 service unknown; nullopt if the bytes are not a
/// valid message.
std::optional<int> read_grpc_health(std::string_view bytes);

} // namespace orrery::health
