#pragma once

#include "core/clock.h"
#include "health/observation.h"
#include "health/probes/probe.h"

#include <map>
#include <string>

namespace orrery::health {

/// What a client reported about a target, valid for its TTL.
struct PushedStatus {
    Outcome outcome = Outcome::local_error;
    std::string text;
    SteadyTime at{};
    Duration ttl{};
};

/// The last pushed status of each target. Loop thread only.
class PushedStatuses {
public:
    explicit PushedStatuses(Clock& clock) : clock_(clock) {}
    void record(const std::string& key, Outcome outcome, std::string text, Duration ttl);
    void forget(const std::string& key) { statuses_.erase(key); }
    /// The status as an observation. Never pushed: no evidence. Expired: bad.
    Observation current(const std::string& key) const;

private:
    Clock& clock_;
    std::map<std::string, PushedStatus> statuses_;
};

/// A probe that returns the current pushed status. The statuses must outlive the probe.
ProbePtr push_probe(const PushedStatuses& statuses, std::string key);

} // namespace orrery::health
