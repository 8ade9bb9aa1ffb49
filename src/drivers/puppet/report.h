#pragma once

#include "jobs/executor.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// What a Puppet run did, from its last_run_report.yaml.
struct PuppetReport {
    struct Resource {
        std::string name; ///< "File[/etc/ntp.conf]"
        bool failed = false, changed = false, skipped = false, out_of_sync = false;
        std::string words;                                  ///< what its events say
        std::vector<jobs::Preview::Difference> differences; ///< property by property
        Duration took{};
    };
    std::string status; ///< "failed", "changed", "unchanged"
    bool noop_pending = false;
    std::vector<Resource> resources; ///< those of which there is something to say
    std::string first_error;         ///< of its log
};

/// Ruby's tags are taken off first. `invalid` or `too_large` for anything that is no such report. Takes time: 2 MB a second.
Result<PuppetReport> read_puppet_report(std::string_view text);

/// How a run with --detailed-exitcodes ended. A report that says more than the exit code is believed.
jobs::Outcome puppet_outcome(const Result<PuppetReport>& report, int exit_code, std::string_view last_error);

} // namespace orrery::drivers
