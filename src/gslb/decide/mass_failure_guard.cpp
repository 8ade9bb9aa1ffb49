#include "gslb/decide/mass_failure_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace orrery::gslb {

namespace {

std::chrono::milliseconds window_of(const PoolSpec::Guard& guard) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(guard.window);
}

} // namespace

MassFailureGuard::MassFailureGuard(const PoolSpec::Guard& guard, std::size_t members, const std::vector<WallTime>& withdrawals,
                                   WallTime now)
    : guard_(guard), max_(max_withdrawals(guard, members)), now_(now) {
    // A time from a clock that was ahead counts as now: it must not hold longer than a withdrawal of this moment.
    for (const auto at : withdrawals)
        if (at + window_of(guard) > now) withdrawals_.push_back(std::min(at, now));
}

std::size_t MassFailureGuard::max_withdrawals(const PoolSpec::Guard& guard, std::size_t members) {
    if (!guard.max_ejections.share) return guard.max_ejections.value;
    if (guard.max_ejections.value >= 100) return std::numeric_limits<std::size_t>::max();
    return std::max<std::size_t>(1, members * guard.max_ejections.value / 100);
}

WallTime MassFailureGuard::released_at() const { return withdrawals_.front() + window_of(guard_); }

std::optional<Withheld> MassFailureGuard::hold(const std::string& member, const MemberHealth& health) {
    const auto detail = health.message.empty() ? std::string() : ": " + health.message;
    if (guard_.given && health.stale) {
        // The state from before the restart does not list the member as withdrawn, so the guard held it. A new withdrawal needs
        // fresh evidence.
        return Withheld{Cause::mass_guard_hold, member,
                        fmt::format("down before the restart{}; held in until the next probe result", detail), std::nullopt};
    }
    if (withdrawals_.size() >= max_) {
        holding_ = true;
        return Withheld{
            Cause::mass_guard_hold, member,
            fmt::format("down by its probes{}, but held in: {} withdrawn within {} already, and the pool's guard allows {}", detail,
                        withdrawals_.size(), to_text(guard_.window), guard_.max_ejections.text()),
            withdrawals_.empty() ? std::nullopt : std::optional(released_at())};
    }
    withdrawals_.push_back(now_);
    return std::nullopt;
}

void MassFailureGuard::returned() {
    if (!withdrawals_.empty()) withdrawals_.erase(withdrawals_.begin());
}

std::optional<WallTime> MassFailureGuard::next_release() const {
    if (!holding_ || withdrawals_.empty()) return std::nullopt;
    return released_at();
}

} // namespace orrery::gslb
