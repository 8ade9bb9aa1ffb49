#pragma once

#include "gslb/publisher.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct PowerdnsOptions {
    std::string url; ///< of the API: "https://pdns:8081", with or without /api/v1
    /// http:// beyond loopback: our key can then be read on the way.
    bool allow_plaintext = false;
    std::string key;                  ///< its `api-key`
    std::string server = "localhost"; ///< as the API calls it
};

/// Publishes through the HTTP API of PowerDNS Authoritative. All changes of a zone go in one PATCH, which it applies whole or not
/// at all; where it takes none of them, it is found out which it does not take. The mark is a comment of the account "orrery" at
/// each set. It has no compare-and-swap: between reading and writing somebody else has a few milliseconds. `invalid` where the
/// options cannot be right.
Result<std::unique_ptr<gslb::Publisher>> powerdns_publisher(net::HttpClient& client, PowerdnsOptions options);

} // namespace orrery::drivers
