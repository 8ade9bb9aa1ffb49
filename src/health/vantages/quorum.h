#pragma once

#include "core/clock.h"
#include "core/text.h"
#include "health/vantages/report.h"

#include <span>
#include <string>

namespace orrery::health {

struct QuorumRule {
    int need = 0;                              ///< reports of down that are required; 0: more than half of those that count
    Duration fresh = std::chrono::seconds(60); ///< older reports do not count
};

/// The health state of a target over all vantages, with its message and evidence for a decision record.
struct QuorumDecision {
    HealthState state = HealthState::unknown;
    int counted = 0;       ///< vantages that count towards quorum
    bool withheld = false; ///< some vantages report down, and too few for the quorum
    std::string message;   ///< "2 of 3 down, need 2"
    json::array
        evidence;      ///< {"vantage", "class", "message", "ms", "n_fail", "state"} of each that counts; of others "excluded": why
    std::string error; ///< why no vantage can check the target; empty if one can, or none has tried
};

/// Down only if enough of the vantages that count report down. If too few report down and none reports up, the state stays as it
/// was before. Vantages that are quarantined, stale, silent or without evidence do not count, neither as up nor as down. Pure.
QuorumDecision decide(std::span<const Report> reports, const QuorumRule& rule, HealthState before, WallTime now);

} // namespace orrery::health
