#pragma once

#include "core/result.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// What a Prometheus answers to an instant query.
struct PrometheusAnswer {
    struct Sample {
        std::map<std::string, std::string> labels;
        double value = 0; ///< may be no number at all (NaN)
    };
    std::vector<Sample> samples;
    std::optional<double> scalar; ///< where the query is of one value that has no labels
};
/// `invalid`: it does not understand the query, in its own words. `unavailable`: it cannot tell now, or what came is no such
/// answer.
Result<PrometheusAnswer> read_prometheus_answer(std::string_view body);

/// The sample of a target: the one whose label is its address and port, else its address, else its address with any port. Null:
/// there is none.
const PrometheusAnswer::Sample* prometheus_sample(const PrometheusAnswer& answer, const std::string& label,
                                                  std::string_view target);

} // namespace orrery::drivers
