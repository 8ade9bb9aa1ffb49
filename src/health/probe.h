#pragma once

#include "core/task.h"
#include "health/engine.h"
#include "health/observation.h"
#include "health/plan.h"
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
    /// Where it looks, to count looks at one host at a time; empty: nowhere that could be asked too much.
    virtual std::string host() const { return {}; }
    /// What the engine is to do; null for what is looked at by `look`.
    virtual PlanPtr plan() const { return nullptr; }
    /// Looks once. The context's deadline is that of the whole look: name, connection, handshake, request, answer. Whatever happens
    /// is in the observation. What is in it of `at` and `total` the caller fills in.
    virtual asio::awaitable<Observation> look(Context ctx) const;
};
using ProbePtr = std::shared_ptr<const Probe>;

/// Looks once, by whichever way the probe has.
asio::awaitable<Observation> look_once(Engine& engine, ProbePtr probe, Context ctx);

/// A connection is taken; where it says so, bytes are sent and what comes back is searched.
struct TcpLook {
    std::string host;
    std::uint16_t port = 0;
    std::string send;
    Pattern expect; ///< in the first 4 KiB
};
ProbePtr tcp_probe(TcpLook look);

/// A handshake succeeds: the chain and the name are verified, always with a full handshake.
struct TlsLook {
    std::string host;
    std::uint16_t port = 443;
    std::string server_name;                           ///< asked for and verified; empty: the host
    bool verify = true;                                ///< false: the certificate is judged by its dates alone
    Duration least_left = std::chrono::hours(24 * 14); ///< less left of the certificate's life warns
};
ProbePtr tls_probe(TlsLook look, std::shared_ptr<net::TlsContext> tls);

/// An HTTP/1.1 answer is right.
struct HttpLook {
    std::string url; ///< http or https
    std::string method = "GET";
    std::map<std::string, std::string> headers;
    std::string body;
    std::vector<std::pair<int, int>> codes; ///< that are good, as ranges; empty: 2xx is good, 429 warns
    std::string contains;                   ///< must be in the first 64 KiB of the body
    std::string matches;                    ///< a regular expression (RE2) that must be found there
    std::string address;                    ///< connect here and not to the URL's host, which is still asked for and verified
    bool verify = true;                     ///< of certificates
    Duration least_left{};                  ///< less left of the certificate's life warns
    bool reuse = true;                      ///< keep the connection for the next look (GET, HEAD and OPTIONS only)
    int follow_redirects = 0;               ///< how many (GET and HEAD only): at the same host, and never from https to http
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
