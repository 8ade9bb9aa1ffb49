#pragma once

#include "jobs/executor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// What a playbook did to one host.
struct AnsibleStats {
    std::int64_t ok = 0, changed = 0, failures = 0, unreachable = 0, skipped = 0, rescued = 0, ignored = 0;
};

/// Reads what our callback plugin says (share/ansible/callback/orrery.py), line by line: steps for the job's tree, lines for
/// people, and in the end who failed. Whatever a line holds, it neither fails nor grows without bound. The same lines always give
/// the same text.
class AnsibleEvents {
public:
    std::function<void(jobs::Step)> on_step;
    std::function<void(std::string_view text)> on_text; ///< whole lines, for people

    void line(std::string_view line);

    bool has_stats() const { return has_stats_; }
    const std::map<std::string, AnsibleStats>& stats() const { return stats_; }
    const std::vector<jobs::Preview::Difference>& differences() const { return differences_; }
    /// "web-1: install packages: No package matching ...", the first that failed; empty where none did.
    const std::string& first_failure() const { return first_failure_; }

private:
    void result(std::string_view event, const boost::json::object& from);
    void say(std::string text);

    bool has_stats_ = false;
    std::map<std::string, AnsibleStats> stats_;
    std::vector<jobs::Preview::Difference> differences_;
    std::size_t difference_bytes_ = 0;
    std::string first_failure_;
};

/// How a run ended: the stats decide, the exit code only where there are none. `hosts`: how many it was meant for.
jobs::Outcome ansible_outcome(const AnsibleEvents& events, int exit_code, std::size_t hosts, std::string_view last_error);

} // namespace orrery::drivers
