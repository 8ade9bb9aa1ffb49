#pragma once

#include "health/sources/status_source.h"
#include "net/http_client.h"

#include <memory>
#include <optional>
#include <string>

namespace orrery::drivers {

struct PrometheusOptions {
    std::string url;              ///< "http://127.0.0.1:9090", with any path before /api/v1
    bool allow_plaintext = false; ///< allow http:// beyond loopback
    std::string token;            ///< bearer token, for a proxy in front of Prometheus; may be empty
};

/// The condition under which a target is healthy.
struct PrometheusRule {
    std::string query;              ///< PromQL with one value for each target, or one for all targets
    std::string label = "instance"; ///< the label that identifies the target
    std::optional<double> min, max; ///< the target is healthy within these limits
};

/// The health of targets ("192.0.2.1:80") as the result of an instant query: one request for all targets. A target without a value
/// is no evidence. Returns `invalid` where the options are not valid. The client must outlive the source.
Result<std::shared_ptr<health::StatusSource>> prometheus_source(net::HttpClient& client, PrometheusOptions options,
                                                                PrometheusRule rule);

} // namespace orrery::drivers
