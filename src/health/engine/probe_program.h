#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "health/engine/pattern.h"
#include "net/outbound.h"
#include "net/tls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::health {

struct ProbeProgram;
using ProbeProgramPtr = std::shared_ptr<const ProbeProgram>;

/// The steps that the engine executes for a probe: connect, handshake, send, read, judge. Immutable.
struct ProbeProgram {
    enum class Kind : std::uint8_t { tcp, tls, http };
    Kind kind = Kind::tcp;
    std::string host; ///< name or address
    std::uint16_t port = 0;
    std::string what;               ///< begins the text of observations: "TCP connect 192.0.2.1:80"
    net::OutboundRulesPtr outbound; ///< null: every address is permitted

    bool secure = false; ///< with a TLS handshake
    bool verify = true;
    std::shared_ptr<net::TlsContext> tls; ///< null: the authorities of the system
    std::string server_name;              ///< sent (SNI) and verified; empty: the host
    Duration min_certificate_lifetime{};  ///< a certificate that expires sooner is a warning

    std::string request;                    ///< bytes to send; may be empty for tcp
    Pattern expect;                         ///< searched in the first 4 KiB (tcp) or 64 KiB (http) of the response
    std::vector<std::pair<int, int>> codes; ///< accepted status codes; empty: 2xx is good, 429 is a warning
    bool to_head = false;                   ///< the request is HEAD: the response has no body
    bool reuse = true;                      ///< keep the connection for the next probe
    /// Returns the program for the Location of a redirect whose code is not accepted, or an error with the reason why the redirect
    /// is not followed. Null: redirects are not followed. Called from any thread.
    std::function<Result<ProbeProgramPtr>(std::string_view location)> redirect;

    bool is_connect_only() const { return kind == Kind::tcp && !secure && request.empty() && expect.wants_nothing(); }
};

} // namespace orrery::health
