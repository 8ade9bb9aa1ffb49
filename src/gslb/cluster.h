#pragma once

#include "core/result.h"
#include "resource/kind.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Kubernetes clusters whose ExternalDNS tells us where their services are (its webhook protocol, we as the provider). What it
/// sends is foreign bytes: limits hold, and errors name the place.
namespace orrery::gslb {

namespace json = boost::json;

/// A cluster: where it is, which domains it may say something about, and the token in the path of its URL.
resource::Kind cluster_kind();
/// A record as a cluster's ExternalDNS gave it, to be returned unchanged. Written by the server only.
resource::Kind cluster_record_kind();

constexpr std::size_t most_cluster_endpoints = 5'000; ///< in one list of a body
constexpr std::size_t most_cluster_records = 5'000;   ///< of one cluster
constexpr std::size_t most_cluster_targets = 100;     ///< of one endpoint
constexpr std::size_t most_cluster_endpoint_size = 32 << 10;

struct ClusterEndpoint {
    std::string name; ///< lower case, without the last dot
    std::string type; ///< "A"
    std::string set;  ///< tells several of one name and type apart
    std::uint32_t ttl = 0;
    std::vector<std::string> targets;
    json::object as_given;

    bool is_address() const { return type == "A" || type == "AAAA"; }
    /// Under which it is kept: the same for the same name, type and set.
    std::string record_name(std::string_view cluster) const;
};

/// The body of `POST /adjustendpoints`: an array of endpoints. `invalid` says where it is wrong.
Result<std::vector<ClusterEndpoint>> read_cluster_endpoints(std::string_view body);
Result<ClusterEndpoint> read_cluster_endpoint(const json::value& endpoint, std::string_view path);

struct ClusterChanges {
    std::vector<ClusterEndpoint> put, take; ///< `take`: what is there no longer
};
/// The body of `POST /records`. `invalid` says where it is wrong.
Result<ClusterChanges> read_cluster_changes(std::string_view body);

/// Why it cannot be had of a cluster with these domains: in words, or nothing where it can.
std::string cluster_refusal(const ClusterEndpoint& endpoint, const std::vector<std::string>& domains);
/// The longest of the domains that the name is in; empty where it is in none.
std::string cluster_domain(std::string_view name, const std::vector<std::string>& domains);

/// The pool of a host name: called so, where a pool can be.
std::string cluster_pool_name(std::string_view host);
/// The Members that a cluster has for a host name, by name, with their addresses: one for each address, but one for both where
/// there is one IPv4 and one IPv6 address.
std::map<std::string, std::vector<std::string>> cluster_members(std::string_view cluster, std::string_view host,
                                                                const std::vector<ClusterEndpoint>& endpoints);

/// In a time that does not depend on where they differ.
bool same_secret(std::string_view given, std::string_view kept);

} // namespace orrery::gslb
