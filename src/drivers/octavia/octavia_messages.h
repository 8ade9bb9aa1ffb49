#pragma once

#include "health/regional.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

struct OctaviaBalancer {
    std::string id;
    health::BalancerState state; ///< without members
};
/// All balancers on one page of the list; `unavailable` for what is no such list.
Result<std::vector<OctaviaBalancer>> read_octavia_list(std::string_view body);
/// One balancer by itself.
Result<OctaviaBalancer> read_octavia_balancer(std::string_view body);
/// A tree of status: the balancer with its members. A member that is OFFLINE is switched off there, and so does not count; it is
/// reachable behind a listener that is not.
Result<health::BalancerState> read_octavia_tree(std::string_view body);

} // namespace orrery::drivers
