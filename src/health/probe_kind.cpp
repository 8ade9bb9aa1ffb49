#include "health/probe_kind.h"

#include "core/json_fields.h"

#include <algorithm>

namespace orrery::health {

const std::vector<std::string_view>& probe_kind_names() {
    static const std::vector<std::string_view> names{"tcp", "tls",    "http", "https",   "grpc",       "icmp", "udp",
                                                     "dns", "plugin", "exec", "octavia", "prometheus", "push"};
    return names;
}

std::string_view name_of(ProbeKind kind) { return probe_kind_names()[static_cast<std::size_t>(kind)]; }

std::optional<ProbeKind> probe_kind_named(std::string_view name) {
    const auto& names = probe_kind_names();
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return std::nullopt;
    return static_cast<ProbeKind>(at - names.begin());
}

std::optional<ProbeKind> probe_kind_of(const json::object& spec) { return probe_kind_named(text_at(spec, "kind")); }

} // namespace orrery::health
