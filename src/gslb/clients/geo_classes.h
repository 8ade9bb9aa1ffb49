#pragma once

#include "gslb/clients/client_classes.h"
#include "gslb/clients/maxmind_database.h"

#include <compare>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Turns geo databases into client classes. Pure.
namespace orrery::gslb {

/// What a load balancer with geo steering asks the databases. Equal queries have equal results.
struct GeoQuery {
    std::vector<GeoRule> rules;
    std::map<std::string, PoolSpec::Location> near; ///< pools for clients without a matching rule, by distance; empty: none
    /// From a spec and the pools that have a location.
    static GeoQuery of(const LoadBalancerSpec& spec, const std::map<std::string, PoolSpec>& pools);
    bool operator==(const GeoQuery&) const = default;
    std::string key() const; ///< equal for equal queries only
};

/// All clients, classified by location.
struct GeoClasses {
    std::vector<ClientClass> classes; ///< one for each rule, in order; then one for each order of pools by distance
    ClientClasses clients;
    std::string message; ///< which databases this is from, for people
};

/// The first matching rule wins; without one, the three nearest pools; clients without either are in the default class. Of two
/// databases each contributes what it has, for example one of cities and one of autonomous systems. Takes about a second for
/// millions of networks.
GeoClasses geo_classes(const GeoQuery& query, std::span<const MaxmindDatabase* const> databases);
constexpr std::size_t max_geo_databases = 2;

} // namespace orrery::gslb
