#pragma once

#include "gslb/publisher.h"

#include <string>

namespace orrery::gslb {

/// What may be done about what others wrote.
struct Ownerships {
    std::string owner;   ///< ours, as it stands in marks
    bool repair = false; ///< what others changed of ours is put right; otherwise it is shown as drift and left
    bool adopt = false;  ///< what others wrote before us is taken over; otherwise it is shown as drift and left
};

/// What to do about one name.
struct Plan {
    enum class What {
        in_place, ///< nothing: it stands as it should
        write,
        withhold, ///< nothing: what is wanted must not be published
        drift,    ///< nothing: others wrote there
    };
    What what = What::in_place;
    std::string why;      ///< of a write, a withheld change or a drift, in words
    RecordSets after;     ///< of a write: marked
    bool repairs = false; ///< of a write: it undoes what others did
};

/// Compares what is wanted with what stands. Pure. `published`: what we know to have written there last; null where we do not know
/// (after a start). An own earlier answer is replaced; what others changed, removed or made is not, unless `by` says so. Nothing
/// wanted is withheld unless `empty_is_meant`.
Plan plan_for(const RecordSets& wanted, bool empty_is_meant, const RecordSets& stands, const RecordSets* published,
              const Ownerships& by);

} // namespace orrery::gslb
