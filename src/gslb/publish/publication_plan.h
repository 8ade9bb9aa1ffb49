#pragma once

#include "gslb/publish/dns_provider.h"

#include <string>

namespace orrery::gslb {

/// How to handle records of others.
struct OwnershipPolicy {
    std::string owner;   ///< our owner in owner marks
    bool repair = false; ///< restore our records that others changed; otherwise they are drift
    bool adopt = false;  ///< take over records that others wrote before us; otherwise they are drift
};

/// What to do for one name.
struct Plan {
    enum class Action {
        in_place, ///< nothing: the records are as wanted
        write,
        withhold, ///< nothing: the wanted records must not be published
        drift,    ///< nothing: others changed the records
    };
    Action action = Action::in_place;
    std::string message;  ///< of a write, a withheld change or a drift
    RecordSets after;     ///< of a write: with owner marks
    bool repairs = false; ///< of a write: it reverts a change by others
};

/// Compares wanted and current RRsets. Pure. `published`: what we wrote last; null if unknown (after a start). Our earlier answers
/// are replaced; records that others changed, removed or created are drift, unless `by` allows the change. An empty `wanted` is
/// withheld unless `empty_is_meant`.
Plan plan_for(const RecordSets& wanted, bool empty_is_meant, const RecordSets& current, const RecordSets* published,
              const OwnershipPolicy& by);

} // namespace orrery::gslb
