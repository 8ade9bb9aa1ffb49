#pragma once

#include "core/config.h"

#include <string>

namespace orrery::app {

/// Runs the server until a signal ends it, and returns the process's exit code. `version` is what /metrics and /openapi.json show.
int serve(const Config& config, const std::string& version);

} // namespace orrery::app
