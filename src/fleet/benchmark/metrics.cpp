#include "fleet/benchmark/metrics.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace orrery::fleet {

namespace {

struct MetricClass {
    std::string_view component;
    double min_tolerance;
};

constexpr double cpu_tolerance = 0.02;
constexpr double memory_tolerance = 0.01;
constexpr double sequential_disk_tolerance = 0.02;
constexpr double random_disk_tolerance = 0.05;
constexpr double network_tolerance = 0.02;

/// What a key of a category measures; nothing for a fact that describes.
std::optional<MetricClass> metric_class(const Fact& fact) {
    const std::string_view key = fact.key;
    if (fact.category == "cpu") {
        if (key == "bogomips" || key == "loops_per_sec") return MetricClass{"cpu", cpu_tolerance};
        if (key.find("bandwidth") != std::string_view::npos) return MetricClass{"memory", memory_tolerance};
    } else if (fact.category == "disk") {
        if (!key.starts_with("standalone_") && !key.starts_with("simultaneous_")) return {};
        return MetricClass{"disk", key.find("_rand") != std::string_view::npos ? random_disk_tolerance : sequential_disk_tolerance};
    } else if (fact.category == "network") {
        if (key.find("bandwidth") != std::string_view::npos || key.ends_with("_per_sec"))
            return MetricClass{"network", network_tolerance};
    }
    return {};
}

} // namespace

std::vector<Metric> metrics_of(const std::vector<Fact>& facts) {
    std::vector<Metric> out;
    for (const auto& fact : facts) {
        const auto of = metric_class(fact);
        const auto value = of ? parse_number(fact.value) : std::nullopt;
        if (!value) continue;
        const bool disk = of->component == "disk";
        out.push_back({disk ? fmt::format("disk {}", fact.item) : std::string(of->component),
                       disk ? fact.key : fmt::format("{} {}", fact.item, fact.key), *value, of->min_tolerance});
    }
    return out;
}

} // namespace orrery::fleet
