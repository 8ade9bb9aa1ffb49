#include "health/vantages/quorum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orrery::health {

namespace {

/// Why a report does not count; empty if it does.
std::string not_counted(const Report& report, const QuorumRule& rule, WallTime now) {
    if (!report.trusted) return report.untrusted_reason.empty() ? "quarantined" : report.untrusted_reason;
    if (!report.unreachable_reason.empty()) return report.unreachable_reason;
    if (!report.error.empty()) return "cannot check: " + report.error;
    if (report.state == HealthState::unknown) return "has no evidence";
    if (report.stale) return "has no evidence since its restart";
    if (now - report.at > rule.fresh)
        return fmt::format("silent for {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(now - report.at)));
    return {};
}

/// Why no vantage can check the target: the errors of at most three, by name if there are several.
std::string errors_of(std::span<const Report> reports) {
    constexpr std::size_t max_vantages = 3;
    std::vector<const Report*> unable;
    for (const auto& report : reports)
        if (!report.error.empty() && report.unreachable_reason.empty() && unable.size() < max_vantages) unable.push_back(&report);
    if (unable.size() == 1) return unable.front()->error;
    std::vector<std::string> all;
    for (const auto* report : unable) all.push_back(fmt::format("{}: {}", report->vantage, report->error));
    return fmt::format("{}", fmt::join(all, "; "));
}

} // namespace

QuorumDecision decide(std::span<const Report> reports, const QuorumRule& rule, HealthState before, WallTime now) {
    QuorumDecision out;
    int down = 0, degraded = 0, ignored = 0;
    auto& counted = out.counted;
    for (const auto& report : reports) {
        json::object line{{"vantage", report.vantage}, {"class", name_of(report.last)}, {"ms", report.took.count()}};
        if (!report.message.empty()) line["message"] = report.message;
        if (report.failures > 0) line["n_fail"] = report.failures;
        if (auto why = not_counted(report, rule, now); !why.empty()) {
            line["excluded"] = why;
            if (!report.trusted) {
                line["quarantined"] = true;
                if (report.failures > 0 || report.state == HealthState::down) {
                    line["ignored_state"] = name_of(HealthState::down);
                    ++ignored;
                }
            }
        } else {
            ++counted;
            line["state"] = name_of(report.state);
            if (report.state == HealthState::down) ++down;
            if (report.state == HealthState::degraded) ++degraded;
        }
        out.evidence.push_back(std::move(line));
    }
    const int need = rule.need > 0 ? rule.need : counted / 2 + 1;
    const int up = counted - down;
    out.message = fmt::format("{} of {} down, need {}", down, counted, need);
    if (const auto left_out = static_cast<int>(reports.size()) - counted; left_out > 0)
        out.message += fmt::format("; {} of {} vantages left out{}", left_out, reports.size(),
                                   ignored > 0 ? fmt::format(", {} of them would report down", ignored) : "");
    if (counted == 0) {
        out.state = before;
        out.message = reports.empty() ? "no vantage checks it" : "no vantage has fresh evidence";
        out.error = errors_of(reports);
        if (!out.error.empty()) out.message += ": " + out.error;
    } else if (down >= need) {
        out.state = HealthState::down;
    } else if (up == 0) {
        out.state = before;
        out.withheld = before != HealthState::down;
    } else {
        out.state = degraded == up ? HealthState::degraded : HealthState::up;
        out.withheld = down > 0;
    }
    return out;
}

} // namespace orrery::health
