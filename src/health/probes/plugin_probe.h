#pragma once

#include "health/probes/probe.h"
#include "health/probes/programs.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// The output of a Nagios-style plugin: the first line without performance data, the further lines, and the data of both.
struct PluginOutput {
    std::string line, more;
    std::vector<Measure> measures; ///< those whose value is a number
};
/// Parses TEXT | 'label'=value[unit];[warn];[crit];[min];[max] ... Never fails: malformed data is skipped. Keeps at most 4 KiB of
/// text and 256 measures.
PluginOutput read_plugin_output(std::string_view output);

/// 0 is good, 1 is a warning, 2 is bad. 3 (UNKNOWN) and every other code mean that the plugin could not check: a local error.
Outcome plugin_outcome(int exit_code);

struct PluginProbeOptions {
    std::vector<std::string> argv; ///< the program and its arguments, passed unchanged
    std::map<std::string, std::string> environment;
    bool plain = false; ///< any program: 0 is good; 126, 127 and a signal are local errors; every other exit code is bad
};
/// `invalid`: argv names no program. The programs must outlive the probe.
Result<ProbePtr> plugin_probe(Programs& programs, PluginProbeOptions options);

} // namespace orrery::health
