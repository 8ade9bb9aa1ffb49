#include "fleet/benchmark/hardware_class.h"
#include "fleet/benchmark/outliers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace orrery::fleet {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Hardware facts of one blade; identifying ones differ from blade to blade.
std::vector<Fact> blade_facts(const std::string& serial, int number) {
    return {{"system", "product", "name", "ProLiant BL460c Gen8"},
            {"system", "product", "serial", serial},
            {"system", "kernel", "cmdline", "ip=10.0.0." + std::to_string(number)},
            {"cpu", "physical_0", "product", "Intel(R) Xeon(R) CPU E5-2650 0 @ 2.00GHz"},
            {"cpu", "logical", "number", "32"},
            {"memory", "total", "size", "68719476736"},
            {"network", "eth0", "serial", fmt::format("d8:9d:67:32:17:{:02x}", number)},
            {"network", "eth0", "ipv4", fmt::format("10.66.6.{}", number)},
            {"ipmi", "Temp 1", "value", std::to_string(20 + number % 5)},
            {"disk", "sda", "model", "EH0300FBQDD"},
            {"disk", "sda", "size", "299"}};
}

/// The statistics of the public set of 19 identical blades: 303 metrics, of which four blades miss 36 % (memory bandwidth of one
/// thread) and 72 % (of forked processes); the others deviate on nine metrics at most.
std::vector<MeasuredMachine> blade_set() {
    std::mt19937 dice(19);
    std::normal_distribution<double> noise(1.0, 0.004);
    const std::vector<std::string> bad = {"CZ3404YWNN", "CZ3404YWNR", "CZ3404YWNT", "CZ3404YWNW"};
    std::vector<MeasuredMachine> out;
    for (int i = 0; i < 19; ++i) {
        const auto serial = i < 4 ? bad[static_cast<std::size_t>(i)] : fmt::format("CZ3404YW{:02}", i);
        auto facts = blade_facts(serial, i + 1);
        const auto add = [&](std::string item, std::string key, double value) {
            facts.push_back({key.find("_1M_") != std::string::npos || key.find("_4k_") != std::string::npos ? "disk" : "cpu",
                             std::move(item), std::move(key), fmt::format("{:.2f}", value * noise(dice))});
        };
        const double memory = i < 4 ? 0.64 : 1.0, forked = i < 4 ? 0.28 : 1.0;
        for (int cpu = 0; cpu < 16; ++cpu) {
            const auto item = fmt::format("logical_{}", cpu);
            add(item, "bogomips", 4000);
            add(item, "loops_per_sec", 1200);
            for (const auto* size : {"1K", "4K", "1M", "16M", "128M", "1G", "2G"}) {
                const bool large = std::string_view(size) != "1K"; // the smallest block stays in the cache
                add(item, fmt::format("bandwidth_{}", size), (large ? memory : 1.0) * 9000);
            }
            for (const auto* size : {"1K", "4K", "1M", "16M", "128M", "1G", "2G"})
                add(item, fmt::format("threaded_bandwidth_{}", size), 30000);
        }
        for (const auto* size : {"1K", "4K", "1M", "16M", "128M", "1G", "2G"}) {
            add("logical", fmt::format("threaded_bandwidth_{}", size), 60000);
            add("logical", fmt::format("forked_bandwidth_{}", size), forked * 60000);
            add("logical_s1", fmt::format("forked_bandwidth_{}", size), forked * 58000);
            add("logical_s2", fmt::format("forked_bandwidth_{}", size), 58000);
        }
        add("logical", "loops_per_sec", 19000);
        for (const auto* disk : {"sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg", "sdh", "sdi"}) {
            add(disk, "standalone_read_1M_KBps", 140000);
            add(disk, "standalone_randread_4k_IOps", 350);
        }
        for (int scattered = 0; i >= 4 && scattered < 9; ++scattered) { // unrelated deviations, on other metrics for each blade
            auto& fact = facts[static_cast<std::size_t>(12 + (i * 17 + scattered * 29) % 250)];
            fact.value = fmt::format("{:.2f}", *parse_number(fact.value) * 0.86);
        }
        MeasuredMachine machine{
            .name = serial, .hardware_class = hardware_class(facts, {}), .disk_classes = {{"disk sda", disk_class(facts, "sda")}}};
        machine.runs.push_back({metrics_of(facts)});
        out.push_back(std::move(machine));
    }
    return out;
}

MeasuredMachine with_loops(std::string name, double loops, std::string hardware = "same") {
    return {.name = std::move(name),
            .hardware_class = std::move(hardware),
            .runs = {{{{"cpu", "logical loops_per_sec", loops, 0.02}}}}};
}

} // namespace

TEST(Outliers, NamesTheFourBadBladesAndNoOther) {
    const auto machines = blade_set();
    for (const auto& machine : machines) {
        EXPECT_EQ(machine.hardware_class, machines.front().hardware_class);
        EXPECT_EQ(machine.runs.front().metrics.size(), 303U);
    }
    std::vector<std::string> slow;
    for (const auto& [name, performance] : find_outliers(machines)) {
        if (performance.verdict != PerformanceVerdict::slow) {
            EXPECT_EQ(performance.verdict, PerformanceVerdict::normal) << name << ": " << performance.message();
            EXPECT_LE(performance.flagged, 9U) << name;
            continue;
        }
        slow.push_back(name);
        EXPECT_EQ(performance.component, "memory");
        EXPECT_NEAR(static_cast<double>(performance.flagged), 110, 5);
        EXPECT_NEAR(performance.evidence.front().percent, -72, 2);
        EXPECT_THAT(performance.message(), HasSubstr("memory is slow: "));
        EXPECT_THAT(performance.message(), HasSubstr("forked_bandwidth_"));
    }
    EXPECT_THAT(slow, ElementsAre("CZ3404YWNN", "CZ3404YWNR", "CZ3404YWNT", "CZ3404YWNW"));
}

TEST(Outliers, MeanAndStandardDeviationNameNoBlade) {
    // Why the rule is not "outside two standard deviations": the four bad blades raise the deviation themselves.
    const auto machines = blade_set();
    std::vector<double> values;
    for (const auto& machine : machines)
        for (const auto& metric : machine.runs.front().metrics)
            if (metric.name == "logical_3 bandwidth_1G") values.push_back(metric.value);
    double mean = 0, squares = 0;
    for (const auto value : values) mean += value / static_cast<double>(values.size());
    for (const auto value : values) squares += (value - mean) * (value - mean);
    const double deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
    EXPECT_GT(100 * deviation / mean, 7) << "the reference rule calls the group unstable and names no machine";
}

TEST(Outliers, AGroupOfThreeCanNameOne) {
    const auto found = find_outliers({with_loops("a", 1000), with_loops("b", 1004), with_loops("c", 700)});
    EXPECT_EQ(found.at("c").verdict, PerformanceVerdict::slow);
    EXPECT_EQ(found.at("a").verdict, PerformanceVerdict::normal);
    EXPECT_EQ(found.at("c").message(), "cpu is slow: 100 % of its measurements deviate, most of all logical loops_per_sec with 700 "
                                       "against a median of 1000 (-30 %)");
}

TEST(Outliers, NoiseWithinTheToleranceIsNoOutlier) {
    const auto found = find_outliers({with_loops("a", 1000), with_loops("b", 1000), with_loops("c", 1000), with_loops("d", 965)});
    EXPECT_EQ(found.at("d").verdict, PerformanceVerdict::normal) << "3.5 % are within twice the tolerance of 2 %";
}

TEST(Outliers, AQuarterThatDeviatesTogetherIsASubpopulation) {
    std::vector<MeasuredMachine> machines;
    for (int i = 0; i < 6; ++i) machines.push_back(with_loops(fmt::format("a{}", i), 1000 + i));
    for (int i = 0; i < 3; ++i) machines.push_back(with_loops(fmt::format("b{}", i), 800 + i));
    const auto found = find_outliers(machines);
    EXPECT_EQ(found.at("b1").verdict, PerformanceVerdict::subpopulation);
    EXPECT_EQ(found.at("a1").verdict, PerformanceVerdict::normal);
}

TEST(Outliers, AFastMachineIsOnlyFast) {
    const auto found = find_outliers({with_loops("a", 1000), with_loops("b", 1000), with_loops("c", 1000), with_loops("d", 1400)});
    EXPECT_EQ(found.at("d").verdict, PerformanceVerdict::fast);
}

TEST(Outliers, OtherHardwareIsNotCompared) {
    const auto found =
        find_outliers({with_loops("a", 1000), with_loops("b", 1000), with_loops("c", 1000), with_loops("d", 10, "other")});
    EXPECT_EQ(found.at("d").verdict, PerformanceVerdict::not_enough_data);
}

TEST(Outliers, EarlierRunsAreTheBaselineOfASmallGroup) {
    auto machine = with_loops("a", 700);
    for (const double earlier : {1000.0, 1001.0, 1002.0, 1000.5})
        machine.runs.push_back({{{"cpu", "logical loops_per_sec", earlier, 0.02}}});
    EXPECT_EQ(find_outliers({machine}).at("a").verdict, PerformanceVerdict::slow);
}

TEST(HardwareClass, IgnoresWhatIdentifiesAMachineAndNamedCategories) {
    auto a = blade_facts("X1", 1), b = blade_facts("X2", 2);
    EXPECT_EQ(hardware_class(a, {}), hardware_class(b, {}));
    b.push_back({"firmware", "bios", "version", "I31"});
    EXPECT_NE(hardware_class(a, {}), hardware_class(b, {}));
    EXPECT_EQ(hardware_class(a, {"firmware"}), hardware_class(b, {"firmware"}));
}

} // namespace orrery::fleet
