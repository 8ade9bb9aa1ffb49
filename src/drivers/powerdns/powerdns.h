#pragma once

#include "gslb/publish/dns_provider.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct PowerdnsOptions {
    std::string url; ///< of the API: "https://pdns:8081", with or without /api/v1
    /// Allow http:// beyond loopback, where the key can be read on the way.
    bool allow_plaintext = false;
    std::string key;                  ///< PowerDNS's `api-key`
    std::string server = "localhost"; ///< the server's id in the API
};

/// Publishes through the HTTP API of PowerDNS Authoritative. All changes of a zone are one PATCH, which PowerDNS applies as a whole
/// or refuses; after a refusal the changes are bisected. The owner mark is a comment of the account "orrery" at each RRset. The API
/// has no compare-and-swap: another client's write between our read and our write is replaced. Returns `invalid` where the options
/// are not valid.
Result<std::unique_ptr<gslb::DnsProvider>> powerdns_publisher(net::HttpClient& client, PowerdnsOptions options);

} // namespace orrery::drivers
