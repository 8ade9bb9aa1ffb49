#include "health/schedule.h"

#include <algorithm>

namespace orrery::health {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

} // namespace

Duration interval_now(const Intervals& intervals, const Trend& trend) {
    Duration out = intervals.interval;
    if (intervals.fast_interval > Duration{} && trend.in_transition)
        out = std::min(out, intervals.fast_interval);
    else if (intervals.down_interval > Duration{} && trend.down_for > Duration{} && trend.down_for >= intervals.down_after)
        out = std::max(out, intervals.down_interval);
    return std::max<Duration>(out, milliseconds(100));
}

std::uint64_t stable_hash(std::string_view text) {
    std::uint64_t hash = 1469598103934665603ULL; // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash ^ (hash >> 29);
}

Duration until_phase(std::uint64_t hash, Duration interval, WallTime now) {
    const auto length = std::max<std::int64_t>(1, duration_cast<milliseconds>(interval).count());
    const auto phase = static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(length));
    const auto into = ((now.time_since_epoch().count() - phase) % length + length) % length;
    return milliseconds(length - into);
}

Duration jitter(Duration interval, int percent, std::uint64_t random) {
    const auto spread = duration_cast<milliseconds>(interval).count() * percent / 100;
    if (spread <= 0) return {};
    return milliseconds(static_cast<std::int64_t>(random % static_cast<std::uint64_t>(2 * spread + 1)) - spread);
}

} // namespace orrery::health
