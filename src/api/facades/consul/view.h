#pragma once

#include "catalog/catalog.h"
#include "catalog/checker.h"
#include "core/task.h"
#include "dns/server.h"
#include "identity/identity.h"
#include "net/http_server.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <memory>
#include <string>

/// The catalog as Consul's clients know it: its HTTP API and its DNS, each on a port of its own. docs/catalog.md says what is there
/// and where it differs from Consul.
namespace orrery::api::consul {

struct ViewOptions {
    std::string node;                  ///< this server's name as a node of the catalog
    std::string address = "127.0.0.1"; ///< and its address
    std::string datacenter = "dc1";
    std::string domain = "consul";                       ///< of DNS
    resource::Role anonymous = resource::Role::nobody;   ///< what may be done without a token
    bool dns_only_passing = false;                       ///< leave out instances that warn, too
    bool dns_truncate = false;                           ///< say so (TC) when a UDP answer shows only some of the members
    int dns_udp_answers = 3;                             ///< that many members in a UDP answer without EDNS
    std::uint32_t dns_node_ttl = 0, dns_service_ttl = 0; ///< seconds
    std::size_t max_blocked = 7500;                      ///< blocking queries that wait at once; a quarter of them for one client
    std::string version;                                 ///< of this program
};

/// Loop thread only, but for what `dns` returns, which belongs to the DNS server's threads.
class View {
public:
    View(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog, catalog::Checker& checker,
         identity::Identity& identity, store::Leadership& leadership, Clock& clock, ViewOptions options);
    ~View();

    /// For a net::HttpServer of its own; the View must outlive it.
    net::Handler handler();
    std::function<net::Response(const Context&, const Error&)> on_error();
    /// How long a request may take: a blocking query waits ten minutes and a sixteenth.
    static constexpr Duration request_timeout = std::chrono::minutes(11);
    static constexpr std::size_t max_body = 1 << 20;

    std::shared_ptr<const dns::Responder> dns();

    /// Registers this server's node, and while it leads ends sessions whose node or checks are gone and frees their locks. Until it
    /// is cancelled.
    asio::awaitable<void> run(Context ctx);

    struct State;

private:
    std::shared_ptr<State> state_;
};

} // namespace orrery::api::consul
