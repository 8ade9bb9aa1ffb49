#pragma once

#include "core/text.h"
#include "health/plugin.h"
#include "health/probe.h"
#include "health/source.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Looks as data: what the spec of a monitor says, what is sent to a vantage elsewhere.
namespace orrery::health {

/// What some kinds of look need. Everything must outlive the probes that are made with it.
struct LookTools {
    std::shared_ptr<net::TlsContext> tls; ///< null: the system's authorities
    Programs* programs = nullptr;         ///< null: no programs are run here
    std::vector<std::string> plugin_folders{"/usr/lib/nagios/plugins"};
    InformedLooks* informed = nullptr; ///< null: nobody is asked here who knows
};

/// The kinds: tcp, tls, http, https, grpc, icmp, udp, dns, plugin, exec; and octavia, prometheus and push, which ask somebody who
/// knows in place of looking, and only where that one is known.
const std::vector<std::string_view>& look_kinds();
bool is_informed(const json::object& look);

/// What is wrong with the fields of a look, each named by its path below `at` ("spec"). Fields that mean nothing to its kind are
/// wrong; those in `others` (interval, rise, ...) are somebody else's. Pure.
std::vector<FieldError> check_look(const json::object& spec, std::string_view at, const std::vector<std::string_view>& others);

/// The look at one address. `port`: of the target, where the spec has none. `invalid`: it can be no look; `unsupported`: not here.
Result<ProbePtr> probe_from(const json::object& spec, const std::string& address, std::uint16_t port, const LookTools& tools);

/// Ranges of HTTP status codes, "200-299,301".
Result<std::vector<std::pair<int, int>>> parse_status_codes(std::string_view text);

} // namespace orrery::health
