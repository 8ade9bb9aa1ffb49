#pragma once

#include <boost/json/array.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Facts: what introspection found out about a machine, in the form of the ramdisk (extra-hardware, eDeploy, AHC).
namespace orrery::fleet {

namespace json = boost::json;

/// One datum. Units depend on the key: memory sizes are bytes, disk sizes are whole gigabytes (10^9 bytes).
struct Fact {
    std::string category, item, key, value;
    bool operator==(const Fact&) const = default;
    auto operator<=>(const Fact&) const = default;
};

/// Limits of one introspection. A blade yields about 540 facts.
constexpr std::size_t max_facts = 8'192;
constexpr std::size_t max_fact_text = 1'024;

/// Reads [[category, item, key, value], ...]. Entries of another shape are left out: the kind has refused them.
std::vector<Fact> read_facts(const json::array& data);

/// The value of the first fact with these three parts; empty where no fact has them.
std::string_view fact_value(const std::vector<Fact>& facts, std::string_view category, std::string_view item, std::string_view key);

/// The four figures that flavors compare. A missing one is unknown, never zero.
struct HardwareProperties {
    std::optional<std::int64_t> cpus, memory_mb, local_gb;
    std::string cpu_arch;
    bool operator==(const HardwareProperties&) const = default;
    bool complete() const { return cpus && memory_mb && local_gb && !cpu_arch.empty(); }
};

/// cpus from (cpu, logical, number); memory_mb from (memory, total, size); cpu_arch from (system, kernel, arch); local_gb from the
/// smallest disk of at least 4 GB, in GiB, less one, as the introspection service calculates it.
HardwareProperties properties_of(const std::vector<Fact>& facts);

/// `declared` where `found` knows nothing: what introspection found counts more than what a file claims.
HardwareProperties merge(const HardwareProperties& found, const HardwareProperties& declared);

/// Reads a decimal number that is the whole text; nothing for other texts.
std::optional<double> parse_number(std::string_view text);

} // namespace orrery::fleet
