#pragma once

#include "health/sources/status_source.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// The state of a regional load balancer as its API reports it (Octavia v2, Neutron LBaaS v2), reduced to what health needs.
struct BalancerState {
    enum class Operating { online, draining, offline, degraded, error, no_monitor };
    struct Member {
        Operating operating = Operating::no_monitor;
        bool reachable = true; ///< it is behind an enabled listener
    };
    Operating operating = Operating::no_monitor;
    std::vector<Member> members;        ///< enabled ones
    bool exists = true;                 ///< false: the API does not know the balancer, or it is deleted
    bool goes_away = false;             ///< it is being deleted
    bool changes = false;               ///< another change is pending; the balancer may still serve
    std::vector<std::string> addresses; ///< that clients connect to
};
/// The operating status of that name; `no_monitor`, which is no evidence, for an unknown name.
BalancerState::Operating operating_from(std::string_view status);

/// Up if the balancer is online, or degraded with at least `min_members` online members behind an enabled listener. No evidence if
/// nothing monitors it. Draining, not down, if all live members drain. Down if it is in error, offline, being deleted or deleted.
/// The share is that of the online members.
StatusSource::Reading judge(const BalancerState& state, int min_members);

} // namespace orrery::health
