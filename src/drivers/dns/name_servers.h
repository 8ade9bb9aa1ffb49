#pragma once

#include "drivers/dns/exchange.h"
#include "gslb/publish/dns_provider.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

/// Queries name servers directly, over UDP and, for truncated responses, TCP; 16 names at a time. A response must match its query.
std::unique_ptr<gslb::NameServers> name_servers();

/// Combines the responses to the queries for A and AAAA of a name. Returns `unavailable` where the server is not authoritative for
/// the name, or fails.
Result<gslb::Answered> read_answers(const DnsServer& server, const dns::Name& name, const dns::Message& v4, const dns::Message& v6);

/// The name of an rcode: "noerror", "NXDOMAIN", "REFUSED"; "rcode 23" for unknown ones.
std::string rcode_text(dns::Rcode rcode);

} // namespace orrery::drivers
