#include "health/quorum.h"

#include <fmt/format.h>

namespace orrery::health {

namespace {

/// Why a report does not count; empty where it does.
std::string not_counted(const Report& report, const QuorumRule& rule, WallTime now) {
    if (!report.fit) return report.unfit_because.empty() ? "set aside" : report.unfit_because;
    if (report.standing == Standing::unknown) return "has no evidence";
    if (report.stale) return "has not looked since its restart";
    if (now - report.at > rule.fresh)
        return fmt::format("silent for {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(now - report.at)));
    return {};
}

} // namespace

QuorumDecision decide(std::span<const Report> reports, const QuorumRule& rule, Standing before, WallTime now) {
    QuorumDecision out;
    int down = 0, degraded = 0, ignored = 0;
    auto& counted = out.counted;
    for (const auto& report : reports) {
        json::object line{{"vantage", report.vantage}, {"class", name_of(report.last)}, {"ms", report.took.count()}};
        if (report.failures > 0) line["n_fail"] = report.failures;
        if (auto why = not_counted(report, rule, now); !why.empty()) {
            line["left_out"] = why;
            if (!report.fit) {
                line["set_aside"] = true;
                if (report.failures > 0 || report.standing == Standing::down) {
                    line["would_say"] = name_of(Standing::down);
                    ++ignored;
                }
            }
        } else {
            ++counted;
            line["says"] = name_of(report.standing);
            if (report.standing == Standing::down) ++down;
            if (report.standing == Standing::degraded) ++degraded;
        }
        out.evidence.push_back(std::move(line));
    }
    const int need = rule.need > 0 ? rule.need : counted / 2 + 1;
    const int up = counted - down;
    out.words = fmt::format("{} of {} down, need {}", down, counted, need);
    if (const auto left_out = static_cast<int>(reports.size()) - counted; left_out > 0)
        out.words += fmt::format("; {} of {} vantages left out{}", left_out, reports.size(),
                                 ignored > 0 ? fmt::format(", {} of them would say down", ignored) : "");
    if (counted == 0) {
        out.standing = before;
        out.words = reports.empty() ? "no vantage looks at it" : "no vantage has fresh evidence";
    } else if (down >= need) {
        out.standing = Standing::down;
    } else if (up == 0) {
        out.standing = before;
        out.withheld = before != Standing::down;
    } else {
        out.standing = degraded == up ? Standing::degraded : Standing::up;
        out.withheld = down > 0;
    }
    return out;
}

} // namespace orrery::health
