#pragma once

#include "catalog/catalog.h"
#include "dns/server.h"

#include <boost/asio/any_io_executor.hpp>

#include <memory>
#include <string>

namespace orrery::api::consul {

/// The catalog's names in DNS, as Consul gives them. The catalog side (`follow`) belongs to the loop; `respond` reads an immutable
/// snapshot that is replaced whole when something changed, so it may be called from any thread.
class DnsAnswers final : public dns::Responder, public std::enable_shared_from_this<DnsAnswers> {
public:
    struct Options {
        std::string domain = "consul", datacenter = "dc1";
        std::string name_server; ///< the node that is the zone's NS
        bool only_passing = false, truncate = false;
        int udp_answers = 3;
        std::uint32_t node_ttl = 0, service_ttl = 0;
    };
    explicit DnsAnswers(Options options);
    ~DnsAnswers() override;

    /// Makes the first snapshot and keeps it up to date until the catalog goes: what changed in one turn of the loop becomes one
    /// new snapshot, in which only the services that changed are made anew.
    void follow(asio::any_io_executor executor, catalog::Catalog& catalog, store::Store& store);
    void stop_following();

    std::size_t respond(dns::Bytes query, const dns::Asker& asker, std::span<std::uint8_t> out) const noexcept override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::api::consul
