#include "gslb/decide/decision_record.h"

#include "core/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::gslb {

namespace {

constexpr std::size_t max_also = 16;

/// Precedence of the triggers of one evaluation: administrator override, health change, configuration, other health data, time.
int rank_of(const Trigger& trigger) {
    if (trigger.cause == Cause::admin) return 4;
    if (trigger.cause == Cause::config) return 2;
    if (trigger.cause == Cause::time || trigger.cause == Cause::leader) return 0;
    return text_at(trigger.details, "from") == text_at(trigger.details, "to") ? 1 : 3;
}

bool is_panic(const Decision& decision) { return decision.condition == Condition::panic; }

/// Entering and leaving panic have causes of their own; a record without a changed answer has the cause of its new withheld change.
Cause cause_of(const RecordDraft::From& from) {
    const bool was_panic = from.before && is_panic(*from.before);
    if (from.changed && is_panic(*from.after) && !was_panic) return Cause::panic_enter;
    if (from.changed && was_panic && !is_panic(*from.after)) return Cause::panic_leave;
    if (!from.changed)
        for (const auto& one : from.after->withheld)
            if (std::find(from.withheld_before.begin(), from.withheld_before.end(), std::pair(one.cause, one.about)) ==
                from.withheld_before.end())
                return one.cause;
    return from.trigger->cause;
}

json::object record_from(const RecordDraft::From& from) {
    const auto& spec = from.snapshot.spec;
    const auto& trigger = *from.trigger;
    json::object out{
        {"loadbalancer", spec.name},        {"fqdn", spec.fqdn},      {"seq", from.number}, {"at", to_rfc3339(from.snapshot.time)},
        {"cause", name_of(cause_of(from))}, {"changed", from.changed}};
    if (!trigger.details.empty()) out["trigger"] = trigger.details;
    if (from.before)
        out["before"] = from.before->summary();
    else if (from.summary_before)
        out["before"] = *from.summary_before;
    out["after"] = from.after->to_json();
    if (!from.after->withheld.empty()) {
        json::array all;
        for (const auto& one : from.after->withheld) all.emplace_back(one.to_json());
        out["withheld"] = std::move(all);
    }
    out["messages"] = to_array(from.after->messages);
    if (!trigger.actor.empty()) out["actor"] = trigger.actor;
    if (!trigger.reason.empty()) out["reason"] = trigger.reason;
    out["inputs"] = from.snapshot.to_json();
    return out;
}

} // namespace

std::string_view name_of(Cause cause) {
    using enum Cause;
    switch (cause) {
    case config: return "config";
    case probe: return "probe";
    case driver: return "driver";
    case push: return "push";
    case load: return "load";
    case admin: return "admin";
    case time: return "time";
    case leader: return "leader";
    case panic_enter: return "panic_enter";
    case panic_leave: return "panic_leave";
    case mass_guard_hold: return "mass_guard_hold";
    case flap_hold: return "flap_hold";
    case quorum_hold: return "quorum_hold";
    case vantage_excluded: return "vantage_excluded";
    case source_silent: return "source_silent";
    case failback: return "failback";
    case dead_band: return "dead_band";
    }
    return "config";
}

Trigger merge_triggers(Trigger before, Trigger later) {
    if (before.cause == later.cause && before.details == later.details && before.actor == later.actor &&
        before.reason == later.reason)
        return later;
    if (rank_of(later) < rank_of(before)) std::swap(before, later);
    auto also = array_at(before.details, "also");
    before.details.erase("also");
    for (const auto& one : array_at(later.details, "also"))
        if (also.size() < max_also) also.push_back(one);
    if (!before.details.empty() && rank_of(before) > 1 && also.size() < max_also) {
        if (before.cause != later.cause) before.details["cause"] = name_of(before.cause);
        if (!before.actor.empty()) before.details["actor"] = before.actor;
        if (!before.reason.empty()) before.details["reason"] = before.reason;
        also.emplace_back(std::move(before.details));
    }
    if (!also.empty()) later.details["also"] = std::move(also);
    return later;
}

TriggerPtr load_trigger(const TriggerPtr& trigger, const PoolState& before, const PoolState& after) {
    if (trigger->cause != Cause::time && trigger->cause != Cause::load) return trigger;
    const auto expired =
        trigger->cause == Cause::load && !trigger->details.contains("load") ? text_at(trigger->details, "member") : "";
    json::array changes;
    for (const auto& [member, load] : after.load) {
        const auto known = before.load.find(member);
        const auto was = known == before.load.end() ? 100U : known->second.percent;
        if (was == load.percent || changes.size() > max_also) continue;
        const auto reason = member == expired ? std::string("a load that has expired") : fmt::format("load {:g}", load.load);
        changes.push_back(
            json::object{{"member", member},
                         {"load", load.load},
                         {"weight_percent", load.percent},
                         {"message", fmt::format("{} changes its weight from {} % to {} %", reason, was, load.percent)}});
    }
    if (changes.empty()) return trigger;
    Trigger out{.cause = Cause::load, .details = std::move(changes.front().as_object())};
    changes.erase(changes.begin());
    if (!changes.empty()) out.details["also"] = std::move(changes);
    return std::make_shared<const Trigger>(std::move(out));
}

const json::object& RecordDraft::operator*() const {
    if (!made_) made_ = record_from(*from_);
    return *made_;
}

Result<Decision> replay(const json::object& record) {
    TRY(const auto snapshot, Snapshot::from(object_at(record, "inputs")));
    return decide(snapshot);
}

} // namespace orrery::gslb
