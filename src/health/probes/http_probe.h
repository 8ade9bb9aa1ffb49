#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "health/probes/probe.h"
#include "net/outbound.h"
#include "net/tls.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::health {

/// Good if an HTTP/1.1 response has an accepted status code and, with `contains` or `matches`, the expected body.
struct HttpProbeOptions {
    std::string url; ///< http or https
    std::string method = "GET";
    std::map<std::string, std::string> headers;
    std::string body;
    std::vector<std::string> secrets;         ///< values in headers and body that must be masked in observations
    std::vector<std::pair<int, int>> codes;   ///< accepted ranges of status codes; empty: 2xx is good, 429 is a warning
    std::string contains;                     ///< must be in the first 64 KiB of the body
    std::string matches;                      ///< regular expression (RE2) that must match there
    std::string address;                      ///< connect to this address; the URL's host is still requested and verified
    bool verify = true;                       ///< the certificate must verify
    Duration min_certificate_lifetime{};      ///< a certificate that expires sooner is a warning
    bool reuse = true;                        ///< keep the connection for the next probe (GET, HEAD and OPTIONS only)
    int follow_redirects = 0;                 ///< limit (GET and HEAD only): to the same host, never from https to http
    net::OutboundRulesPtr outbound = nullptr; ///< also applied to redirects; null: every address is permitted
};
/// `invalid`: the URL, the method, a header or a pattern is not valid. `tls`: the trusted authorities; null: those of the system,
/// loaded at first use.
Result<ProbePtr> http_probe(HttpProbeOptions options, std::shared_ptr<net::TlsContext> tls);

} // namespace orrery::health
