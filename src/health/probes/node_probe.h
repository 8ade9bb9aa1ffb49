#pragma once

#include "health/check_spec.h"
#include "health/probes/command_probe.h"

#include <string>

namespace orrery::health {

/// A probe of kind tcp, http, https or icmp that runs on a managed node with tools that every node has: bash, curl, ping.
/// `unsupported`: another kind. A node that cannot be reached or lacks the tool is a local error.
Result<ProbePtr> node_probe(CommandRunner& commands, const std::string& node, const CheckSpec& spec);

} // namespace orrery::health
