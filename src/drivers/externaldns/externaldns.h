#pragma once

#include "gslb/publish/dns_provider.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct ExternaldnsOptions {
    std::string url; ///< of the adapter: "http://127.0.0.1:8888"; may have a path
    /// Allow http:// beyond loopback. The protocol has no credentials: every client that reaches the adapter can write to its DNS
    /// service.
    bool allow_plaintext = false;
};

/// Publishes through any adapter for the webhook protocol of ExternalDNS, which exists for dozens of DNS services. All changes are
/// one request. The owner mark is a TXT record at "_orrery.<name>". The adapter adjusts the wanted records first (minimum TTL,
/// spelling). The protocol has no compare-and-swap. Returns `invalid` where the options are not valid.
Result<std::unique_ptr<gslb::DnsProvider>> externaldns_publisher(net::HttpClient& client, ExternaldnsOptions options);

} // namespace orrery::drivers
