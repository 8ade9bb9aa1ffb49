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

/// Kubernetes clusters whose ExternalDNS reports the addresses of services: this server is the provider of its webhook protocol.
/// The bodies are untrusted input: sizes are limited, and errors name the position.
namespace orrery::gslb {

namespace json = boost::json;

/// A cluster: its site, the domains that it may manage, and the token in the path of its webhook URL.
resource::Kind cluster_kind();
/// A record as ExternalDNS sent it, to be returned unchanged. Only the server writes it.
resource::Kind cluster_record_kind();

constexpr std::size_t max_cluster_endpoints = 5'000; ///< in one list of a body
constexpr std::size_t max_cluster_records = 5'000;   ///< of one cluster
constexpr std::size_t max_cluster_targets = 100;     ///< of one endpoint
constexpr std::size_t max_cluster_endpoint_size = 32 << 10;

struct ClusterEndpoint {
    std::string name; ///< in lower case, without the last dot
    std::string type; ///< "A"
    std::string set;  ///< the set identifier: distinguishes endpoints of one name and type
    std::uint32_t ttl = 0;
    std::vector<std::string> targets;
    json::object as_given;

    bool is_address() const { return type == "A" || type == "AAAA"; }
    /// The name of its ClusterRecord: a function of name, type and set.
    std::string record_name(std::string_view cluster) const;
};

/// The body of `POST /adjustendpoints`: an array of endpoints. `invalid` with the position of an error.
Result<std::vector<ClusterEndpoint>> read_cluster_endpoints(std::string_view body);
Result<ClusterEndpoint> read_cluster_endpoint(const json::value& endpoint, std::string_view path);

struct ClusterChanges {
    std::vector<ClusterEndpoint> put, removed; ///< `removed`: endpoints that no longer exist
};
/// The body of `POST /records`. `invalid` with the position of an error.
Result<ClusterChanges> read_cluster_changes(std::string_view body);

/// Why a cluster with these domains may not manage the endpoint; empty: it may.
std::string cluster_refusal(const ClusterEndpoint& endpoint, const std::vector<std::string>& domains);
/// The longest of the domains that contains the name; empty if none does.
std::string cluster_domain(std::string_view name, const std::vector<std::string>& domains);

/// The name of the pool of a host name: the host name itself if it is a valid name.
std::string cluster_pool_name(std::string_view host);
/// The Members of a cluster for a host name, by name, with their addresses: one for each address, or a single one for one IPv4 and
/// one IPv6 address.
std::map<std::string, std::vector<std::string>> cluster_members(std::string_view cluster, std::string_view host,
                                                                const std::vector<ClusterEndpoint>& endpoints);

/// Compares in constant time.
bool same_secret(std::string_view given, std::string_view stored);

} // namespace orrery::gslb
