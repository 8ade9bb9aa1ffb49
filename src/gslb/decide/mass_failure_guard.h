#pragma once

#include "gslb/decide/member_health.h"
#include "gslb/decide/withheld.h"
#include "gslb/model/specs.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace orrery::gslb {

/// The mass-failure guard of one pool: limits how many members probes may withdraw within a time window (Pool field `guard`). When
/// most members of a pool fail at the same moment, the prober or its network has failed more often than the members have; beyond
/// the limit members therefore stay in answers until the window has passed.
///
/// Pure: withdrawals of earlier evaluations come in, and go out with those of this one.
class MassFailureGuard {
public:
    /// `withdrawals`: the times of earlier withdrawals. Those outside the window are dropped.
    MassFailureGuard(const PoolSpec::Guard& guard, std::size_t members, const std::vector<WallTime>& withdrawals, WallTime now);

    /// Probes find a member down that is in answers. Returns the withheld change if the member must stay in answers; otherwise
    /// counts one withdrawal and returns nullopt.
    std::optional<Withheld> hold(const std::string& member, const MemberHealth& health);
    /// A withdrawn member has returned: makes room for one more withdrawal.
    void returned();

    /// When the guard releases the next member it holds; nullopt if it holds none.
    std::optional<WallTime> next_release() const;
    /// Withdrawals within the window, oldest first: the guard's part of the pool's state.
    const std::vector<WallTime>& withdrawals() const { return withdrawals_; }

    /// The limit of `guard` for a pool of that size.
    static std::size_t max_withdrawals(const PoolSpec::Guard& guard, std::size_t members);

private:
    WallTime released_at() const;

    const PoolSpec::Guard& guard_;
    std::size_t max_;
    WallTime now_;
    std::vector<WallTime> withdrawals_;
    bool holding_ = false;
};

} // namespace orrery::gslb
