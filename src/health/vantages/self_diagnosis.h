#pragma once

#include "core/clock.h"

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace orrery::health {

/// A time that steps of the wall clock do not move; comparable only with times from this function.
inline WallTime unstepped(const Clock& clock) {
    return WallTime(std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady().time_since_epoch()));
}

/// When a vantage quarantines itself.
struct VantageRule {
    int drop_percent = 50;                      ///< more of its targets failing within `window`: the vantage is at fault
    std::size_t min_targets = 4;                ///< with fewer targets the share is not meaningful
    Duration window = std::chrono::seconds(10); ///< one interval
    Duration hold = std::chrono::seconds(60);   ///< of the quarantine after such a mass failure
};

/// Why a vantage is quarantined.
enum class QuarantineCause {
    none,         ///< it is trusted, or a checker of an earlier version does not report the cause
    canaries,     ///< more than half of its canaries fail
    mass_failure, ///< too many of its targets failed at once
};
/// The name in reports of checkers and heartbeats of peers; "" for none.
std::string_view name_of(QuarantineCause cause);
QuarantineCause quarantine_cause_named(std::string_view name);

struct Diagnosis {
    bool trusted = true;
    std::string message; ///< why not: "2 of 2 canaries fail"
    QuarantineCause cause = QuarantineCause::none;
};

/// What a vantage knows about its own condition. Canaries are targets that are up whenever the vantage works (its gateway, its
/// peers). The vantage quarantines itself while more than half of its canaries fail, and for a while after too many of its targets
/// began to fail at once; after that it counts again, so that a real outage is accepted in the end. Pure: times are parameters, and
/// must come from `unstepped`.
class SelfDiagnosis {
public:
    explicit SelfDiagnosis(VantageRule rule = {}) : rule_(rule) {}
    /// A target that was up began to fail, as seen from this vantage.
    void target_failed(WallTime at);
    Diagnosis diagnose(std::size_t targets, std::size_t canaries, std::size_t canaries_failing, WallTime now);

private:
    VantageRule rule_;
    std::deque<WallTime> failures_; ///< within the window; bounded
    WallTime quarantined_until_{};
    std::size_t failed_then_ = 0, of_then_ = 0;
};

} // namespace orrery::health
