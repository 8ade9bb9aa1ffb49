#pragma once

#include "fleet/facts/fact.h"

#include <string>
#include <vector>

/// Which facts are measurements, and what each measures.
namespace orrery::fleet {

/// One measured value. Larger is better for every metric.
struct Metric {
    std::string component; ///< cpu, memory, network, or "disk sda"
    std::string name;      ///< "logical_0 bandwidth_1M"
    double value = 0;
    double min_tolerance = 0; ///< as a share: deviations up to twice this are noise
};

/// The measurements among the facts; a value that is not a number is left out.
std::vector<Metric> metrics_of(const std::vector<Fact>& facts);

} // namespace orrery::fleet
