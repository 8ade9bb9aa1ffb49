#pragma once

#include "gslb/model.h"

#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

    // The tree itself, to walk it: one bit of an address a step, from `root`.
    std::uint32_t root(bool v6) const;
    std::uint32_t child(std::uint32_t node, unsigned side) const; ///< of one with children
    bool has_children(std::uint32_t node) const { return node < node_count_; }
    std::uint32_t nodes() const { return node_count_; }
    std::uint32_t empty() const { return node_count_; } ///< the node of addresses that are in no network
    /// What a node without children says; those of the same number are the same place.
    Place place(std::uint32_t node) const;

    const std::string& type() const { return type_; } ///< "GeoLite2-City"
    WallTime built() const { return built_; }

private:
    GeoDatabase() = default;

    std::string bytes_;
    std::uint32_t node_count_ = 0, record_size_ = 0, ip_version_ = 6;
    std::size_t tree_size_ = 0;
    std::string_view data() const { return std::string_view(bytes_).substr(tree_size_ + 16, data_size_); }
    std::size_t data_size_ = 0;
    std::uint32_t v4_start_ = 0;
    std::string type_;
    WallTime built_{};
};

/// Kilometres along the surface.
double distance(const PoolSpec::Location& from, const PoolSpec::Location& to);

} // namespace orrery::gslb
