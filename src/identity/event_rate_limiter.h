#pragma once

#include "core/clock.h"

#include <cstddef>
#include <string>
#include <unordered_map>

namespace orrery::identity {

/// Allows one event per key and period, and a limited number in total, so that failed logins cannot fill the store. Loop thread
/// only.
class EventRateLimiter {
public:
    struct Options {
        Duration period = std::chrono::minutes(1);
        std::size_t max_per_period = 120; ///< over all keys
        std::size_t max_keys = 4'096;
    };
    EventRateLimiter(Options options, const Clock& clock) : options_(options), clock_(clock) {}
    bool allow(const std::string& key);
    /// The number of events suppressed since the last call.
    std::size_t take_suppressed();

private:
    Options options_;
    const Clock& clock_;
    std::unordered_map<std::string, SteadyTime> next_;
    SteadyTime period_began_{};
    std::size_t allowed_ = 0, suppressed_ = 0;
};

} // namespace orrery::identity
