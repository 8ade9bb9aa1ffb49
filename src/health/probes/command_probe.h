#pragma once

#include "core/task.h"
#include "health/probes/probe.h"

#include <string>
#include <vector>

namespace orrery::health {

/// Port: runs a command on a managed node. A driver implements it over SSH; app connects the two.
class CommandRunner {
public:
    virtual ~CommandRunner() = default;
    struct Ended {
        int exit_code = -1; ///< -1: ended by a signal
        std::string output;
    };
    /// `input`: standard input of the command. `not_found`: no node of that name is managed. `unavailable`, `timeout`, `denied`:
    /// the node cannot be reached.
    virtual Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv, std::string input) = 0;
};

/// Exit code 0 is good, 1 is a warning, every other is bad. A node that cannot be reached is no evidence: its services may well
/// run. The runner must outlive the probe.
ProbePtr command_probe(CommandRunner& runner, std::string node, std::vector<std::string> argv);

} // namespace orrery::health
