#pragma once

#include "gslb/decide/member_health.h"
#include "gslb/decide/withheld.h"
#include "gslb/model/specs.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// The first of two steps from health to answers: evaluates the members of a pool. Overrides, the mass-failure guard, the hold-down
/// of flapping members and the pace of load shedding apply here. The result is shared by all load balancers that use the pool.
/// Pure: time and state come in, state goes out.
namespace orrery::gslb {

/// A member with everything that its evaluation depends on.
struct MemberInput {
    MemberSpec spec;
    Addresses addresses;    ///< of the member, its Node or its Instance
    std::string site, rack; ///< of the member, the labels of its Node, or its pool
    std::string no_address; ///< why the member has no address
    MemberHealth health;
    bool operator==(const MemberInput&) const = default;
};

struct PoolInput {
    PoolSpec spec;
    std::vector<MemberInput> members; ///< by name
};

/// What later evaluations of a pool need from earlier ones. Stored as `internal_state` in the pool's status.
struct PoolState {
    std::set<std::string> withdrawn; ///< members that probes withdrew
    std::vector<WallTime> recently;  ///< times of withdrawals within the guard's window
    struct Load {
        std::uint32_t percent = 100;
        WallTime changed{};
        double load = 0; ///< the load that caused the last change
        bool operator==(const Load&) const = default;
    };
    std::map<std::string, Load> load; ///< members with less than their full weight
    /// Recent withdrawals of a member, for pools with `hold_down`.
    struct Flap {
        std::vector<WallTime> withdrawals; ///< within the window
        std::optional<WallTime> held_until;
        bool operator==(const Flap&) const = default;
    };
    std::map<std::string, Flap> flaps;
    bool operator==(const PoolState&) const = default;
    json::object to_json() const;
    static PoolState from(const json::object& value);
};

/// An evaluated member: the input of decisions.
struct MemberView {
    std::string name;
    Addresses addresses;
    std::uint32_t weight = 1;
    std::uint32_t load = 100; ///< per cent of the weight that load shedding leaves
    std::string site, rack;
    double capacity = 0;
    bool healthy = false;
    bool held_in = false; ///< held in by the default guard: counts as healthy only if no pool is usable without such members
    bool drained = false; ///< gets no clients, and does not count as unhealthy
    bool forced = false;  ///< by an override
    std::string message;  ///< empty for a healthy member without anything to report
    std::optional<Duration> until_change;
    bool operator==(const MemberView&) const = default;
};

struct PoolView {
    std::string name;
    std::optional<PoolSpec::Location> location;
    Amount min_healthy;
    std::vector<MemberView> members;
    std::map<std::string, double> rtt; ///< milliseconds by vantage, averaged over healthy members
    bool operator==(const PoolView&) const = default;
    /// RTT is excluded: few load balancers use it, and it changes constantly.
    bool same_except_rtt(const PoolView& other) const {
        return name == other.name && location == other.location && min_healthy == other.min_healthy && members == other.members;
    }
    json::object to_json() const;
    static PoolView from(const json::object& value);
};
using PoolViewPtr = std::shared_ptr<const PoolView>;

struct PoolEvaluation {
    PoolView view;
    PoolState state;
    std::vector<Withheld> withheld;
    std::optional<WallTime> next_evaluation; ///< the time at which time alone may change the view
};
PoolEvaluation evaluate_pool(const PoolInput& pool, const PoolState& before, WallTime now);

/// The state that a follower uses: the leader's withdrawals, and of its own as many as the guard then allows, because the follower
/// may have seen failures that the leader has not stored yet.
PoolState merge_with_leader(const PoolState& leaders, const PoolState& own, const PoolInput& pool);

} // namespace orrery::gslb
