#pragma once

#include "gslb/decide.h"

#include <string>
#include <utility>
#include <vector>

/// For tests only: pools and rules in few words.
namespace orrery::gslb::testing {

constexpr WallTime noon{std::chrono::milliseconds(1'800'000'000'000)};

inline MemberInput a_member(std::string name, std::string pool, std::vector<std::string> addresses, Health health = Health::up,
                            std::uint32_t weight = 1) {
    MemberInput out;
    out.spec.name = std::move(name);
    out.spec.pool = std::move(pool);
    out.spec.weight = weight;
    for (const auto& address : addresses) std::ignore = out.addresses.add(address);
    out.spec.addresses = out.addresses;
    out.signal.monitored = true;
    out.signal.standing = health;
    return out;
}

/// Members NAME-1, NAME-2... at 10.SITE.0.1, ...; the first `healthy` of them are up.
inline PoolInput a_pool(std::string name, int site, int members, int healthy) {
    PoolInput out;
    out.spec.name = name;
    for (int at = 1; at <= members; ++at)
        out.members.push_back(a_member(name + "-" + std::to_string(at), name,
                                       {"10." + std::to_string(site) + ".0." + std::to_string(at)},
                                       at <= healthy ? Health::up : Health::down));
    return out;
}

inline PoolViewPtr view(const PoolInput& pool, WallTime now = noon) {
    return std::make_shared<const PoolView>(settle(pool, {}, now).view);
}

inline Rule a_rule(std::vector<std::string> pools, Steering steering = Steering::failover, Answers answers = Answers::all) {
    Rule out;
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
