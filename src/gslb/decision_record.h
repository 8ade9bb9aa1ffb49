#pragma once

#include "gslb/decide.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery::gslb {

/// What set a decision off, for its record.
struct Trigger {
    std::string cause = "config"; ///< probe, push, admin, config, time; leader: to answer as the server does that leads
    json::object what;            ///< {"member", "from", "to", "evidence"} and the like
    std::string actor, reason;
};
using TriggerPtr = std::shared_ptr<const Trigger>;

/// One that stands for two before one turn: a person's word counts first, then that a member was found otherwise, and the rest is
/// told as what also happened. The later of equals comes first.
Trigger both(Trigger before, Trigger later);

/// A Decision's spec in the making: what it is to be made from. It is made when somebody first looks at it, for names are answered
/// before anything is written about them. Loop thread only.
class RecordDraft {
public:
    struct From {
        Snapshot snapshot;
        std::shared_ptr<const Decision> before, after;         ///< before: null for the first
        std::optional<json::object> summary_before;            ///< of the decision before a restart
        std::vector<std::pair<std::string, std::string>> held; ///< cause and about, before
        TriggerPtr trigger;
        std::int64_t number = 0;
        bool changed = true;
    };
    RecordDraft() = default;
    explicit RecordDraft(std::shared_ptr<const From> from) : from_(std::move(from)) {}
    bool has_value() const { return from_ != nullptr; }
    explicit operator bool() const { return has_value(); }
    const json::object& operator*() const;
    const json::object* operator->() const { return &**this; }

private:
    std::shared_ptr<const From> from_;
    mutable std::optional<json::object> made_;
};

/// Decides a recorded decision again from its inputs. `invalid` where it holds none.
Result<Decision> replay(const json::object& record);

} // namespace orrery::gslb
