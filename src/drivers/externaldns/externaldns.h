#pragma once

#include "gslb/publisher.h"
#include "net/http_client.h"

#include <memory>
#include <string>

namespace orrery::drivers {

struct ExternaldnsOptions {
    std::string url; ///< of the adapter: "http://127.0.0.1:8888"; a path is kept
    /// http:// beyond loopback: the protocol has no credentials, so whoever reaches the adapter writes to its DNS service.
    bool allow_plaintext = false;
};

/// Publishes through any adapter that speaks the webhook protocol of ExternalDNS, and so through the dozens of DNS services that
/// have one. One request for all changes. The mark is a TXT record at "_orrery.<name>". What an adapter makes of what we want (its
/// least TTL, its spelling) is asked first. There is no compare-and-swap. `invalid` where the options cannot be right.
Result<std::unique_ptr<gslb::Publisher>> externaldns_publisher(net::HttpClient& client, ExternaldnsOptions options);

} // namespace orrery::drivers
