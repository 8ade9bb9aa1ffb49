#pragma once

#include "drivers/dns/exchange.h"
#include "gslb/publisher.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

/// Asks the name servers themselves, over UDP and where needed TCP; a few names at a time. Answers are held to their questions.
std::unique_ptr<gslb::NameServers> name_servers();

/// What answers to questions for A and AAAA say of a name. `unavailable`: the server is no authority for it, or in trouble.
Result<gslb::Answered> read_answers(const DnsServer& server, const dns::Name& name, const dns::Message& v4, const dns::Message& v6);

/// As names stand in DNS: "noerror", "NXDOMAIN", "REFUSED"; "rcode 23" for others.
std::string rcode_text(dns::Rcode rcode);

} // namespace orrery::drivers
