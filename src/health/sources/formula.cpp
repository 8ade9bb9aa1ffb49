#include "health/sources/formula.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

Observation calculate(const Formula& formula, std::span<const HealthState> parts) {
    const auto count = [&](HealthState state) { return static_cast<std::size_t>(std::count(parts.begin(), parts.end(), state)); };
    const auto up = count(HealthState::up), degraded = count(HealthState::degraded), unknown = count(HealthState::unknown);
    const auto all = parts.size();
    std::size_t need = formula.count;
    if (formula.kind == Formula::Kind::all) need = all;
    if (formula.kind == Formula::Kind::any) need = 1;
    Observation out;
    if (formula.kind == Formula::Kind::none) {
        out.text = fmt::format("{} of {} up, none may be", up + degraded, all);
        out.outcome = up + degraded > 0 ? Outcome::failed : unknown > 0 ? Outcome::local_error : Outcome::ok;
        return out;
    }
    out.text = fmt::format("{} of {} up, need {}", up + degraded, all, need);
    if (all == 0)
        out.outcome = Outcome::local_error;
    else if (up >= need)
        out.outcome = Outcome::ok;
    else if (up + degraded >= need)
        out.outcome = Outcome::warning;
    else if (up + degraded + unknown >= need)
        out.outcome = Outcome::local_error;
    else
        out.outcome = Outcome::failed;
    return out;
}

} // namespace orrery::health
