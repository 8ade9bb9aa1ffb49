#pragma once

#include "core/clock.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::api {

/// Counters of HTTP requests, and the page /metrics in Prometheus text format. Loop thread only.
class Metrics {
public:
    /// Counts an answered request. `route` is a pattern, so that names of resources never become label values.
    void request(std::string_view method, std::string_view route, int status, Duration took);
    /// Renders the page. `gauges` are further values by full metric name.
    std::string text(const std::vector<std::pair<std::string, double>>& gauges, std::string_view version) const;

private:
    static constexpr std::array<double, 11> bounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5};
    struct Histogram {
        std::array<std::uint64_t, bounds.size() + 1> buckets{};
        double sum = 0;
    };
    std::map<std::pair<std::string, std::string>, std::map<int, std::uint64_t>> requests_; // (method, route) → status → count
    std::map<std::pair<std::string, std::string>, Histogram> times_;
};

/// Returns the HELP text of a metric.
std::string metric_help(std::string_view name);

/// Resident memory, CPU seconds, open files and start time of this process, with the names of the Prometheus client libraries.
std::vector<std::pair<std::string, double>> process_gauges();

} // namespace orrery::api
