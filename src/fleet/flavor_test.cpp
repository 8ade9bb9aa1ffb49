#include "fleet/flavor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::fleet {

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const HardwareProperties large{.cpus = 32, .memory_mb = 65536, .local_gb = 400, .cpu_arch = "x86_64"};

FlavorSpec flavor_of(MatchMode mode, HardwareProperties properties) {
    FlavorSpec out;
    out.mode = mode;
    out.properties = std::move(properties);
    return out;
}

} // namespace

TEST(Flavor, AnyFitsEveryMachine) { EXPECT_THAT(unmet_requirements(flavor_of(MatchMode::any, large), {}), IsEmpty()); }

TEST(Flavor, AtLeastNamesEveryRequirementThatIsNotMet) {
    auto flavor = flavor_of(MatchMode::at_least, large);
    flavor.capabilities = {{"profile", "control"}, {"gpu", "yes"}};
    flavor.traits = {"CUSTOM_NVME"};
    flavor.resource_class = "big";
    const std::map<std::string, std::string> capabilities{{"profile", "compute"}};
    const HardwareProperties small{.cpus = 16, .memory_mb = 131072, .local_gb = {}, .cpu_arch = "aarch64"};
    EXPECT_THAT(unmet_requirements(flavor, {small, &capabilities, nullptr, "small"}),
                ElementsAre("cpus is 16; at least 32 is needed", "local_gb is unknown; 400 is needed",
                            "cpu_arch is aarch64; x86_64 is needed", "capability gpu is missing; gpu:yes is needed",
                            "capability profile is compute; control is needed", "resource_class is small; big is needed",
                            "trait CUSTOM_NVME is missing"));
    EXPECT_THAT(unmet_requirements(flavor_of(MatchMode::at_least, large), {large, nullptr, nullptr, ""}), IsEmpty());
}

TEST(Flavor, ExactComparesSizesAndTheProfileOnly) {
    auto flavor = flavor_of(MatchMode::exact, large);
    flavor.capabilities = {{"profile", "control"}, {"boot_option", "local"}};
    const std::map<std::string, std::string> capabilities{{"profile", "control"}};
    EXPECT_THAT(unmet_requirements(flavor, {large, &capabilities, nullptr, ""}), IsEmpty());
    auto larger = large;
    larger.memory_mb = 131072;
    EXPECT_THAT(unmet_requirements(flavor, {larger, &capabilities, nullptr, ""}),
                ElementsAre("memory_mb is 131072; exactly 65536 is needed"));
}

TEST(Flavor, SurplusIsZeroForATightFitAndHasALimit) {
    const auto flavor = flavor_of(MatchMode::at_least, large);
    EXPECT_EQ(surplus(flavor, large), 0);
    EXPECT_EQ(surplus(flavor, {.cpus = 48, .memory_mb = 65536, .local_gb = 500, .cpu_arch = "x86_64"}), 500 + 250);
    EXPECT_EQ(surplus(flavor, {.cpus = 32000, .memory_mb = 1 << 30, .local_gb = 1 << 30, .cpu_arch = "x86_64"}), max_surplus);
}

TEST(FlavorSuggestions, EveryCombinationWithoutAFlavorIsSuggestedOnce) {
    auto other = large;
    other.cpus = 64;
    const auto found = suggest_flavors({{"a", large}, {"b", other}, {"c", other}, {"d", {}}}, {flavor_of(MatchMode::exact, large)});
    ASSERT_EQ(found.flavors.size(), 1U);
    EXPECT_EQ(found.flavors[0].name, "flavor-64cpu-x86-64-65536mb-400gb");
    EXPECT_THAT(found.flavors[0].machines, ElementsAre("b", "c"));
    EXPECT_THAT(found.not_introspected, ElementsAre("d"));
}

} // namespace orrery::fleet
