#include "health/probes/tls_probe.h"

#include "health/probes/engine_probe.h"

#include <fmt/format.h>

namespace orrery::health {

std::string tls_identity(const std::shared_ptr<net::TlsContext>& tls) {
    return tls ? fmt::format("tls {}", static_cast<const void*>(tls.get())) : std::string("tls");
}

ProbePtr tls_probe(TlsProbeOptions options, std::shared_ptr<net::TlsContext> tls) {
    auto identity = fmt::format("tls {} {} {} {} {} {}", options.host, options.port, options.server_name, options.verify,
                                to_text(options.min_certificate_lifetime), tls_identity(tls));
    ProbeProgram program;
    program.kind = ProbeProgram::Kind::tls;
    program.what = fmt::format("TLS {}:{}", options.host, options.port);
    program.host = std::move(options.host);
    program.port = options.port;
    program.secure = true;
    program.verify = options.verify;
    program.tls = std::move(tls);
    program.server_name = std::move(options.server_name);
    program.min_certificate_lifetime = options.min_certificate_lifetime;
    program.outbound = std::move(options.outbound);
    return std::make_shared<EngineProbe>(std::move(identity), std::move(program));
}

} // namespace orrery::health
