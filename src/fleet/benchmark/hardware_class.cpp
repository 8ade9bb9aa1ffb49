#include "fleet/benchmark/hardware_class.h"

#include "core/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace orrery::fleet {

namespace {

/// Keys that differ between identical machines: identity, addresses, measurements, counters, temperatures.
bool is_individual(const Fact& fact) {
    static constexpr std::array<std::string_view, 9> exact = {
        "serial", "uuid", "bogomips", "loops_per_sec", "cache_size", "cmdline", "sas_address", "wwn", "mac"};
    static constexpr std::array<std::string_view, 8> beginnings = {"ipv4",          "ipv6",  "temperature", "standalone_",
                                                                   "simultaneous_", "SMART", "smart",       "wwn"};
    const std::string_view key = fact.key;
    if (std::find(exact.begin(), exact.end(), key) != exact.end()) return true;
    if (std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view one) { return key.starts_with(one); })) return true;
    if (key.find("bandwidth") != std::string_view::npos || key.ends_with("_per_sec")) return true;
    return fact.category == "ipmi" && key == "value"; // sensor readings
}

} // namespace

const std::vector<std::string_view>& hardware_categories() {
    static const std::vector<std::string_view> all = {"hpa",      "megaraid", "ahci",    "ipmi", "system",
                                                      "firmware", "memory",   "network", "cpu"};
    return all;
}

std::string hardware_class(const std::vector<Fact>& facts, const std::set<std::string>& ignored_categories) {
    const auto& categories = hardware_categories();
    std::vector<const Fact*> described;
    for (const auto& fact : facts) {
        if (std::find(categories.begin(), categories.end(), fact.category) == categories.end()) continue;
        if (ignored_categories.contains(fact.category) || is_individual(fact)) continue;
        described.push_back(&fact);
    }
    if (described.empty()) return {};
    std::sort(described.begin(), described.end(), [](const Fact* a, const Fact* b) { return *a < *b; });
    std::string text;
    for (const auto* fact : described)
        for (const auto* part : {&fact->category, &fact->item, &fact->key, &fact->value}) {
            text += *part;
            text += '\0';
        }
    return sha256_hex(text, 16);
}

std::string disk_class(const std::vector<Fact>& facts, std::string_view disk) {
    return fmt::format("{}|{}|{}", fact_value(facts, "disk", disk, "model"), fact_value(facts, "disk", disk, "size"),
                       fact_value(facts, "disk", disk, "rotational"));
}

} // namespace orrery::fleet
