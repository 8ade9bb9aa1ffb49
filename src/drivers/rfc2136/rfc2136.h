#pragma once

#include "core/clock.h"
#include "drivers/rfc2136/tsig.h"
#include "gslb/publish/dns_provider.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

struct Rfc2136Options {
    std::string server;         ///< primary of the zone: "192.0.2.53", "[2001:db8::53]:5353"
    std::optional<TsigKey> key; ///< from `tsig_key`; without a key, updates are unsigned, for servers that allow clients by address
};

/// Publishes by DNS UPDATE (RFC 2136), signed with TSIG (RFC 8945), to the primaries of BIND, Knot, PowerDNS, NSD and Microsoft.
/// One message for each name, with the RRsets that were read as prerequisites, so that the records of another client are never
/// overwritten unseen. The owner mark is a TXT record at "_orrery.<name>". Answers to signed updates must be signed. Returns
/// `invalid` where the options are not valid.
Result<std::unique_ptr<gslb::DnsProvider>> rfc2136_publisher(Clock& clock, Rfc2136Options options);

} // namespace orrery::drivers
