#include "fleet/facts/fact.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace orrery::fleet {

namespace {

constexpr double bytes_per_gb = 1e9;
constexpr double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;
constexpr std::int64_t min_root_disk_gb = 4;

std::optional<std::int64_t> whole_number(std::string_view text) {
    const auto number = parse_number(text);
    if (!number || *number < 0 || *number > 9e15) return {};
    return static_cast<std::int64_t>(*number);
}

} // namespace

std::optional<double> parse_number(std::string_view text) {
    double out = 0;
    const auto* end = text.data() + text.size();
    const auto [stopped, failed] = std::from_chars(text.data(), end, out);
    if (text.empty() || failed != std::errc{} || stopped != end || !std::isfinite(out)) return {};
    return out;
}

std::vector<Fact> read_facts(const json::array& data) {
    std::vector<Fact> out;
    out.reserve(data.size());
    for (const auto& row : data) {
        if (!row.is_array() || row.get_array().size() != 4) continue;
        const auto& parts = row.get_array();
        if (!std::all_of(parts.begin(), parts.end(), [](const json::value& part) { return part.is_string(); })) continue;
        const auto text = [&parts](std::size_t at) { return std::string(std::string_view(parts[at].get_string())); };
        out.push_back({text(0), text(1), text(2), text(3)});
    }
    return out;
}

std::string_view fact_value(const std::vector<Fact>& facts, std::string_view category, std::string_view item,
                            std::string_view key) {
    for (const auto& fact : facts)
        if (fact.category == category && fact.item == item && fact.key == key) return fact.value;
    return {};
}

HardwareProperties properties_of(const std::vector<Fact>& facts) {
    HardwareProperties out;
    out.cpus = whole_number(fact_value(facts, "cpu", "logical", "number"));
    if (const auto bytes = whole_number(fact_value(facts, "memory", "total", "size"))) out.memory_mb = *bytes >> 20;
    out.cpu_arch = fact_value(facts, "system", "kernel", "arch");
    std::optional<std::int64_t> smallest;
    for (const auto& fact : facts) {
        if (fact.category != "disk" || fact.key != "size" || fact.item == "logical") continue;
        const auto size = whole_number(fact.value);
        if (size && *size >= min_root_disk_gb && (!smallest || *size < *smallest)) smallest = size;
    }
    if (smallest) out.local_gb = static_cast<std::int64_t>(static_cast<double>(*smallest) * bytes_per_gb / bytes_per_gib) - 1;
    return out;
}

HardwareProperties merge(const HardwareProperties& found, const HardwareProperties& declared) {
    HardwareProperties out = found;
    if (!out.cpus) out.cpus = declared.cpus;
    if (!out.memory_mb) out.memory_mb = declared.memory_mb;
    if (!out.local_gb) out.local_gb = declared.local_gb;
    if (out.cpu_arch.empty()) out.cpu_arch = declared.cpu_arch;
    return out;
}

} // namespace orrery::fleet
