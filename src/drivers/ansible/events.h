#pragma once

#include "jobs/executor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// Ansible's statistics of one host: the number of tasks with each result.
struct AnsibleStats {
    std::int64_t ok = 0, changed = 0, failures = 0, unreachable = 0, skipped = 0, rescued = 0, ignored = 0;
};

/// Reads the events that the callback plugin (callback.py) prints, line by line, and converts them to steps, text for people,
/// statistics and differences. No line makes it fail or grow without bound. The same lines always give the same text.
class AnsibleEvents {
public:
    std::function<void(jobs::Step)> on_step;
    std::function<void(std::string_view text)> on_text; ///< whole lines, for people

    void line(std::string_view line);

    bool has_stats() const { return has_stats_; }
    const std::map<std::string, AnsibleStats>& stats() const { return stats_; }
    const std::vector<jobs::Preview::Difference>& differences() const { return differences_; }
    /// The first failure, as "web-1: install packages: No package matching ..."; empty without failures.
    const std::string& first_failure() const { return first_failure_; }

private:
    void result(std::string_view event, const boost::json::object& from);
    void emit(std::string text);

    bool has_stats_ = false;
    std::map<std::string, AnsibleStats> stats_;
    std::vector<jobs::Preview::Difference> differences_;
    std::size_t difference_bytes_ = 0;
    std::string first_failure_;
};

} // namespace orrery::drivers
