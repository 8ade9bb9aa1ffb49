#pragma once

#include "gslb/model/specs.h"

#include <boost/asio/ip/address.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::gslb {

/// The location of a network, as far as a database has it.
struct GeoLocation {
    std::string continent;   ///< "EU"
    std::string country;     ///< "NL"
    std::string subdivision; ///< "NH": the first subdivision of the entry
    std::optional<std::uint32_t> asn;
    std::optional<PoolSpec::Location> location;
    bool operator==(const GeoLocation&) const = default;
};

/// A MaxMind DB file (format 2.0): maps networks to locations. The file is untrusted input: malformed bytes cause neither a crash
/// nor an endless loop. Immutable.
class MaxmindDatabase {
public:
    /// `invalid` for a file of another format or a truncated one.
    static Result<MaxmindDatabase> read(std::string bytes);

    /// nullopt if no network of the database contains the address.
    std::optional<GeoLocation> find(const boost::asio::ip::address& address) const;

    // The search tree: one address bit for each step, from `root`.
    std::uint32_t root(bool v6) const;
    std::uint32_t child(std::uint32_t node, unsigned side) const; ///< requires `has_children(node)`
    bool has_children(std::uint32_t node) const { return node < node_count_; }
    std::uint32_t nodes() const { return node_count_; }
    std::uint32_t empty() const { return node_count_; } ///< the node of addresses without an entry
    /// The location of a node without children. Equal node numbers have equal locations.
    GeoLocation location_of(std::uint32_t node) const;

    const std::string& type() const { return type_; } ///< "GeoLite2-City"
    WallTime built() const { return built_; }

private:
    MaxmindDatabase() = default;

    std::string bytes_;
    std::uint32_t node_count_ = 0, record_size_ = 0, ip_version_ = 6;
    std::size_t tree_size_ = 0;
    std::string_view data() const { return std::string_view(bytes_).substr(tree_size_ + 16, data_size_); }
    std::size_t data_size_ = 0;
    std::uint32_t v4_start_ = 0;
    std::string type_;
    WallTime built_{};
};

/// Great-circle distance in kilometres.
double distance(const PoolSpec::Location& from, const PoolSpec::Location& to);

} // namespace orrery::gslb
