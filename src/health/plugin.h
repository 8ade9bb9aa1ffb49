#pragma once

#include "health/probe.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::health {

/// What a Nagios-style plugin said: the first line without its performance data, the lines after it, and the data of both.
struct PluginOutput {
    std::string line, more;
    std::vector<Measure> measures; ///< those that are numbers
};
/// Reads what plugins write: TEXT | 'label'=value[unit];[warn];[crit];[min];[max] ... Never fails: what is no data is left out. At
/// most 4 KiB of text and 256 measures are kept.
PluginOutput read_plugin_output(std::string_view output);

/// 0 is good, 1 warns, 2 is bad; 3 (unknown) and everything else tell of the plugin, not of the target, and are evidence of
/// nothing.
Outcome plugin_outcome(int exit_code);

/// Programs that look for us, so many at a time. Shared by all probes that run some; loop thread only.
class Programs {
public:
    explicit Programs(asio::any_io_executor executor, std::size_t at_once = 16);
    ~Programs();

    struct Ended {
        int exit_code = -1;
        std::string output;
    };
    /// Without a shell, in a process group of its own, killed with all its children at the deadline. `throttled`: no place came
    /// free by then.
    Task<Ended> run(Context ctx, std::vector<std::string> argv, std::map<std::string, std::string> environment);
    std::size_t running() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

struct PluginLook {
    std::vector<std::string> argv; ///< the program and its arguments, as they are
    std::map<std::string, std::string> environment;
    bool plain = false; ///< not a plugin: exit code 0 is good, everything else is bad
};
/// `invalid`: there is nothing to run. The programs must outlive the probe.
Result<ProbePtr> plugin_probe(Programs& programs, PluginLook look);

} // namespace orrery::health
