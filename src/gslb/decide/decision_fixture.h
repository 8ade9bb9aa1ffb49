#pragma once

#include "gslb/decide/decision.h"

#include <string>
#include <utility>
#include <vector>

/// For tests only: short ways to build pools and load balancers.
namespace orrery::gslb::testing {

constexpr WallTime noon{std::chrono::milliseconds(1'800'000'000'000)};

inline MemberInput a_member(std::string name, std::string pool, std::vector<std::string> addresses,
                            HealthState state = HealthState::up, std::uint32_t weight = 1) {
    MemberInput out;
    out.spec.name = std::move(name);
    out.spec.pool = std::move(pool);
    out.spec.weight = weight;
    for (const auto& address : addresses) std::ignore = out.addresses.add(address);
    out.spec.addresses = out.addresses;
    out.health.monitored = true;
    out.health.state = state;
    return out;
}

/// Members NAME-1, NAME-2... at 10.SITE.0.1, ...; the first `healthy` of them are up.
inline PoolInput a_pool(std::string name, int site, int members, int healthy) {
    PoolInput out;
    out.spec.name = name;
    out.spec.guard.max_ejections = {.share = true, .value = 100}; // tests of the guard set their own
    for (int at = 1; at <= members; ++at)
        out.members.push_back(a_member(name + "-" + std::to_string(at), name,
                                       {"10." + std::to_string(site) + ".0." + std::to_string(at)},
                                       at <= healthy ? HealthState::up : HealthState::down));
    return out;
}

inline PoolViewPtr view(const PoolInput& pool, WallTime now = noon) {
    return std::make_shared<const PoolView>(evaluate_pool(pool, {}, now).view);
}

inline LoadBalancerSpec a_load_balancer(std::vector<std::string> pools, Steering steering = Steering::failover,
                                        Answers answers = Answers::all) {
    LoadBalancerSpec out;
    out.name = "www";
    out.fqdn = "www.gslb.test";
    out.zone = "gslb.test";
    for (auto& pool : pools) out.pools.push_back({.pool = std::move(pool)});
    out.steering = steering;
    out.answers = answers;
    return out;
}

inline std::vector<std::string> members_of(const Answer& answer) {
    std::vector<std::string> out;
    for (const auto& one : answer.candidates) out.push_back(one.member);
    return out;
}

} // namespace orrery::gslb::testing
