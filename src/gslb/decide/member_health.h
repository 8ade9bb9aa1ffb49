#pragma once

#include "core/clock.h"
#include "gslb/decide/cause.h"
#include "health/health_state.h"

#include <boost/json/value.hpp>

#include <map>
#include <optional>
#include <string>

namespace orrery::gslb {

namespace json = boost::json;
using health::HealthState;

/// A vantage reports a member down without reaching the quorum, or the member's source cannot be queried.
struct UnconfirmedFailure {
    Cause cause = Cause::quorum_hold; ///< quorum_hold, vantage_excluded or source_silent
    std::string message;
    bool operator==(const UnconfirmedFailure&) const = default;
};

/// The health of one member over all its monitors: the input of a pool evaluation.
struct MemberHealth {
    HealthState state = HealthState::unknown;
    bool monitored = false;               ///< false: the member has no monitor and counts as up
    bool stale = false;                   ///< stored before a restart; used until the first fresh result
    std::optional<Duration> until_change; ///< the earliest time at which `state` could change
    std::optional<double> load;
    bool load_expired = false;         ///< a reported load is too old: the member gets its weight back
    std::string unchecked;             ///< why a check cannot run; empty: all checks run
    std::optional<double> share;       ///< the healthy share of the backends behind the member, 0 to 1
    bool drains = false;               ///< the external source reports that the member accepts no new clients
    Cause cause = Cause::probe;        ///< what produced the state: probe, driver, push
    std::map<std::string, double> rtt; ///< milliseconds by vantage
    std::string message;               ///< "http-80: refused, seen by 2 of 3"
    json::value evidence;              ///< for the decision record
    std::optional<UnconfirmedFailure> unconfirmed;
    bool operator==(const MemberHealth&) const = default;
};

} // namespace orrery::gslb
