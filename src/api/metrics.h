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

/// What /metrics shows of the server itself, in Prometheus' text format. Loop thread only.
class Metrics {
public:
    /// A request answered. `route` is its pattern, so that names of resources never become label values.
    void request(std::string_view method, std::string_view route, int status, Duration took);
    /// The whole page. `gauges` are further values by full name.
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

/// Resident bytes, CPU seconds, open files and start time of this process, by Prometheus' usual names.
std::vector<std::pair<std::string, double>> process_gauges();

} // namespace orrery::api
