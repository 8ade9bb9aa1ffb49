#include "gslb/publication_plan.h"

#include <fmt/format.h>

namespace orrery::gslb {

namespace {

RecordSets marked(const RecordSets& wanted, const std::string& owner) {
    auto out = wanted;
    for (auto& set : out) set.mark = mark_of(owner, set);
    return out;
}

} // namespace

Plan plan_for(const RecordSets& wanted, bool empty_is_meant, const RecordSets& stands, const RecordSets* published,
              const Ownerships& by) {
    Plan plan;
    if (wanted.empty() && !empty_is_meant) {
        plan.what = Plan::What::withhold;
        plan.why = "the decision has no answer at all and the policy does not say nodata: the last answer stays";
        return plan;
    }
    const auto written = [&](RecordType type) { return published != nullptr ? find(*published, type) : nullptr; };
    const auto drift = [&](std::string why, bool allowed,
                           std::string_view remedy = "; let the path repair it, or put it right by hand") {
        if (!allowed) {
            plan.what = Plan::What::drift;
            why += remedy;
        } else if (plan.what == Plan::What::in_place) {
            plan.what = Plan::What::write;
            plan.repairs = true;
        }
        if (plan.why.empty() || !allowed) plan.why = std::move(why);
        return !allowed;
    };
    bool differs = false;
    for (const auto& set : stands) {
        const auto* want = find(wanted, set.type);
        const bool right = want != nullptr && want->same_data(set);
        auto owned = ownership(set, by.owner);
        // A service that keeps no marks: it is what we wrote ourselves a while ago.
        const auto* own = written(set.type);
        if (owned == Ownership::unmarked && own != nullptr && own->same_data(set)) owned = Ownership::ours;
        switch (owned) {
        case Ownership::ours: differs = differs || !right; break;
        case Ownership::altered:
            if (right) {
                differs = true; // for its mark; the answer is what we want
            } else if (drift(fmt::format("somebody else changed it: it is {}{}", set.text(),
                                         own != nullptr ? fmt::format(", and we wrote {}", own->text()) : ""),
                             by.repair)) {
                return plan;
            }
            break;
        case Ownership::anothers:
        case Ownership::unmarked:
            // Once we know what we wrote here, anything else came after it; before that, it was there before us.
            if (published != nullptr
                    ? drift(fmt::format("somebody else wrote {} there, and we wrote {}", set.text(), text_of(*published)),
                            by.repair)
                    : drift(fmt::format("it has {} already, which {}", set.text(),
                                        owned == Ownership::unmarked ? "is not marked as ours"
                                                                     : fmt::format("belongs to \"{}\"", set.mark)),
                            by.adopt, "; remove it, or let the path adopt it"))
                return plan;
            break;
        }
    }
    for (const auto& want : wanted) {
        if (find(stands, want.type) != nullptr) continue;
        differs = true;
        const auto* own = written(want.type);
        if (own != nullptr && drift(fmt::format("somebody else removed it: we wrote {}", own->text()), by.repair)) return plan;
    }
    if (plan.what == Plan::What::in_place && differs) plan.what = Plan::What::write;
    if (plan.what == Plan::What::write) plan.after = marked(wanted, by.owner);
    return plan;
}

} // namespace orrery::gslb
