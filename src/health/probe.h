#pragma once

#include "core/task.h"
#include "health/observation.h"
#include "net/tls.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::health {

/// A way to look at one target. Immutable; looks may overlap. Other kinds (ICMP, gRPC, plugins, sources that are no probes) are
/// other implementations; whoever runs them does not know which they are.
class Probe {
public:
    virtual ~Probe() = default;
    /// The same text for the same look at the same target: such are looked at once for all who want to know.
    virtual std::string identity() const = 0;
    /// Looks once. The context's deadline is that of the whole look: name, connection, handshake, request, answer. Whatever happens
    /// is in the observation. What is in it of `at` and `total` the caller fills in.
    virtual asio::awaitable<Observation> look(Context ctx) const = 0;
};
using ProbePtr = std::shared_ptr<const Probe>;

/// A connection is taken.
struct TcpLook {
    std::string host;
    std::uint16_t port = 0;
};
ProbePtr tcp_probe(TcpLook look);

/// An HTTP/1.1 answer is right. Redirects are not followed.
struct HttpLook {
    std::string url; ///< http or https; certificates are verified
    std::string method = "GET";
    std::map<std::string, std::string> headers;
    std::string body;
    std::vector<std::pair<int, int>> codes; ///< that are good, as ranges; empty: 2xx is good, 429 warns
    std::string contains;                   ///< must be in the first 64 KiB of the body
};
/// `invalid` for a URL that is none. `tls` is shared by all; null: the system's authorities, loaded when first needed.
Result<ProbePtr> http_probe(HttpLook look, std::shared_ptr<net::TlsContext> tls);

/// Port: a command on a node, as the health of something there needs it. Implemented over SSH; app joins the two.
class CommandRunner {
public:
    virtual ~CommandRunner() = default;
    struct Ended {
        int exit_code = -1; ///< -1: a signal ended it
        std::string output;
    };
    /// `not_found`: no such node is managed. `unavailable`, `timeout`, `denied`: the node cannot be asked.
    virtual Task<Ended> run(Context ctx, std::string node, std::vector<std::string> argv) = 0;
};
/// Exit 0 is good, 1 warns, everything else is bad. A node that cannot be asked is evidence of nothing: its services may well run.
/// The runner must outlive the probe.
ProbePtr command_probe(CommandRunner& runner, std::string node, std::vector<std::string> argv);

} // namespace orrery::health
