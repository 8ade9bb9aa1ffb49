#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "health/pattern.h"
#include "net/tls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::health {

struct Plan;
using PlanPtr = std::shared_ptr<const Plan>;

/// What the engine does at a target, step by step: connect, shake hands, send, read, judge. Made by the probes of probe.h;
/// immutable.
struct Plan {
    enum class Kind : std::uint8_t { tcp, tls, http };
    Kind kind = Kind::tcp;
    std::string host; ///< name or address
    std::uint16_t port = 0;
    std::string what; ///< how it is told: "TCP connect 192.0.2.1:80"

    bool secure = false; ///< with a handshake
    bool verify = true;
    std::shared_ptr<net::TlsContext> tls; ///< null: the system's authorities
    std::string server_name;              ///< asked for and verified; empty: the host
    Duration least_left{};                ///< of the certificate's life; less warns

    std::string request;                    ///< bytes to send; may be empty (tcp)
    Pattern expect;                         ///< in the first 4 KiB (tcp) or 64 KiB (http) that come back
    std::vector<std::pair<int, int>> codes; ///< that are good; empty: 2xx is good, 429 warns
    bool to_head = false;
    bool reuse = true; ///< keep the connection for the next look
    /// Where an answer redirects to a Location and is not good as it is: what to do there, or in words why that is not done. Null:
    /// redirects are not followed. Called from any thread.
    std::function<Result<PlanPtr>(std::string_view location)> redirected;

    bool is_connect_only() const { return kind == Kind::tcp && !secure && request.empty() && expect.wants_nothing(); }
};

} // namespace orrery::health
