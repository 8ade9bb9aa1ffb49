#pragma once

#include "health/lookout.h"

#include <string>
#include <vector>

namespace orrery::app {

/// `orrery checker --join URL`: a vantage point elsewhere, for a server. Returns the exit code.
int run_checker(std::vector<std::string> flags);

/// HOST:PORT, to which a connection is taken whenever a vantage is well. `invalid` where it is none.
Result<health::Wanted> read_canary(const std::string& text);

} // namespace orrery::app
