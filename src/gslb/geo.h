#pragma once

#include "gslb/clients.h"
#include "gslb/model.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::gslb {

/// Where a network is, as far as a database says so.
struct Place {
    std::string continent;   ///< "EU"
    std::string country;     ///< "NL"
    std::string subdivision; ///< "NH": the first, as the country counts them
    std::optional<std::uint32_t> asn;
    std::optional<PoolSpec::Location> location;
    bool operator==(const Place&) const = default;
};

/// A MaxMind DB file (format 2.0): networks and what is known of them. Reads foreign bytes: whatever they are, it neither crashes
/// nor runs on. Immutable.
class GeoDatabase {
public:
    /// `invalid` for what is no such file, or is cut short.
    static Result<GeoDatabase> read(std::string bytes);

    /// Nothing where the address is in no network of it.
    std::optional<Place> find(const boost::asio::ip::address& address) const;
    /// Every network with its entry, in order, IPv4 as IPv4. Entries of the same number are the same place.
    void each(const std::function<void(const dns::Prefix& network, std::uint32_t entry)>& visit) const;
    Place place(std::uint32_t entry) const;

    const std::string& type() const { return type_; } ///< "GeoLite2-City"
    WallTime built() const { return built_; }

private:
    GeoDatabase() = default;
    std::uint32_t child(std::uint32_t node, unsigned side) const;

    std::string bytes_;
    std::uint32_t node_count_ = 0, record_size_ = 0, ip_version_ = 6;
    std::size_t tree_size_ = 0;
    std::string_view data() const { return std::string_view(bytes_).substr(tree_size_ + 16, data_size_); }
    std::size_t data_size_ = 0;
    std::uint32_t v4_start_ = 0;
    std::string type_;
    WallTime built_{};
};

/// The classes of clients that a geo rule makes: one for each rule of it that some network fits, and, where it says `nearest`, one
/// for each order of pools by distance (the three nearest).
struct GeoClasses {
    std::vector<ClientClass> classes;
    Clients clients;
};
GeoClasses geo_classes(const Rule& rule, const std::map<std::string, PoolSpec::Location>& pools, const GeoDatabase& database);

/// Kilometres along the surface.
double distance(const PoolSpec::Location& from, const PoolSpec::Location& to);

} // namespace orrery::gslb
