#pragma once

#include "core/clock.h"
#include "core/text.h"

#include <cstddef>
#include <deque>
#include <string>

namespace orrery::health {

/// A time that no step of the time of day moves, for what is only compared with others of its kind.
inline WallTime unstepped(const Clock& clock) {
    return WallTime(std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady().time_since_epoch()));
}

/// When a vantage point doubts itself.
struct VantageRule {
    int drop_percent = 50;                      ///< more of its targets falling within `window` than this: it is the one that fell
    std::size_t least_targets = 4;              ///< of fewer, the share says nothing
    Duration window = std::chrono::seconds(10); ///< one interval
    Duration hold = std::chrono::seconds(60);   ///< how long it stays aside after such a fall
};

struct Diagnosis {
    bool fit = true;
    std::string words; ///< why not: "2 of 2 canaries fail"
    json::object data; ///< the same for a decision record
};

/// What one vantage point knows of itself: canaries are targets that are up whenever the vantage is well (its gateway, its peers);
/// falls are targets that went down. It is set aside while more than half of its canaries fail, and for a while after too many of
/// its targets fell at once; then its word counts again, so that a real outage is believed in the end. Times come in: no clock, no
/// side effects. They are only compared with each other, and must not step: see `unstepped`.
class SelfDiagnosis {
public:
    explicit SelfDiagnosis(VantageRule rule = {}) : rule_(rule) {}
    /// A target went from up to down, as seen from here.
    void fell(WallTime at);
    Diagnosis diagnose(std::size_t targets, std::size_t canaries, std::size_t canaries_failing, WallTime now);

private:
    VantageRule rule_;
    std::deque<WallTime> falls_; ///< within the window, at most as many as could matter
    WallTime aside_until_{};
    std::size_t fell_then_ = 0, of_then_ = 0;
};

/// How many members of a pool probes may withdraw within a time.
struct GuardRule {
    std::size_t most = 0; ///< so many; 0: as `percent` says
    int percent = 50;     ///< of the members, rounded down, but always one
    Duration window = std::chrono::seconds(60);
};

struct GuardDecision {
    bool allowed = true;
    std::string words; ///< why not: "4 of 8 members were withdrawn within 1m; at most 4 may be"
    json::object data;
};

/// The mass-failure guard of one pool: beyond its rule a withdrawal is held and the pool goes on with what it has. Pure.
class MassGuard {
public:
    explicit MassGuard(GuardRule rule = {}) : rule_(rule) {}
    /// May this member go? If so, it counts.
    GuardDecision withdraw(const std::string& member, std::size_t members, WallTime now);
    /// It came back, or was removed from the pool: what was withdrawn is no longer missing.
    void returned(const std::string& member);
    void set_rule(GuardRule rule) { rule_ = rule; }

private:
    GuardRule rule_;
    std::deque<std::pair<std::string, WallTime>> withdrawn_;
};

} // namespace orrery::health
