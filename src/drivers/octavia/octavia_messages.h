#pragma once

#include "health/sources/balancer_state.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

struct OctaviaBalancer {
    std::string id;
    health::BalancerState state; ///< without members
};
/// The balancers on one page of the list; `unavailable` where the body is not such a list.
Result<std::vector<OctaviaBalancer>> read_octavia_list(std::string_view body);
/// The answer to a request for one balancer.
Result<OctaviaBalancer> read_octavia_balancer(std::string_view body);
/// The status tree: the balancer with its members. An OFFLINE member is disabled in Octavia and does not count. A member is
/// reachable where one of its listeners is not OFFLINE.
Result<health::BalancerState> read_octavia_tree(std::string_view body);

} // namespace orrery::drivers
