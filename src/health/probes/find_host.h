#pragma once

#include "health/observation.h"
#include "net/outbound.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/udp.hpp>

#include <cstdint>
#include <optional>
#include <string>

/// Private to the probes that run as coroutines.
namespace orrery::health {

struct FoundHost {
    Observation error; ///< the result of the probe if there is no endpoint
    std::optional<boost::asio::ip::udp::endpoint> endpoint;
};
/// Resolves a host to its first address that the rules permit (null: every address). `what` begins the text of an error.
boost::asio::awaitable<FoundHost> find_host(std::string host, std::uint16_t port, std::string what, net::OutboundRulesPtr outbound);

} // namespace orrery::health
