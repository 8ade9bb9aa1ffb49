#pragma once

#include "health/source.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// A regional load balancer as its own API tells of it (Octavia v2, Neutron LBaaS v2), in the words that matter here.
struct BalancerState {
    enum class Operating { online, draining, offline, degraded, error, no_monitor };
    struct Member {
        Operating operating = Operating::no_monitor;
        bool reachable = true; ///< it stands behind a listener that is enabled
    };
    Operating operating = Operating::no_monitor;
    std::vector<Member> members;        ///< that are enabled
    bool exists = true;                 ///< false: the API knows no such balancer, or it is deleted
    bool goes_away = false;             ///< it is being deleted
    bool changes = false;               ///< something else is pending: it may be serving all the same
    std::vector<std::string> addresses; ///< clients find it there
};
/// `no_monitor`, which says that nobody knows, for a word that is not known.
BalancerState::Operating operating_from(std::string_view word);

/// Up if it is online, or degraded with at least `least_members` online behind an enabled listener; no evidence where nothing
/// monitors it; draining, and not down, if all members that live drain; down if it is in error, offline, going or gone. The share
/// is that of online members.
StatusSource::Reading judge(const BalancerState& state, int least_members);

} // namespace orrery::health
