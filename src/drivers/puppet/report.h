#pragma once

#include "jobs/executor.h"

#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// The report of a Puppet run (last_run_report.yaml).
struct PuppetReport {
    struct Resource {
        std::string name; ///< "File[/etc/ntp.conf]"
        bool failed = false, changed = false, skipped = false, out_of_sync = false;
        std::string message;                                ///< of its events; a failure comes first
        std::vector<jobs::Preview::Difference> differences; ///< of each property
        Duration took{};
    };
    std::string status; ///< "failed", "changed", "unchanged"
    bool noop_pending = false;
    std::vector<Resource> resources; ///< failed, changed, skipped or out of sync; others are left out
    std::string first_error;         ///< of the report's log
};

/// Reads a report; Ruby's YAML tags are removed first. Returns `invalid` or `too_large` where the text is not a report. Slow (2 MB
/// a second): pool threads only.
Result<PuppetReport> read_puppet_report(std::string_view text);

/// The outcome of a run with --detailed-exitcodes. Failed resources in the report are a failure whatever the exit code.
jobs::Outcome puppet_outcome(const Result<PuppetReport>& report, int exit_code, std::string_view last_error);

} // namespace orrery::drivers
