#pragma once

#include "catalog/catalog.h"
#include "dns/server.h"

#include <boost/asio/any_io_executor.hpp>

#include <memory>
#include <string>

namespace orrery::api::consul {

/// DNS responses for the names of the catalog, as Consul gives them. `follow` runs on the loop thread; `respond` reads an immutable
/// snapshot that each change replaces, so any thread may call it.
class DnsAnswers final : public dns::Responder, public std::enable_shared_from_this<DnsAnswers> {
public:
    struct Options {
        std::string domain = "consul", datacenter = "dc1";
        std::string name_server; ///< the node in the NS record of the zone
        bool only_passing = false, truncate = false;
        int udp_answers = 3;
        std::uint32_t node_ttl = 0, service_ttl = 0;
    };
    explicit DnsAnswers(Options options);
    ~DnsAnswers() override;

    /// Makes the first snapshot and follows the catalog until `stop_following`. All changes of one loop iteration become one new
    /// snapshot, in which only the changed services are rebuilt.
    void follow(asio::any_io_executor executor, catalog::Catalog& catalog, store::Store& store);
    void stop_following();

    std::size_t respond(dns::Bytes query, const dns::Client& asker, std::span<std::uint8_t> out) const noexcept override;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::api::consul
