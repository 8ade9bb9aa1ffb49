#pragma once

#include "health/source.h"
#include "net/http_client.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

struct PrometheusOptions {
    std::string url;              ///< "http://127.0.0.1:9090", with what stands before /api/v1
    bool allow_plaintext = false; ///< http:// beyond loopback
    std::string token;            ///< of a proxy before it; may be empty
};

/// What makes a target good.
struct PrometheusRule {
    std::string query;                 ///< of one value for each target, or of one for all
    std::string label = "instance";    ///< which tells whose value it is
    std::optional<double> least, most; ///< good within these
};

/// The health of targets ("192.0.2.1:80") as a query tells of it: one call for all of them. What it has no value for is evidence of
/// nothing. `invalid` for options that cannot be right. The client must outlive it.
Result<std::shared_ptr<health::StatusSource>> prometheus_source(net::HttpClient& client, PrometheusOptions options,
                                                                PrometheusRule rule);

} // namespace orrery::drivers
