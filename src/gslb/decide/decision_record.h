#pragma once

#include "gslb/decide/cause.h"
#include "gslb/decide/decision.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The record of a decision (kind Decision), and its replay.
namespace orrery::gslb {

/// What made a decision necessary.
struct Trigger {
    Cause cause = Cause::config;
    json::object details; ///< {"member", "from", "to", "evidence"} and similar
    std::string actor, reason;
};
using TriggerPtr = std::shared_ptr<const Trigger>;

/// Merges two triggers of one evaluation. Precedence: administrator override, health change, everything else; the later of equals
/// comes first. The other trigger goes to `also` of the details.
Trigger merge_triggers(Trigger before, Trigger later);
/// The trigger of a pool's evaluation. If time or a reported load changed weights, the trigger has each such load and its effect.
TriggerPtr load_trigger(const TriggerPtr& trigger, const PoolState& before, const PoolState& after);

/// The spec of a Decision, rendered on first access: answers are served before anything is written about them. Loop thread only.
class RecordDraft {
public:
    struct From {
        Snapshot snapshot;
        std::shared_ptr<const Decision> before, after;              ///< before: null for the first decision
        std::optional<json::object> summary_before;                 ///< of the decision before a restart
        std::vector<std::pair<Cause, std::string>> withheld_before; ///< cause and about
        TriggerPtr trigger;
        std::int64_t number = 0;
        bool changed = true;
    };
    RecordDraft() = default;
    explicit RecordDraft(std::shared_ptr<const From> from) : from_(std::move(from)) {}
    /// A record that another server rendered.
    explicit RecordDraft(json::object made) : made_(std::move(made)) {}
    bool has_value() const { return from_ != nullptr || made_.has_value(); }
    explicit operator bool() const { return has_value(); }
    const json::object& operator*() const;
    const json::object* operator->() const { return &**this; }

private:
    std::shared_ptr<const From> from_;
    mutable std::optional<json::object> made_;
};

/// Decides again from the inputs of a record, also of a record of an earlier version. `invalid` if the record has no inputs.
Result<Decision> replay(const json::object& record);

} // namespace orrery::gslb
