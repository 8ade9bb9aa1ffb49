#include "health/verdict.h"

#include <algorithm>

namespace orrery::health {

std::string_view name_of(Outcome outcome) {
    switch (outcome) {
    case Outcome::ok: return "ok";
    case Outcome::warning: return "warning";
    case Outcome::local_error: return "local_error";
    case Outcome::refused: return "refused";
    case Outcome::unreachable: return "unreachable";
    case Outcome::timeout_connect: return "timeout_connect";
    case Outcome::tls_error: return "tls_error";
    case Outcome::tls_expired: return "tls_expired";
    case Outcome::timeout_read: return "timeout_read";
    case Outcome::bad_status: return "bad_status";
    case Outcome::bad_body: return "bad_body";
    case Outcome::protocol: return "protocol";
    case Outcome::dns_error: return "dns_error";
    case Outcome::failed: return "failed";
    }
    return "local_error";
}

std::string_view name_of(Standing standing) {
    switch (standing) {
    case Standing::unknown: return "unknown";
    case Standing::up: return "up";
    case Standing::degraded: return "degraded";
    case Standing::down: return "down";
    }
    return "unknown";
}

Verdict Verdict::remembered(Thresholds thresholds, Standing standing) {
    Verdict out(thresholds);
    out.standing_ = standing;
    out.stale_ = standing != Standing::unknown;
    return out;
}

bool Verdict::take(const Observation& observation) {
    if (!is_evidence(observation.outcome)) return false;
    const auto before = standing_;
    const bool good = is_good(observation.outcome);
    const auto good_standing = observation.outcome == Outcome::warning ? Standing::degraded : Standing::up;
    stale_ = false;
    if (standing_ == Standing::unknown) {
        standing_ = good ? good_standing : Standing::down;
    } else if (is_up()) {
        if (!good) {
            successes_ = 0;
            if (++failures_ >= thresholds_.fall) {
                standing_ = Standing::down;
                failures_ = 0;
            }
        } else {
            if (failures_ > 0 && ++successes_ >= thresholds_.forgive) failures_ = successes_ = 0;
            standing_ = good_standing;
        }
    } else if (!good) {
        successes_ = 0;
    } else if (++successes_ >= thresholds_.rise) {
        standing_ = good_standing;
        successes_ = 0;
    }
    return standing_ != before;
}

int Verdict::until_change() const {
    switch (standing_) {
    case Standing::unknown: return 1;
    case Standing::up:
    case Standing::degraded: return std::max(1, thresholds_.fall - failures_);
    case Standing::down: return std::max(1, thresholds_.rise - successes_);
    }
    return 1;
}

} // namespace orrery::health
