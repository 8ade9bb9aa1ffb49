#pragma once

#include "core/result.h"
#include "core/text.h"
#include "health/probes/probe.h"

#include <cstdint>
#include <string>

namespace orrery::health {

/// Port: makes the probes of passive checks (kinds octavia, prometheus and push of probe_spec.h), whose results an external health
/// source or a client supplies. Implemented by the module that knows the sources.
class PassiveChecks {
public:
    virtual ~PassiveChecks() = default;
    virtual Result<ProbePtr> probe(const json::object& spec, const std::string& address, std::uint16_t port) = 0;
};

} // namespace orrery::health
