#include "gslb/decision_record.h"

#include "gslb/read.h"

#include <algorithm>

namespace orrery::gslb {

namespace {

constexpr std::size_t most_also = 16;

/// Of several things that happened before a turn, which one a change is put down to: a person's word; that a member is found
/// otherwise; how things are set up; what else was noticed; time.
int rank_of(const Trigger& trigger) {
    if (trigger.cause == "admin") return 4;
    if (trigger.cause == "config") return 2;
    if (trigger.cause == "time" || trigger.cause == "leader") return 0;
    return text_at(trigger.what, "from") == text_at(trigger.what, "to") ? 1 : 3;
}

bool is_panic(const Decision& decision) { return decision.condition == Condition::panic; }

/// What is held back and was not, where nothing else changed; a change of the condition has a name of its own.
std::string cause_of(const RecordDraft::From& from) {
    const bool was_panic = from.before && is_panic(*from.before);
    if (from.changed && is_panic(*from.after) && !was_panic) return "panic_enter";
    if (from.changed && was_panic && !is_panic(*from.after)) return "panic_leave";
    if (!from.changed)
        for (const auto& one : from.after->withheld)
            if (std::find(from.held.begin(), from.held.end(), std::pair(one.cause, one.about)) == from.held.end()) return one.cause;
    return from.trigger->cause;
}

json::object record_from(const RecordDraft::From& from) {
    const auto& rule = from.snapshot.rule;
    const auto& trigger = *from.trigger;
    json::object out{{"loadbalancer", rule.name}, {"fqdn", rule.fqdn},
                     {"seq", from.number},        {"at", to_rfc3339(from.snapshot.time)},
                     {"cause", cause_of(from)},   {"changed", from.changed}};
    if (!trigger.what.empty()) out["trigger"] = trigger.what;
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
    out["because"] = to_array(from.after->because);
    if (!trigger.actor.empty()) out["actor"] = trigger.actor;
    if (!trigger.reason.empty()) out["reason"] = trigger.reason;
    out["inputs"] = from.snapshot.to_json();
    return out;
}

} // namespace

Trigger both(Trigger before, Trigger later) {
    if (before.cause == later.cause && before.what == later.what && before.actor == later.actor && before.reason == later.reason)
        return later;
    if (rank_of(later) < rank_of(before)) std::swap(before, later);
    auto also = array_at(before.what, "also");
    before.what.erase("also");
    for (const auto& one : array_at(later.what, "also"))
        if (also.size() < most_also) also.push_back(one);
    if (!before.what.empty() && rank_of(before) > 1 && also.size() < most_also) {
        if (before.cause != later.cause) before.what["cause"] = before.cause;
        if (!before.actor.empty()) before.what["actor"] = before.actor;
        if (!before.reason.empty()) before.what["reason"] = before.reason;
        also.emplace_back(std::move(before.what));
    }
    if (!also.empty()) later.what["also"] = std::move(also);
    return later;
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
