#pragma once

#include "core/result.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// The result of an instant query.
struct PrometheusAnswer {
    struct Sample {
        std::map<std::string, std::string> labels;
        double value = 0; ///< may be NaN
    };
    std::vector<Sample> samples;
    std::optional<double> scalar; ///< the result of a query of type scalar
};
/// `invalid`: Prometheus refuses the query; the error has its message. `unavailable`: Prometheus cannot answer now, or the body is
/// not the result of an instant query.
Result<PrometheusAnswer> read_prometheus_answer(std::string_view body);

/// The sample of a target: the one whose label is its address and port, else its address, else its address with any port. Null
/// where the answer has no such sample.
const PrometheusAnswer::Sample* prometheus_sample(const PrometheusAnswer& answer, const std::string& label,
                                                  std::string_view target);

} // namespace orrery::drivers
