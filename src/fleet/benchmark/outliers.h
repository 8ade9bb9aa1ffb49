#pragma once

#include "fleet/benchmark/metrics.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

/// Names the machines whose measurements deviate from those of identical machines.
///
/// For each group of identical machines and each metric: the median, the median absolute deviation (MAD, scaled by 1.4826), and
/// z = (value - median) / max(MAD, 1 % of the median). A value is flagged when |z| > 3.5 and it deviates from the median by more
/// than twice the tolerance of its metric. Mean and standard deviation are not used: a few bad machines raise both until no machine
/// stands out.
namespace orrery::fleet {

/// One benchmark run of one machine, newest first among the runs of that machine.
struct BenchmarkRun {
    std::vector<Metric> metrics;
};
struct MeasuredMachine {
    std::string name;
    std::string hardware_class;                      ///< empty: unknown, so it is compared with none
    std::map<std::string, std::string> disk_classes; ///< by component, "disk sda"
    std::vector<BenchmarkRun> runs;
};

/// One flagged measurement.
struct Evidence {
    std::string component, metric;
    double value = 0, median = 0;
    double percent = 0; ///< deviation from the median; negative: slower
    bool operator==(const Evidence&) const = default;
};

enum class PerformanceVerdict {
    not_measured,    ///< no benchmark
    not_enough_data, ///< fewer than three runs of identical hardware
    normal,
    slow,          ///< an outlier below the others
    fast,          ///< an outlier above the others: a warning only
    subpopulation, ///< deviates together with a quarter of its group or more, as with another BIOS setting
};
std::string_view name_of(PerformanceVerdict verdict);

struct MachinePerformance {
    PerformanceVerdict verdict = PerformanceVerdict::not_measured;
    std::string component; ///< that the verdict rests on
    double share = 0;      ///< flagged measurements of that component
    std::size_t metrics = 0, flagged = 0;
    std::vector<Evidence> evidence; ///< flagged measurements, the largest deviation first
    /// One sentence: "memory is slow: 96 of 250 measurements, worst logical_0 bandwidth_1M 1200 against a median of 4300 (-72 %)".
    std::string message() const;
};

/// A component of which at least this share of the measurements is flagged makes its machine an outlier.
constexpr double outlier_share = 1.0 / 3.0;
/// A group needs this many values to be compared.
constexpr std::size_t min_group = 3;
/// At least this share of a class that deviates in the same component and direction is a sub-population.
constexpr double subpopulation_share = 0.25;

/// The verdict of every machine, by name. A group of fewer than three machines is compared with the earlier runs of its class too.
std::map<std::string, MachinePerformance> find_outliers(const std::vector<MeasuredMachine>& machines);

} // namespace orrery::fleet
