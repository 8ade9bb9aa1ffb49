#include "health/vantage.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

namespace {

constexpr std::size_t most_falls = 1 << 20;

std::string in_seconds(Duration time) { return to_text(std::chrono::duration_cast<std::chrono::seconds>(time)); }

} // namespace

void SelfDiagnosis::fell(WallTime at) {
    falls_.push_back(at);
    if (falls_.size() > most_falls) falls_.pop_front();
}

Diagnosis SelfDiagnosis::diagnose(std::size_t targets, std::size_t canaries, std::size_t canaries_failing, WallTime now) {
    while (!falls_.empty() && now - falls_.front() > rule_.window) falls_.pop_front();
    if (targets >= rule_.least_targets && falls_.size() * 100 > targets * static_cast<std::size_t>(rule_.drop_percent)) {
        aside_until_ = now + std::chrono::duration_cast<std::chrono::milliseconds>(rule_.hold);
        fell_then_ = falls_.size();
        of_then_ = targets;
    }
    Diagnosis out;
    if (canaries > 0 && canaries_failing * 2 > canaries) {
        out.fit = false;
        out.words = fmt::format("{} of {} canaries fail", canaries_failing, canaries);
        out.data = {{"reason", "canaries"}, {"failing", canaries_failing}, {"of", canaries}};
    } else if (now < aside_until_) {
        out.fit = false;
        out.words = fmt::format("{} of its {} targets fell within {}, more than {} %", fell_then_, of_then_,
                                in_seconds(rule_.window), rule_.drop_percent);
        out.data = {{"reason", "fall"}, {"fell", fell_then_}, {"of", of_then_}};
    }
    return out;
}

GuardDecision MassGuard::withdraw(const std::string& member, std::size_t members, WallTime now) {
    while (!withdrawn_.empty() && now - withdrawn_.front().second > rule_.window) withdrawn_.pop_front();
    GuardDecision out;
    for (const auto& [name, at] : withdrawn_)
        if (name == member) return out; // it has gone already
    const auto most =
        rule_.most > 0 ? rule_.most : std::max<std::size_t>(1, members * static_cast<std::size_t>(rule_.percent) / 100);
    if (withdrawn_.size() < most) {
        withdrawn_.emplace_back(member, now);
        return out;
    }
    out.allowed = false;
    out.words = fmt::format("{} of {} members were withdrawn within {}; at most {} may be", withdrawn_.size(), members,
                            in_seconds(rule_.window), most);
    out.data = {{"reason", "mass_guard_hold"},
                {"withdrawn", withdrawn_.size()},
                {"members", members},
                {"most", most},
                {"window", in_seconds(rule_.window)}};
    return out;
}

void MassGuard::returned(const std::string& member) {
    std::erase_if(withdrawn_, [&](const auto& one) { return one.first == member; });
}

} // namespace orrery::health
