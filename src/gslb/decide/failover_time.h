#pragma once

#include "gslb/model/specs.h"

#include <map>
#include <string>
#include <vector>

namespace orrery::gslb {

/// The worst-case time for which a client may keep using an address after it failed.
struct FailoverTime {
    bool bounded = false;   ///< false: some failure is never detected
    Duration detection{};   ///< until the slowest monitor reports the member down
    Duration vantages{};    ///< until reports of a vantage that died at the same time expire
    Duration publication{}; ///< until every name server gives the new answer
    Duration ttl{};         ///< until the last cached answer has expired
    Duration total() const { return detection + vantages + publication + ttl; }
    std::vector<std::string> warnings; ///< each with a remedy
    json::object to_json() const;
};
struct FailoverInput {
    std::map<std::string, std::vector<MonitorSpec>> monitors; ///< by member
    std::map<std::string, std::string> unchecked;             ///< by member, why its checks cannot run
    Duration publication{};                                   ///< of the slowest publication target
    Duration vantage_expiry{};                                ///< how long reports of a dead vantage count
};
FailoverTime worst_failover(const LoadBalancerSpec& spec, const FailoverInput& input);

} // namespace orrery::gslb
