#pragma once

#include "health/vantages/health_aggregator.h"

#include <string>
#include <vector>

namespace orrery::app {

/// `orrery checker --join URL`: a remote vantage point of a server. Returns the exit code.
int run_checker(std::vector<std::string> arguments);

/// Parses a canary, HOST:PORT: a TCP check that succeeds while the network of the vantage works. `invalid`: malformed.
Result<health::CheckSpec> read_canary(const std::string& text);

} // namespace orrery::app
