#pragma once

#include "core/clock.h"
#include "drivers/rfc2136/tsig.h"
#include "gslb/publisher.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

struct Rfc2136Options {
    std::string server;         ///< the zone's primary: "192.0.2.53", "[2001:db8::53]:5353"
    std::optional<TsigKey> key; ///< from `tsig_key`; nothing: unsigned, where the server goes by address
};

/// Publishes by DNS UPDATE (RFC 2136), signed with TSIG (RFC 8945): BIND, Knot, PowerDNS, NSD's and Microsoft's primaries. One
/// message a name, with what was read as its prerequisite, so that nothing of somebody else's is ever overwritten unseen. The mark
/// is a TXT record at "_orrery.<name>". Answers to signed updates count only where they are signed. `invalid` where the options
/// cannot be right.
Result<std::unique_ptr<gslb::Publisher>> rfc2136_publisher(Clock& clock, Rfc2136Options options);

} // namespace orrery::drivers
