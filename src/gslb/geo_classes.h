#pragma once

#include "gslb/clients.h"
#include "gslb/geo.h"

#include <compare>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// From places to classes of clients. Pure.
namespace orrery::gslb {

/// What a load balancer wants to know of where its clients are. Equal questions have equal answers.
struct GeoQuestion {
    std::vector<GeoRule> rules;
    std::map<std::string, PoolSpec::Location> near; ///< pools to find the nearest of, where no rule fits; empty: do not
    /// Of a rule and the pools that say where they are.
    static GeoQuestion of(const Rule& rule, const std::map<std::string, PoolSpec>& pools);
    bool operator==(const GeoQuestion&) const = default;
    std::string key() const; ///< equal for equal ones, and for no others
};

/// Clients, sorted by where they are.
struct GeoClasses {
    std::vector<ClientClass> classes; ///< one for each rule, in order; then one for each order of pools by distance
    Clients clients;
    std::string words; ///< where this is from, for people
};

/// The first rule that fits counts, else the three nearest pools; clients of neither are in no class. Of two databases each says
/// what it knows: one of cities and one of autonomous systems, say. Takes about a second for millions of networks.
GeoClasses geo_classes(const GeoQuestion& question, std::span<const GeoDatabase* const> databases);
constexpr std::size_t most_geo_databases = 2;

} // namespace orrery::gslb
