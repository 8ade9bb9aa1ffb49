#include "health/sources/balancer_state.h"

#include "health/sources/status_source.h"

#include <fmt/format.h>

namespace orrery::health {

BalancerState::Operating operating_from(std::string_view status) {
    using enum BalancerState::Operating;
    if (status == "ONLINE") return online;
    if (status == "DRAINING") return draining;
    if (status == "OFFLINE") return offline;
    if (status == "DEGRADED") return degraded;
    if (status == "ERROR") return error;
    return no_monitor;
}

StatusSource::Reading judge(const BalancerState& state, int min_members) {
    using enum BalancerState::Operating;
    StatusSource::Reading out;
    int serving = 0, drain = 0, live = 0, all = 0;
    for (const auto& member : state.members) {
        ++all;
        if (!member.reachable) continue;
        if (member.operating == online) ++serving;
        if (member.operating == draining) ++drain;
        if (member.operating != error && member.operating != offline) ++live;
    }
    if (all > 0) out.share = static_cast<double>(serving) / all;
    out.addresses = state.addresses;
    out.drains = state.operating == draining || (live > 0 && drain == live);
    const auto reading = [&](Outcome outcome, std::string text) {
        out.outcome = outcome;
        out.text = std::move(text);
        return out;
    };
    if (!state.exists) return reading(Outcome::failed, "there is no such balancer");
    if (state.goes_away) return reading(Outcome::failed, "it is being deleted");
    switch (state.operating) {
    case online:
        return reading(Outcome::ok, all > 0 ? fmt::format("ONLINE, {} of {} members serve", serving, all) : std::string("ONLINE"));
    case draining: return reading(Outcome::ok, "DRAINING");
    case degraded:
        if (out.drains) return reading(Outcome::warning, fmt::format("DEGRADED, all {} members that live drain", live));
        return reading(serving >= min_members ? Outcome::warning : Outcome::failed,
                       fmt::format("DEGRADED, {} of {} members serve, need {}", serving, all, min_members));
    case no_monitor: return reading(Outcome::local_error, "NO_MONITOR: nothing there watches its members");
    case offline: return reading(Outcome::failed, "OFFLINE");
    case error: return reading(Outcome::failed, "ERROR");
    }
    return reading(Outcome::local_error, "unknown");
}

} // namespace orrery::health
