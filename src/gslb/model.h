#pragma once

#include "core/clock.h"

#include <boost/json/object.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the kinds of this module say, read: plain values that decisions are made from.
namespace orrery::gslb {

namespace json = boost::json;

/// The greatest weight there is.
constexpr std::uint32_t greatest_weight = 1U << 20U;

/// A share ("50%") or a number (2) of something.
struct Amount {
    bool share = true;
    std::uint32_t value = 50; ///< per cent, or how many
    /// From a text such as "50%" or a whole number. `invalid` says what would be right.
    static Result<Amount> parse(const json::value& value);
    std::string text() const;
    bool operator==(const Amount&) const = default;
};

/// What a person said about a member or a pool, above all probes.
struct Override {
    enum class What { none, up, down, drain }; ///< drain: gets no new clients, and is not missed
    What what = What::none;
    std::string reason, by;
    std::optional<WallTime> until; ///< nothing: until it is taken back
    bool holds(WallTime now) const { return what != What::none && (!until || now < *until); }
    bool operator==(const Override&) const = default;
};

std::string_view name_of(Override::What what); ///< "nothing" for none

struct Addresses {
    std::optional<std::array<std::uint8_t, 4>> v4;
    std::optional<std::array<std::uint8_t, 16>> v6;
    bool empty() const { return !v4 && !v6; }
    /// Takes one more. `invalid` for a text that is no address, or a second of its family.
    Result<Unit> add(std::string_view text);
    std::vector<std::string> texts() const; ///< IPv4 first
    bool operator==(const Addresses&) const = default;
};

struct MemberSpec {
    std::string name, pool;
    Addresses addresses;        ///< as given; empty where `node` or `instance` says it
    std::string node, instance; ///< a Node, or an Instance of the catalog
    std::uint16_t port = 0;
    std::uint32_t weight = 1;
    std::string site, rack; ///< where it stands, as far as it says so itself
    double capacity = 0;    ///< 0: not known
    std::vector<std::string> monitors;
    json::object balancer; ///< the look at it, where it is a regional load balancer
    Override override_;
    static MemberSpec from(std::string name, const json::object& spec);
    bool operator==(const MemberSpec&) const = default;
};

struct PoolSpec {
    std::string name, site;
    struct Location {
        double latitude = 0, longitude = 0;
        bool operator==(const Location&) const = default;
    };
    std::optional<Location> location;
    Amount min_healthy;
    std::vector<std::string> monitors;
    bool unknown_is_up = true;
    struct Guard {
        Amount most;
        Duration window = std::chrono::minutes(1);
        bool operator==(const Guard&) const = default;
    };
    std::optional<Guard> guard;
    struct Load {
        double low = 0, high = 0;
        std::uint32_t step = 20; ///< per cent of the weight
        Duration interval = std::chrono::seconds(30);
        bool operator==(const Load&) const = default;
    };
    std::optional<Load> load;
    Override override_;
    static PoolSpec from(std::string name, const json::object& spec);
    bool operator==(const PoolSpec&) const = default;
};

/// How often a member is looked at and how much it takes: all that decisions need to know of a Monitor.
/// The fields of a Monitor that say when and how often; the others say how to look.
constexpr std::array<std::string_view, 9> monitor_pace{"description", "interval", "fast",    "slow",  "timeout",
                                                       "rise",        "fall",     "forgive", "quorum"};

struct MonitorSpec {
    std::string name;
    Duration interval = std::chrono::seconds(10), timeout = std::chrono::seconds(5);
    Duration fast{}, slow{}; ///< intervals while results point to a change, and when it is down for long; 0: as usual
    int rise = 2, fall = 3;
    Duration between() const { return fast > Duration{} ? fast : interval; } ///< looks while results point to a change
    /// The longest from a failure until it counts: just missed by one look, seen by `fall` more, the last of which takes its time.
    Duration slowest() const { return interval + between() * (fall - 1) + timeout; }
    static MonitorSpec from(std::string name, const json::object& spec);
    bool operator==(const MonitorSpec&) const = default;
};

enum class Steering { failover, spread, topology, geo, latency };
std::string_view name_of(Steering steering);
enum class Answers { all, round_robin, weighted, weighted_many, subset, sticky, sticky_by_name };
std::string_view name_of(Answers answers);
enum class AllDown { all, last_good, fallback, nodata, servfail, refuse };
std::string_view name_of(AllDown all_down);
enum class Failback { automatic, delayed, manual };
std::string_view name_of(Failback failback);

/// Clients that are sent to other pools than the rest: by prefix, by place, by who measures for them.
struct ClientClass {
    std::string label;
    std::vector<std::string> pools;    ///< in order; empty for latency, where measurements order them
    bool strict = false;               ///< never other pools than these
    std::string vantage;               ///< latency: whose measurements count
    std::vector<std::string> prefixes; ///< topology, latency: who they are. Not part of a decision
    bool operator==(const ClientClass&) const = default;
};

/// Where a client is, as a rule of geo steering asks for it. All that is given must fit.
struct GeoRule {
    std::string continent, country, subdivision;
    std::optional<std::uint32_t> asn;
    std::string label;
    std::vector<std::string> pools;
    bool strict = false;
    bool operator==(const GeoRule&) const = default;
};

/// A LoadBalancer's spec: how a name is answered.
struct Rule {
    std::string name, fqdn, zone;
    struct Use {
        std::string pool;
        bool passive = false;
        std::uint32_t weight = 1; ///< for `spread`
        bool operator==(const Use&) const = default;
    };
    std::vector<Use> pools;
    Steering steering = Steering::failover;
    Answers answers = Answers::all;
    std::uint32_t max_answers = 0; ///< 0: no limit
    std::uint32_t ttl_max = 30, ttl_min = 15;
    AllDown all_down = AllDown::all;
    Addresses fallback;
    std::string fallback_alias;
    Failback failback = Failback::automatic;
    Duration failback_after = std::chrono::minutes(1);
    std::optional<WallTime> failback_approved;
    Duration dead_band = std::chrono::milliseconds(10);
    std::uint32_t dead_band_share = 20; ///< per cent
    std::vector<ClientClass> classes;   ///< of topology and latency; those of geo come from the places of clients
    std::vector<GeoRule> geo;
    bool nearest = false; ///< geo: by distance to the pools, where no rule fits
    std::string places;   ///< geo: where it is known from who is where, or why it is not. Not from the spec
    std::optional<Duration> failover_within;
    double demand = 0; ///< what all clients want at the busiest time, in the unit of capacities; 0: not known

    static Rule from(std::string name, const json::object& spec);
    bool operator==(const Rule&) const = default;
};

/// "WWW.Example.test." as "www.example.test": how names compare.
std::string lowered_name(std::string_view fqdn);

} // namespace orrery::gslb
