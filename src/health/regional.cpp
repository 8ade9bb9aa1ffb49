#include "health/regional.h"

#include <fmt/format.h>

namespace orrery::health {

BalancerState::Operating operating_from(std::string_view word) {
    using enum BalancerState::Operating;
    if (word == "ONLINE") return online;
    if (word == "DRAINING") return draining;
    if (word == "OFFLINE") return offline;
    if (word == "DEGRADED") return degraded;
    if (word == "ERROR") return error;
    return no_monitor;
}

StatusSource::Reading judge(const BalancerState& state, int least_members) {
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
    const auto say = [&](Outcome outcome, std::string text) {
        out.outcome = outcome;
        out.text = std::move(text);
        return out;
    };
    if (!state.exists) return say(Outcome::failed, "there is no such balancer");
    if (state.goes_away) return say(Outcome::failed, "it is being deleted");
    switch (state.operating) {
    case online:
        return say(Outcome::ok, all > 0 ? fmt::format("ONLINE, {} of {} members serve", serving, all) : std::string("ONLINE"));
    case draining: return say(Outcome::ok, "DRAINING");
    case degraded:
        if (out.drains) return say(Outcome::warning, fmt::format("DEGRADED, all {} members that live drain", live));
        return say(serving >= least_members ? Outcome::warning : Outcome::failed,
                   fmt::format("DEGRADED, {} of {} members serve, need {}", serving, all, least_members));
    case no_monitor: return say(Outcome::local_error, "NO_MONITOR: nothing there watches its members");
    case offline: return say(Outcome::failed, "OFFLINE");
    case error: return say(Outcome::failed, "ERROR");
    }
    return say(Outcome::local_error, "unknown");
}

} // namespace orrery::health
