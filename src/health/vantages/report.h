#pragma once

#include "core/clock.h"
#include "core/text.h"
#include "health/health_state_machine.h"
#include "health/observation.h"

#include <chrono>
#include <string>

namespace orrery::health {

/// What one vantage reports about one target.
struct Report {
    std::string vantage;
    HealthState state = HealthState::unknown;
    Outcome last = Outcome::local_error; ///< of its last probe with evidence
    std::chrono::milliseconds took{};
    int failures = 0;   ///< that are not forgiven
    bool stale = false; ///< remembered from before a restart; no evidence since
    WallTime at{};
    bool trusted = true; ///< false: the vantage is quarantined (self_diagnosis.h)
    std::string untrusted_reason;
    std::string message;            ///< `evidence_text` of its last probe if that was not good
    std::string error;              ///< why the vantage cannot check the target; such a report does not count
    std::string unreachable_reason; ///< why the vantage is considered silent; such a report does not count

    /// The wire form of a report, between checkers and servers and between servers: {"state", "class", "message", "error", "ms",
    /// "n_fail", "stale"}. Vantage, time and trust are not in it: the receiver knows them.
    json::object to_json() const;
    /// Never fails: absent fields have defaults, and every value is bounded.
    static Report from_json(const json::object& value);
};

/// Builds the report of this vantage about one target from the results of its probes.
struct ReportBuilder {
    Report report;
    SteadyTime at{};         ///< of the last evidence
    SteadyTime message_at{}; ///< when the message was last renewed
    int unable = 0;          ///< consecutive probes that were local errors

    /// Applies the result of a probe. `passive`: a local error keeps the last report, because it means only that the external
    /// source is unavailable.
    void update(const HealthStateMachine& verdict, const Observation& observed, bool passive, SteadyTime now);
};
/// Whether two reports differ in what other vantages must learn. The duration and the number of failures are not compared.
bool differs(const Report& left, const Report& right);

} // namespace orrery::health
