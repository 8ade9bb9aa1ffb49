#pragma once

#include "core/clock.h"
#include "core/text.h"
#include "health/observation.h"
#include "health/verdict.h"

#include <span>
#include <string>
#include <vector>

namespace orrery::health {

/// What one vantage point says of one target.
struct Report {
    std::string vantage;
    Standing standing = Standing::unknown;
    Outcome last = Outcome::local_error; ///< of its last look
    std::chrono::milliseconds took{};
    int failures = 0;   ///< that are not forgiven
    bool stale = false; ///< remembered from before a restart, not seen since
    WallTime at{};
    bool fit = true; ///< false: it is set aside (see vantage.h)
    std::string unfit_because;
};

struct QuorumRule {
    int need = 0;                              ///< that say down; 0: more than half of those that report
    Duration fresh = std::chrono::seconds(60); ///< an older report counts as none
};

/// What the reports amount to, with the words and data of a decision record.
struct QuorumDecision {
    Standing standing = Standing::unknown;
    int counted = 0;       ///< vantages whose word counted
    bool withheld = false; ///< some say down and it is not believed
    std::string words;     ///< "2 of 3 down, need 2"
    json::array evidence;  ///< {"vantage", "class", "ms", "n_fail"} of each that counted; of the others, why not
};

/// Down only if enough of the vantages that report and are fit say so. Where too few say down and none says up, it stays as it was
/// before. Vantages that are set aside, stale, silent or without evidence count for nothing, neither as up nor as down. Pure.
QuorumDecision decide(std::span<const Report> reports, const QuorumRule& rule, Standing before, WallTime now);

} // namespace orrery::health
