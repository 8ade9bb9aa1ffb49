#pragma once

#include "core/task.h"
#include "dns/message.h"

#include <boost/asio/ip/udp.hpp>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace orrery::drivers {

using DnsServer = asio::ip::udp::endpoint; ///< TCP uses the same address and port

/// Parses "192.0.2.53", "192.0.2.53:5353", "2001:db8::53" or "[2001:db8::53]:5353"; anything else is `invalid`. Names are not
/// resolved: a client of name servers cannot depend on them to find them.
Result<DnsServer> parse_dns_server(std::string_view text);
std::string text_of(const DnsServer& server);

/// Decides whether a message is the answer, and not another message that arrived on the same socket.
using IsAnswer = std::function<bool(dns::Bytes)>;
/// Sends the message and returns the answer. Over UDP the message is sent again after 0.5 s, 1 s and 2 s, until the deadline of the
/// context, or for 5 s. Errors name the server: `timeout`, `unavailable` (refused, unreachable) or `cancelled`.
enum class DnsTransport { udp, tcp };
Task<std::vector<std::uint8_t>> exchange(Context ctx, DnsServer server, DnsTransport transport, std::vector<std::uint8_t> message,
                                         IsAnswer is_answer);

/// Whether the server may ask other servers; unwanted where its own data matter.
enum class Recursion { unwanted, wanted };
/// Sends one query and returns its response, whatever the rcode. A truncated response is fetched again over TCP.
Task<dns::Message> query(Context ctx, DnsServer server, dns::Name name, std::uint16_t type,
                         Recursion recursion = Recursion::unwanted);

/// A random id from the kernel.
std::uint16_t random_dns_id();

} // namespace orrery::drivers
