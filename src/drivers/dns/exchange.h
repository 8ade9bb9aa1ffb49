#pragma once

#include "core/task.h"
#include "dns/message.h"

#include <boost/asio/ip/udp.hpp>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace orrery::drivers {

using DnsServer = asio::ip::udp::endpoint; ///< the same address and port over TCP

/// "192.0.2.53", "192.0.2.53:5353", "2001:db8::53", "[2001:db8::53]:5353". `invalid` for anything else; names are not resolved,
/// because who asks name servers cannot rely on them.
Result<DnsServer> parse_dns_server(std::string_view text);
std::string text_of(const DnsServer& server);

/// Is this the answer, and not something else that came to the same socket?
using IsAnswer = std::function<bool(dns::Bytes)>;
/// Sends the message and returns the answer. UDP: sent again after 0.5 s, 1 s, 2 s, until the deadline (5 s where there is none).
/// `timeout`, `unavailable` (refused, unreachable) or `cancelled`, with the server named.
enum class DnsTransport { udp, tcp };
Task<std::vector<std::uint8_t>> exchange(Context ctx, DnsServer server, DnsTransport transport, std::vector<std::uint8_t> message,
                                         IsAnswer is_answer);

/// Asks one question, without recursion, and returns an answer to just that question; over TCP where it was cut. Any rcode.
Task<dns::Message> query(Context ctx, DnsServer server, dns::Name name, std::uint16_t type);

/// From the kernel.
std::uint16_t random_dns_id();

} // namespace orrery::drivers
