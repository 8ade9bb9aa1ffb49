// Requests of the ExternalDNS of a Kubernetes cluster: the bodies of POST /records and POST /adjustendpoints.
#include "gslb/observe/externaldns_source.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

const std::vector<std::string> domains{"apps.example", "example.com"};

void use(const orrery::gslb::ClusterEndpoint& endpoint) {
    using namespace orrery::gslb;
    // What is kept must read again, as the same record.
    const auto again = read_cluster_endpoint(endpoint.as_given, "again");
    if (!again.ok() || again->record_name("k") != endpoint.record_name("k")) std::abort();
    if (!cluster_refusal(endpoint, domains).empty() || !endpoint.is_address()) return;
    const auto members = cluster_members("k", endpoint.name, {endpoint});
    if (members.empty() || members.size() > max_cluster_targets) std::abort();
    std::ignore = cluster_pool_name(endpoint.name);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto changes = orrery::gslb::read_cluster_changes(text); changes.ok()) {
        for (const auto& endpoint : changes->put) use(endpoint);
        for (const auto& endpoint : changes->removed) use(endpoint);
    }
    if (const auto endpoints = orrery::gslb::read_cluster_endpoints(text); endpoints.ok())
        for (const auto& endpoint : *endpoints) use(endpoint);
    return 0;
}
