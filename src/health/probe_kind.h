#pragma once

#include "core/text.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace orrery::health {

/// The kind of a probe: the field `kind` of a Monitor, except for calculated Monitors, which have no probe of their own.
enum class ProbeKind : std::uint8_t {
    tcp,
    tls,
    http,
    https,
    grpc,
    icmp,
    udp,
    dns,
    plugin, ///< a program with the output and exit status of a monitoring plugin
    exec,   ///< a program whose exit status alone counts
    // Passive: an external source or a client supplies the result.
    octavia,
    prometheus,
    push,
};
/// The name in specs: the enumerator.
std::string_view name_of(ProbeKind kind);
std::optional<ProbeKind> probe_kind_named(std::string_view name);
/// The field `kind` of a spec; nullopt if it is absent or not the name of a kind.
std::optional<ProbeKind> probe_kind_of(const json::object& spec);
/// The names of all kinds, in the order of the enumeration.
const std::vector<std::string_view>& probe_kind_names();

} // namespace orrery::health
