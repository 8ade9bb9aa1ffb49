#pragma once

#include "gslb/model.h"

#include <boost/json/value.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// The first of two steps from health to answers: what is known of a pool's members, with everything that holds changes back at the
/// level of a pool (what a person said, the guard against mass failure, the pace of load shedding), becomes a view that all names
/// which use the pool share. Pure: time and memory come in, memory goes out.
namespace orrery::gslb {

enum class Health { unknown, up, degraded, down };
std::string_view name_of(Health health);

/// Somebody finds a member down and is not believed, or nobody can say.
struct Doubt {
    std::string cause; ///< quorum_hold: too few say so; vantage_excluded: who says so is set aside; source_silent: nobody to ask
    std::string words;
    bool operator==(const Doubt&) const = default;
};

/// What is known of a member from outside, over all its monitors.
struct Signal {
    Health standing = Health::unknown;
    bool monitored = false;               ///< false: it has no monitor, and counts as up
    bool stale = false;                   ///< from before a restart: stands until there is a fresh result
    std::optional<Duration> until_change; ///< the soonest that the standing could be another
    std::optional<double> load;
    std::optional<double> share;       ///< how much of what stands behind it is well, 0 to 1
    bool drains = false;               ///< whoever knows it says that it takes no new clients
    std::string cause = "probe";       ///< how it was found out: probe, driver, push
    std::map<std::string, double> rtt; ///< milliseconds by vantage
    std::string words;                 ///< "http-80: refused, seen by 2 of 3"
    json::value evidence;              ///< for the decision record
    std::optional<Doubt> doubt;
    bool operator==(const Signal&) const = default;
};

/// A member with what the world says of it.
struct MemberInput {
    MemberSpec spec;
    Addresses addresses;    ///< its own, its Node's or its Instance's
    std::string site, rack; ///< its own, its Node's labels' or its pool's
    std::string no_address; ///< why there is none, in words
    Signal signal;
    bool operator==(const MemberInput&) const = default;
};

struct PoolInput {
    PoolSpec spec;
    std::vector<MemberInput> members; ///< by name
};

/// What must be remembered of a pool from one time to the next. Kept in its status.
struct PoolMemory {
    std::set<std::string> withdrawn; ///< members that probes took out
    std::vector<WallTime> recently;  ///< when the last withdrawals were, within the guard's window
    struct Load {
        std::uint32_t percent = 100;
        WallTime changed{};
        bool operator==(const Load&) const = default;
    };
    std::map<std::string, Load> load; ///< members that do not have all of their weight
    bool operator==(const PoolMemory&) const = default;
    json::object to_json() const;
    static PoolMemory from(const json::object& value);
};

/// A member as decisions see it.
struct MemberView {
    std::string name;
    Addresses addresses;
    std::uint32_t weight = 1;
    std::uint32_t load = 100; ///< per cent of the weight that its load leaves it
    std::string site, rack;
    double capacity = 0;
    bool healthy = false;
    bool drained = false; ///< neither chosen nor missed
    bool forced = false;  ///< because a person said so
    std::string why;      ///< in words; empty where there is nothing to say
    std::optional<Duration> until_change;
    bool operator==(const MemberView&) const = default;
};

struct PoolView {
    std::string name;
    std::optional<PoolSpec::Location> location;
    Amount min_healthy;
    std::vector<MemberView> members;
    std::map<std::string, double> rtt; ///< milliseconds by vantage, over its healthy members
    bool operator==(const PoolView&) const = default;
    /// How far away it is matters to few, and is another all the time.
    bool same_but_for_distance(const PoolView& other) const {
        return name == other.name && location == other.location && min_healthy == other.min_healthy && members == other.members;
    }
    json::object to_json() const;
    static PoolView from(const json::object& value);
};
using PoolViewPtr = std::shared_ptr<const PoolView>;

/// A change that did not happen, and what it waits for.
struct Withheld {
    std::string cause; ///< mass_guard_hold, quorum_hold, vantage_excluded, source_silent, failback, dead_band
    std::string about; ///< a member or a pool
    std::string words;
    std::optional<WallTime> until; ///< nothing: no time will release it
    bool operator==(const Withheld&) const = default;
    json::object to_json() const;
};

struct Settled {
    PoolView view;
    PoolMemory memory;
    std::vector<Withheld> withheld;
    std::optional<WallTime> look_again; ///< when time alone may change the view
};
Settled settle(const PoolInput& pool, const PoolMemory& before, WallTime now);

/// What a server goes by that does not lead: whom the leader took out, and of those that it took out itself as many as the guard
/// then leaves room for, for it may have seen more.
PoolMemory followed(const PoolMemory& leaders, const PoolMemory& own, const PoolInput& pool);

} // namespace orrery::gslb
