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

/// The catalog for clients of Consul: Consul's HTTP API and DNS interface, each with its own listener. docs/consul-api.md lists the
/// supported routes and the differences from Consul.
namespace orrery::api::consul {

struct ConsulFacadeOptions {
    std::string node;                  ///< name of this server as a node of the catalog
    std::string address = "127.0.0.1"; ///< address of that node
    std::string datacenter = "dc1";
    std::string domain = "consul";                       ///< of DNS names
    resource::Role anonymous = resource::Role::nobody;   ///< role of requests without a token
    bool dns_only_passing = false;                       ///< omit instances in state warning as well
    bool dns_truncate = false;                           ///< set TC if a UDP response contains only some of the instances
    int dns_udp_answers = 3;                             ///< maximum number of instances in a UDP response without EDNS
    std::uint32_t dns_node_ttl = 0, dns_service_ttl = 0; ///< seconds
    std::size_t max_blocked = 7500;                      ///< maximum of waiting blocking queries; one client may use a quarter
    std::string version;                                 ///< of this program
};

/// Loop thread only, except for the responder of `dns`, which the threads of the DNS server call.
class ConsulFacade {
public:
    ConsulFacade(asio::any_io_executor executor, resource::Resources& resources, catalog::Catalog& catalog,
                 catalog::Checker& checker, identity::Identity& identity, store::Leadership& leadership, Clock& clock,
                 ConsulFacadeOptions options);
    ~ConsulFacade();

    /// The handler for an own net::HttpServer. The facade must outlive the server.
    net::Handler handler();
    std::function<net::Response(const Context&, const Error&)> on_error();
    /// Request timeout for the server: a blocking query waits at most ten minutes and a sixteenth.
    static constexpr Duration request_timeout = std::chrono::minutes(11);
    static constexpr std::size_t max_body = 1 << 20;

    std::shared_ptr<const dns::Responder> dns();

    /// Registers the node of this server. On the leader, also ends sessions whose node or checks are lost and releases their locks.
    /// Runs until cancelled.
    asio::awaitable<void> run(Context ctx);

    struct State;

private:
    std::shared_ptr<State> state_;
};

} // namespace orrery::api::consul
