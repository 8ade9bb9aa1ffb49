#include "identity/event_rate_limiter.h"

#include <utility>

namespace orrery::identity {

bool EventRateLimiter::allow(const std::string& key) {
    const auto now = clock_.steady();
    if (now - period_began_ >= options_.period) {
        period_began_ = now;
        allowed_ = 0;
        std::erase_if(next_, [&](const auto& entry) { return entry.second <= now; });
    }
    const auto found = next_.find(key);
    if ((found != next_.end() && found->second > now) || allowed_ >= options_.max_per_period ||
        (found == next_.end() && next_.size() >= options_.max_keys)) {
        ++suppressed_;
        return false;
    }
    next_[key] = now + options_.period;
    ++allowed_;
    return true;
}

std::size_t EventRateLimiter::take_suppressed() { return std::exchange(suppressed_, 0); }

} // namespace orrery::identity
