#include "gslb/publish/publication_plan.h"

#include <fmt/format.h>

namespace orrery::gslb {

namespace {

RecordSets marked(const RecordSets& wanted, const std::string& owner) {
    auto out = wanted;
    for (auto& set : out) set.mark = mark_of(owner, set);
    return out;
}

/// Compares the wanted RRsets of one name with the current ones, set by set.
class PlanBuilder {
public:
    PlanBuilder(const RecordSets& wanted, const RecordSets& current, const RecordSets* published, const OwnershipPolicy& by)
        : wanted_(wanted), current_(current), published_(published), by_(by) {}

    Plan run() {
        for (const auto& set : current_)
            if (!compare(set)) return std::move(plan_);
        for (const auto& want : wanted_)
            if (find(current_, want.type) == nullptr && !restore(want)) return std::move(plan_);
        if (plan_.action == Plan::Action::in_place && differs_) plan_.action = Plan::Action::write;
        if (plan_.action == Plan::Action::write) plan_.after = marked(wanted_, by_.owner);
        return std::move(plan_);
    }

private:
    const RecordSet* written(RecordType type) const { return published_ != nullptr ? find(*published_, type) : nullptr; }

    /// Others changed the records: a write if the policy allows it, otherwise drift. False for drift, which ends the comparison.
    bool change_by_others(std::string message, bool allowed,
                          std::string_view remedy = "; set repair of the Publisher, or restore the records") {
        if (!allowed) {
            plan_.action = Plan::Action::drift;
            message += remedy;
        } else if (plan_.action == Plan::Action::in_place) {
            plan_.action = Plan::Action::write;
            plan_.repairs = true;
        }
        if (plan_.message.empty() || !allowed) plan_.message = std::move(message);
        return allowed;
    }

    /// A current RRset. False for drift.
    bool compare(const RecordSet& set) {
        const auto* want = find(wanted_, set.type);
        const bool right = want != nullptr && want->same_data(set);
        auto owned = ownership(set, by_.owner);
        // The service stores no marks: compare with what we wrote.
        const auto* own = written(set.type);
        if (owned == Ownership::unmarked && own != nullptr && own->same_data(set)) owned = Ownership::ours;
        if (owned == Ownership::ours || (owned == Ownership::altered && right)) {
            differs_ = differs_ || !right || owned == Ownership::altered; // altered: only the mark is wrong
            return true;
        }
        if (owned == Ownership::altered)
            return change_by_others(fmt::format("changed by others: it is {}{}", set.text(),
                                                own != nullptr ? fmt::format(", we wrote {}", own->text()) : ""),
                                    by_.repair);
        // If we know what we wrote, anything else came later; otherwise it was there before us.
        if (published_ != nullptr)
            return change_by_others(fmt::format("others wrote {}, we wrote {}", set.text(), text_of(*published_)), by_.repair);
        return change_by_others(
            fmt::format("the name already has {}, which {}", set.text(),
                        owned == Ownership::unmarked ? "is not marked as ours" : fmt::format("belongs to \"{}\"", set.mark)),
            by_.adopt, "; remove it, or set adopt of the Publisher");
    }

    /// A wanted RRset that does not exist. False for drift.
    bool restore(const RecordSet& want) {
        differs_ = true;
        const auto* own = written(want.type);
        return own == nullptr || change_by_others(fmt::format("removed by others: we wrote {}", own->text()), by_.repair);
    }

    const RecordSets &wanted_, &current_;
    const RecordSets* published_;
    const OwnershipPolicy& by_;
    Plan plan_;
    bool differs_ = false;
};

} // namespace

Plan plan_for(const RecordSets& wanted, bool empty_is_meant, const RecordSets& current, const RecordSets* published,
              const OwnershipPolicy& by) {
    if (!wanted.empty() || empty_is_meant) return PlanBuilder(wanted, current, published, by).run();
    Plan plan;
    plan.action = Plan::Action::withhold;
    plan.message = "the decision has no answer and the policy is not nodata: the last answer stays";
    return plan;
}

} // namespace orrery::gslb
