#pragma once

#include "core/clock.h"
#include "health/probes/probe.h"
#include "net/outbound.h"
#include "net/tls.h"

#include <cstdint>
#include <memory>
#include <string>

namespace orrery::health {

/// Good if a full handshake succeeds and the chain and the name verify. Sessions are never resumed, because a resumed session shows
/// no certificate.
struct TlsProbeOptions {
    std::string host;
    std::uint16_t port = 443;
    std::string server_name;                                         ///< sent (SNI) and verified; empty: the host
    bool verify = true;                                              ///< false: only the dates of the certificate count
    Duration min_certificate_lifetime = std::chrono::hours(24 * 14); ///< a certificate that expires sooner is a warning
    net::OutboundRulesPtr outbound = nullptr;                        ///< null: every address is permitted
};
/// `tls`: the trusted authorities; null: those of the system.
ProbePtr tls_probe(TlsProbeOptions options, std::shared_ptr<net::TlsContext> tls);

} // namespace orrery::health
