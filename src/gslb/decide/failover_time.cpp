#include "gslb/decide/failover_time.h"

#include "core/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace orrery::gslb {

namespace {

/// Many resolvers do not honour lower TTLs.
constexpr auto min_sensible_ttl = std::chrono::seconds(5);

void shorten(std::vector<std::string>& names) {
    if (names.size() <= 5) return;
    const auto more = names.size() - 5;
    names.resize(5);
    names.push_back(fmt::format("{} more", more));
}

/// One warning for each reason, with the members it holds for.
void warn_of_unchecked(const std::map<std::string, std::string>& unchecked, FailoverTime& out) {
    std::map<std::string, std::vector<std::string>> by_reason;
    for (const auto& [member, reason] : unchecked) by_reason[reason].push_back(member);
    for (auto& [reason, members] : by_reason) {
        out.bounded = false;
        if (out.warnings.size() >= 8) break;
        shorten(members);
        out.warnings.push_back(
            fmt::format("a failure of {} is not seen, because a check cannot run: {}", fmt::join(members, ", "), reason));
    }
}

} // namespace

FailoverTime worst_failover(const LoadBalancerSpec& spec, const FailoverInput& input) {
    FailoverTime out;
    out.publication = input.publication;
    out.vantages = input.vantage_expiry;
    out.bounded = true;
    std::vector<std::string> unwatched;
    std::optional<Duration> quickest_change;
    for (const auto& [member, watching] : input.monitors) {
        if (watching.empty()) unwatched.push_back(member);
        for (const auto& monitor : watching) {
            out.detection = std::max(out.detection, monitor.max_detection_time());
            const Duration change = monitor.confirm_interval() * monitor.fall;
            quickest_change = quickest_change ? std::min(*quickest_change, change) : change;
        }
    }
    // While all pools are healthy, the TTL lasts until the next possible change, within the limits of the load balancer.
    const Duration most = std::chrono::seconds(spec.ttl_max), least = std::chrono::seconds(spec.ttl_min);
    out.ttl = quickest_change ? std::clamp(*quickest_change, least, most) : most;
    warn_of_unchecked(input.unchecked, out);
    if (!unwatched.empty()) {
        out.bounded = false;
        shorten(unwatched);
        out.warnings.push_back(
            fmt::format("a failure of {} is never seen, because no monitor watches there: set spec.monitors of the pool",
                        fmt::join(unwatched, ", ")));
    }
    if (out.bounded && out.ttl > out.total() - out.ttl && out.ttl > min_sensible_ttl)
        out.warnings.push_back(
            fmt::format("resolvers keep an answer for {}, longer than it takes to see a failure and to publish ({}): "
                        "lower spec.ttl.max",
                        to_text(out.ttl), to_text(out.total() - out.ttl)));
    if (spec.failover_within && (!out.bounded || out.total() > *spec.failover_within)) {
        const auto left = *spec.failover_within - (out.total() - out.ttl);
        const auto remedy =
            left >= std::chrono::seconds(1)
                ? fmt::format("set spec.ttl.max to {} or less", to_text(std::chrono::floor<std::chrono::seconds>(left)))
                : "shorten the monitors' interval or lower their fall: the TTL alone cannot make up for it";
        out.warnings.push_back(out.bounded
                                   ? fmt::format("clients may take {} to leave an address that failed, and spec.failover_within "
                                                 "says {}: {}",
                                                 to_text(out.total()), to_text(*spec.failover_within), remedy)
                                   : fmt::format("spec.failover_within says {}, which cannot be held while failures go unseen",
                                                 to_text(*spec.failover_within)));
    }
    return out;
}

json::object FailoverTime::to_json() const {
    json::object out{{"bounded", bounded}};
    if (bounded) out["worst"] = to_text(total());
    out["detection"] = to_text(detection);
    if (vantages > Duration{}) out["vantages"] = to_text(vantages);
    out["publication"] = to_text(publication);
    out["ttl"] = to_text(ttl);
    if (!warnings.empty()) out["warnings"] = to_array(warnings);
    return out;
}

} // namespace orrery::gslb
