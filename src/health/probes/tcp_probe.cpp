#include "health/probes/tcp_probe.h"

#include "health/probes/engine_probe.h"

#include <fmt/format.h>

namespace orrery::health {

ProbePtr tcp_probe(TcpProbeOptions options) {
    auto identity = fmt::format("tcp {} {}", options.host, options.port);
    if (!options.send.empty() || !options.expect.wants_nothing())
        identity += fmt::format(" send {}:{} expect {}", options.send.size(), options.send, options.expect.identity());
    ProbeProgram program;
    program.what = fmt::format("TCP connect {}:{}", options.host, options.port);
    program.host = std::move(options.host);
    program.port = options.port;
    program.request = std::move(options.send);
    program.expect = std::move(options.expect);
    program.outbound = std::move(options.outbound);
    return std::make_shared<EngineProbe>(std::move(identity), std::move(program));
}

} // namespace orrery::health
