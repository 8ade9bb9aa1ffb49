#pragma once

#include "core/config.h"

#include <functional>
#include <string>

namespace orrery::app {

/// Runs the server until a signal ends it, and returns the exit code of the process. /metrics and /openapi.json show `version`.
/// `reload` reads the configuration again and applies its log settings; it is called on SIGHUP.
int serve(const Config& config, const std::string& version, std::function<Result<Config>()> reload);

} // namespace orrery::app
