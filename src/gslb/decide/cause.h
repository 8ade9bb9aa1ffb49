#pragma once

#include <string_view>

namespace orrery::gslb {

/// The cause of a decision record: what changed an answer, or what withholds a change.
enum class Cause {
    // What changed an input
    config,
    probe,
    driver, ///< an external source: Octavia, Prometheus
    push,
    load,
    admin,
    time,
    leader, ///< the state of the leader differs from this server's
    // What the decision did
    panic_enter,
    panic_leave,
    // What withholds a change
    mass_guard_hold,
    flap_hold,
    quorum_hold,      ///< too few vantages agree
    vantage_excluded, ///< the vantage that reports it is quarantined
    source_silent,    ///< the source of the member's state cannot be queried
    failback,
    dead_band,
};
/// The name in decision records and statuses: the enumerator.
std::string_view name_of(Cause cause);

} // namespace orrery::gslb
