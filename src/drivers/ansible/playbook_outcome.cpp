#include "drivers/ansible/playbook_outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace orrery::drivers {

using jobs::ErrorClass;
using jobs::Outcome;

jobs::Outcome playbook_outcome(const AnsibleEvents& events, int exit_code, std::size_t hosts, std::string_view last_error) {
    if (!events.has_stats()) {
        // Exit code 0 without statistics proves nothing. Otherwise the playbook did not start (1, 2, 4, 5: not found, not
        // readable, wrong usage) or was interrupted.
        const auto kind =
            exit_code == 1 || exit_code == 2 || exit_code == 4 || exit_code == 5 ? ErrorClass::refused : ErrorClass::failed;
        return Outcome::failure(kind,
                                fmt::format("ansible-playbook ended with exit code {} and without statistics{}{}", exit_code,
                                            last_error.empty() ? "" : ": ", last_error),
                                exit_code);
    }
    std::vector<std::string> failed, unreachable;
    bool changed = false, did_something = false;
    for (const auto& [host, stats] : events.stats()) {
        if (stats.failures > 0) failed.push_back(host);
        if (stats.unreachable > 0) unreachable.push_back(host);
        changed = changed || stats.changed > 0;
        did_something = did_something || stats.ok > 0 || stats.failures > 0;
    }
    const auto change = changed ? Outcome::Change::changed : Outcome::Change::unchanged;
    Outcome outcome;
    if (!failed.empty() || !unreachable.empty()) {
        std::string message;
        const auto joined = [](const std::vector<std::string>& names) {
            const auto shown = std::min<std::size_t>(names.size(), 10);
            auto text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
            return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
        };
        if (!failed.empty()) message = fmt::format("failed on {}", joined(failed));
        if (!unreachable.empty()) message += fmt::format("{}could not reach {}", message.empty() ? "" : ", ", joined(unreachable));
        if (!events.first_failure().empty()) message += fmt::format(" ({})", events.first_failure());
        // A connection error only where no host began any task.
        outcome = Outcome::failure(failed.empty() && !did_something ? ErrorClass::connect : ErrorClass::failed, std::move(message),
                                   exit_code);
    } else if (events.stats().empty() && hosts > 0) {
        outcome = Outcome::failure(ErrorClass::refused,
                                   "the playbook ran on none of the task's nodes: check the `hosts` of its plays", exit_code);
    } else if (exit_code != 0) {
        outcome = Outcome::failure(ErrorClass::failed,
                                   fmt::format("ansible-playbook ended with exit code {} although no host failed{}{}", exit_code,
                                               last_error.empty() ? "" : ": ", last_error),
                                   exit_code);
    } else {
        outcome = Outcome::success();
    }
    outcome.change = change;
    return outcome;
}

} // namespace orrery::drivers
