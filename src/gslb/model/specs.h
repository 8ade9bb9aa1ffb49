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

/// The specs of this module's kinds as plain values: the inputs of decisions.
namespace orrery::gslb {

namespace json = boost::json;

constexpr std::uint32_t max_weight = 1U << 20U;

/// A share ("50%") or a number (2) of something.
struct Amount {
    bool share = true;
    std::uint32_t value = 50; ///< per cent, or a count
    /// From a text such as "50%" or a whole number; otherwise `invalid`.
    static Result<Amount> parse(const json::value& value);
    std::string text() const;
    bool operator==(const Amount&) const = default;
};

/// A state that an administrator set for a member or a pool. It takes precedence over all probes.
struct Override {
    enum class Action { none, up, down, drain }; ///< drain: no new clients; does not count as unhealthy
    Action action = Action::none;
    std::string reason, by;
    std::optional<WallTime> until; ///< nullopt: until it is cleared
    bool holds(WallTime now) const { return action != Action::none && (!until || now < *until); }
    bool operator==(const Override&) const = default;
};

std::string_view name_of(Override::Action action); ///< "none" without an override

struct Addresses {
    std::optional<std::array<std::uint8_t, 4>> v4;
    std::optional<std::array<std::uint8_t, 16>> v6;
    bool empty() const { return !v4 && !v6; }
    /// Adds an address. `invalid` for malformed text, an address that clients cannot connect to, or a second one of its family.
    Result<Unit> add(std::string_view text);
    std::vector<std::string> texts() const; ///< IPv4 first
    bool operator==(const Addresses&) const = default;
};

struct MemberSpec {
    std::string name, pool;
    Addresses addresses;        ///< as given; empty if `node` or `instance` provides it
    std::string node, instance; ///< a Node, or an Instance of the catalog
    std::uint16_t port = 0;
    std::uint32_t weight = 1;
    std::string site, rack; ///< of the member itself; empty: see its Node and pool
    double capacity = 0;    ///< 0: unknown
    std::vector<std::string> monitors;
    json::object balancer; ///< set if the member is a regional load balancer: how its Source is queried
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
        Amount max_ejections;
        Duration window = std::chrono::minutes(1);
        /// The pool sets it. The default guard does not keep clients from another usable pool.
        bool given = true;
        bool operator==(const Guard&) const = default;
    };
    Guard guard{.max_ejections = {}, .window = std::chrono::minutes(1), .given = false};
    struct Load {
        double low = 0, high = 0;
        std::uint32_t step = 20; ///< per cent of the weight
        Duration interval = std::chrono::seconds(30);
        bool operator==(const Load&) const = default;
    };
    std::optional<Load> load;
    /// Members that fail repeatedly stay withdrawn longer each time.
    struct HoldDown {
        std::uint32_t changes = 3; ///< withdrawals within the window from which on a member is flapping
        Duration window = std::chrono::minutes(10);
        Duration hold = std::chrono::seconds(30), max_hold = std::chrono::minutes(10); ///< doubled with each further withdrawal
        bool operator==(const HoldDown&) const = default;
    };
    std::optional<HoldDown> hold_down;
    Override override_;
    static PoolSpec from(std::string name, const json::object& spec);
    bool operator==(const PoolSpec&) const = default;
};

/// The fields of a Monitor that schedule probes; the others describe the probe itself.
constexpr std::array<std::string_view, 9> monitor_schedule_fields{
    "description", "interval", "fast_interval", "down_interval", "timeout", "rise", "fall", "forgive", "quorum"};

/// Is it a Monitor that combines others by a formula, without a probe of its own?
bool is_calculated(const json::object& monitor_spec);

/// The schedule of a Monitor: all that decisions need to know of it.
struct MonitorSpec {
    std::string name;
    Duration interval = std::chrono::seconds(10), timeout = std::chrono::seconds(5);
    Duration fast_interval{},
        down_interval{}; ///< while results point to a change; while the target is down for long. 0: `interval`
    int rise = 2, fall = 3;
    Duration confirm_interval() const { return fast_interval > Duration{} ? fast_interval : interval; }
    /// The worst-case time to detect a failure: one probe just missed it, `fall` more see it, and the last one times out.
    Duration max_detection_time() const { return interval + confirm_interval() * (fall - 1) + timeout; }
    static MonitorSpec from(std::string name, const json::object& spec);
    bool operator==(const MonitorSpec&) const = default;
};

enum class Steering { failover, spread, topology, geo, latency };
std::string_view name_of(Steering steering);
enum class Answers { all, round_robin, weighted, weighted_many, subset, sticky, sticky_by_name };
std::string_view name_of(Answers answers);
enum class AllDown { all, healthy, last_good, fallback, nodata, servfail, refuse };
std::string_view name_of(AllDown all_down);
enum class Failback { automatic, delayed, manual };
std::string_view name_of(Failback failback);

/// Clients with pools of their own: by prefix, by location, or by the vantage that measures for them.
struct ClientClass {
    std::string label;
    std::vector<std::string> pools;    ///< in order; empty for latency, where measurements order them
    bool strict = false;               ///< never use other pools
    std::string vantage;               ///< latency: the vantage whose measurements count
    std::vector<std::string> prefixes; ///< topology, latency: the clients. Not part of a decision
    bool operator==(const ClientClass&) const = default;
};

/// A rule of geo steering. All given fields must match.
struct GeoRule {
    std::string continent, country, subdivision;
    std::optional<std::uint32_t> asn;
    std::string label;
    std::vector<std::string> pools;
    bool strict = false;
    bool operator==(const GeoRule&) const = default;
};

/// The spec of a LoadBalancer: how its name is answered.
struct LoadBalancerSpec {
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
    std::vector<ClientClass> classes;   ///< of topology and latency steering; those of geo come from the geo databases
    std::vector<GeoRule> geo;
    bool nearest = false;   ///< geo: by distance to the pools, for clients without a matching rule
    std::string geo_source; ///< geo: the databases in use, or why there are none. Not from the spec
    std::optional<Duration> failover_within;
    double demand = 0; ///< peak demand of all clients, in the unit of capacities; 0: unknown

    static LoadBalancerSpec from(std::string name, const json::object& spec);
    bool operator==(const LoadBalancerSpec&) const = default;
};

/// "WWW.Example.test." as "www.example.test": the form in which names are compared.
std::string lowered_name(std::string_view fqdn);

} // namespace orrery::gslb
