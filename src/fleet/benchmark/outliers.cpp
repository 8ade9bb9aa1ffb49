#include "fleet/benchmark/outliers.h"

#include "core/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

namespace orrery::fleet {

namespace {

constexpr double mad_scale = 1.4826;
constexpr double min_scale = 0.01;
constexpr double max_z = 3.5;

/// Of a copy, because it reorders.
double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

struct Sample {
    std::size_t machine = 0;
    double value = 0;
};

/// What is compared with each other. The texts are those of the machines, which outlive the search.
struct GroupKey {
    std::string_view hardware_class, disk_class, component, metric;
    bool operator==(const GroupKey&) const = default;
};
struct GroupKeyHash {
    std::size_t operator()(const GroupKey& key) const {
        return Fnv1a()
            .add(key.hardware_class)
            .end_field()
            .add(key.disk_class)
            .end_field()
            .add(key.component)
            .add(key.metric)
            .value();
    }
};

/// All values of one metric within one group.
struct MetricGroup {
    const Metric* metric = nullptr;
    std::vector<Sample> newest;   ///< of the newest runs
    std::vector<double> baseline; ///< of earlier runs
};

/// Counts of one component of one machine.
struct ComponentCounts {
    std::size_t metrics = 0, slow = 0, fast = 0;
};

class OutlierSearch {
public:
    explicit OutlierSearch(const std::vector<MeasuredMachine>& machines) : machines_(machines), results_(machines.size()) {}

    std::map<std::string, MachinePerformance> run() {
        collect();
        for (const auto& [key, group] : groups_) judge(group);
        std::vector<MachinePerformance> concluded;
        for (std::size_t i = 0; i < machines_.size(); ++i) concluded.push_back(conclude(i));
        find_subpopulations(concluded);
        std::map<std::string, MachinePerformance> out;
        for (std::size_t i = 0; i < machines_.size(); ++i) out[machines_[i].name] = std::move(concluded[i]);
        return out;
    }

private:
    struct Result {
        std::map<std::string, ComponentCounts> components;
        std::vector<Evidence> evidence;
        bool measured = false;
    };

    void collect() {
        for (std::size_t i = 0; i < machines_.size(); ++i) {
            const auto& machine = machines_[i];
            if (machine.runs.empty()) continue;
            results_[i].measured = true;
            if (machine.hardware_class.empty()) continue;
            for (std::size_t run = 0; run < machine.runs.size(); ++run)
                for (const auto& metric : machine.runs[run].metrics) {
                    const auto disk = machine.disk_classes.find(metric.component);
                    const std::string_view disk_class = disk == machine.disk_classes.end() ? "" : std::string_view(disk->second);
                    auto& group = groups_[{machine.hardware_class, disk_class, metric.component, metric.name}];
                    group.metric = &metric;
                    if (run == 0)
                        group.newest.push_back({i, metric.value});
                    else
                        group.baseline.push_back(metric.value);
                }
        }
    }

    void judge(const MetricGroup& group) {
        std::vector<double> values;
        for (const auto& sample : group.newest) values.push_back(sample.value);
        if (values.size() < min_group) values.insert(values.end(), group.baseline.begin(), group.baseline.end());
        if (values.size() < min_group) return;
        const double median = median_of(values);
        for (auto& value : values) value = std::abs(value - median);
        const double scale = std::max(mad_scale * median_of(std::move(values)), min_scale * std::abs(median));
        for (const auto& sample : group.newest) {
            auto& result = results_[sample.machine];
            auto& counts = result.components[group.metric->component];
            ++counts.metrics;
            if (scale <= 0 || median == 0) continue;
            const double deviation = (sample.value - median) / std::abs(median);
            if (std::abs(sample.value - median) / scale <= max_z || std::abs(deviation) <= 2 * group.metric->min_tolerance)
                continue;
            ++(deviation < 0 ? counts.slow : counts.fast);
            result.evidence.push_back({group.metric->component, group.metric->name, sample.value, median, 100 * deviation});
        }
    }

    /// Machines of one class that deviate in the same component and direction are a sub-population when they are a quarter of the
    /// class. A single machine never is: in a group of three or four it would be a quarter.
    void find_subpopulations(std::vector<MachinePerformance>& concluded) const {
        struct Side {
            std::size_t compared = 0;
            std::vector<std::size_t> slow, fast;
        };
        std::map<std::pair<std::string_view, std::string_view>, Side> sides;
        for (std::size_t i = 0; i < machines_.size(); ++i) {
            for (const auto& [component, counts] : results_[i].components)
                ++sides[{machines_[i].hardware_class, component}].compared;
            if (concluded[i].component.empty()) continue;
            auto& side = sides[{machines_[i].hardware_class, concluded[i].component}];
            (concluded[i].verdict == PerformanceVerdict::slow ? side.slow : side.fast).push_back(i);
        }
        for (const auto& [key, side] : sides)
            for (const auto* group : {&side.slow, &side.fast})
                if (group->size() >= 2 &&
                    static_cast<double>(group->size()) >= subpopulation_share * static_cast<double>(side.compared))
                    for (const auto machine : *group) concluded[machine].verdict = PerformanceVerdict::subpopulation;
    }

    static double share_of(std::size_t flagged, const ComponentCounts& counts) {
        return counts.metrics == 0 ? 0 : static_cast<double>(flagged) / static_cast<double>(counts.metrics);
    }

    MachinePerformance conclude(std::size_t machine) {
        auto& result = results_[machine];
        MachinePerformance out;
        if (!result.measured) return out;
        out.verdict = result.components.empty() ? PerformanceVerdict::not_enough_data : PerformanceVerdict::normal;
        for (const auto& [component, counts] : result.components) {
            out.metrics += counts.metrics;
            out.flagged += counts.slow + counts.fast;
            const auto consider = [&, &name = component](PerformanceVerdict verdict, double share) {
                if (share < outlier_share) return;
                const bool slower = verdict == PerformanceVerdict::slow && out.verdict != PerformanceVerdict::slow;
                if (!out.component.empty() && !slower && (verdict != out.verdict || share <= out.share)) return;
                out.verdict = verdict;
                out.component = name;
                out.share = share;
            };
            consider(PerformanceVerdict::fast, share_of(counts.fast, counts));
            consider(PerformanceVerdict::slow, share_of(counts.slow, counts));
        }
        out.evidence = std::move(result.evidence);
        std::sort(out.evidence.begin(), out.evidence.end(), [](const Evidence& a, const Evidence& b) {
            if (std::abs(a.percent) != std::abs(b.percent)) return std::abs(a.percent) > std::abs(b.percent);
            return std::tie(a.component, a.metric) < std::tie(b.component, b.metric);
        });
        return out;
    }

    const std::vector<MeasuredMachine>& machines_;
    std::vector<Result> results_;
    std::unordered_map<GroupKey, MetricGroup, GroupKeyHash> groups_;
};

} // namespace

std::string_view name_of(PerformanceVerdict verdict) {
    switch (verdict) {
    case PerformanceVerdict::not_measured: return "not measured";
    case PerformanceVerdict::not_enough_data: return "not enough data";
    case PerformanceVerdict::normal: return "normal";
    case PerformanceVerdict::slow: return "slow";
    case PerformanceVerdict::fast: return "fast";
    case PerformanceVerdict::subpopulation: return "sub-population";
    }
    return "";
}

std::string MachinePerformance::message() const {
    if (component.empty()) {
        if (verdict == PerformanceVerdict::not_enough_data)
            return "fewer than three benchmark runs of identical hardware: there is nothing to compare with";
        if (verdict == PerformanceVerdict::not_measured) return "the machine has no benchmark";
        return fmt::format("{} of {} measurements deviate; no component is an outlier", flagged, metrics);
    }
    const auto worst =
        std::find_if(evidence.begin(), evidence.end(), [this](const Evidence& one) { return one.component == component; });
    const std::string_view is = verdict == PerformanceVerdict::subpopulation
                                    ? "deviates as a quarter of its group or more does"
                                    : (verdict == PerformanceVerdict::slow ? "is slow" : "is fast");
    auto out = fmt::format("{} {}: {:.0f} % of its measurements deviate", component, is, 100 * share);
    if (worst != evidence.end())
        out += fmt::format(", most of all {} with {:.6g} against a median of {:.6g} ({:+.0f} %)", worst->metric, worst->value,
                           worst->median, worst->percent);
    return out;
}

std::map<std::string, MachinePerformance> find_outliers(const std::vector<MeasuredMachine>& machines) {
    return OutlierSearch(machines).run();
}

} // namespace orrery::fleet
