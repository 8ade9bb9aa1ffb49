#include "health/vantages/self_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::health {

namespace {

constexpr std::size_t max_failures = 1 << 20;

std::string in_seconds(Duration time) { return to_text(std::chrono::duration_cast<std::chrono::seconds>(time)); }

} // namespace

std::string_view name_of(QuarantineCause cause) {
    switch (cause) {
    case QuarantineCause::none: return "";
    case QuarantineCause::canaries: return "canaries";
    case QuarantineCause::mass_failure: return "mass_failure";
    }
    return "";
}

QuarantineCause quarantine_cause_named(std::string_view name) {
    for (const auto cause : {QuarantineCause::canaries, QuarantineCause::mass_failure})
        if (name_of(cause) == name) return cause;
    return QuarantineCause::none;
}

void SelfDiagnosis::target_failed(WallTime at) {
    failures_.push_back(at);
    if (failures_.size() > max_failures) failures_.pop_front();
}

Diagnosis SelfDiagnosis::diagnose(std::size_t targets, std::size_t canaries, std::size_t canaries_failing, WallTime now) {
    while (!failures_.empty() && now - failures_.front() > rule_.window) failures_.pop_front();
    if (targets >= rule_.min_targets && failures_.size() * 100 > targets * static_cast<std::size_t>(rule_.drop_percent)) {
        quarantined_until_ = now + std::chrono::duration_cast<std::chrono::milliseconds>(rule_.hold);
        failed_then_ = failures_.size();
        of_then_ = targets;
    }
    Diagnosis out;
    if (canaries > 0 && canaries_failing * 2 > canaries) {
        out.trusted = false;
        out.message = fmt::format("{} of {} canaries fail", canaries_failing, canaries);
        out.cause = QuarantineCause::canaries;
    } else if (now < quarantined_until_) {
        out.trusted = false;
        out.message = fmt::format("{} of its {} targets failed within {}, more than {} %", failed_then_, of_then_,
                                  in_seconds(rule_.window), rule_.drop_percent);
        out.cause = QuarantineCause::mass_failure;
    }
    return out;
}

} // namespace orrery::health
