#pragma once

#include "core/clock.h"
#include "core/text.h"
#include "health/verdict.h"

#include <optional>
#include <string>
#include <string_view>

namespace orrery::health {

/// A state that a person gives, above what probes find. `drain`: no new clients, those who are there may stay.
struct Forced {
    enum class What { up, down, drain };
    What what = What::drain;
    std::string author, reason;
    std::optional<WallTime> until; ///< nothing: until it is taken back

    json::object to_json() const;
    /// `invalid` names the field. An author and a reason are needed; an end that is past is none.
    static Result<Forced> from_json(const json::value& value);
};
std::string_view name_of(Forced::What what);

/// What holds now.
struct Effective {
    Standing standing = Standing::unknown;
    bool drained = false;
    bool forced = false;
    std::string words; ///< "FORCE_DOWN by anna until 2026-...: disk is replaced"; empty where probes decide
};
/// A forced state that has run out says nothing.
Effective effective(const std::optional<Forced>& forced, Standing probed, WallTime now);

/// How a member comes back after it was down.
struct Failback {
    enum class How { automatic, delayed, manual };
    How how = How::automatic;
    Duration delay{};
};
struct FailbackDecision {
    bool back = true;
    std::string words; ///< what is waited for
};
/// May a member that is up since then (and was withdrawn before) be used again? `approved`: somebody said so since it came up.
FailbackDecision may_return(const Failback& failback, WallTime up_since, bool approved, WallTime now);

/// A verdict as it is stored, so that a restart changes no answer: read back, it is stale until there is evidence.
struct Memory {
    Standing standing = Standing::unknown;
    WallTime since{};
    Outcome last = Outcome::local_error;
    std::string text; ///< at most 256 bytes are kept

    json::object to_json() const;
    /// Anything that is no memory is read as one of nothing: a record that cannot be read must not keep a server from starting.
    static Memory from_json(const json::value& value);
};
/// False where storing it again would change nothing that matters: the standing decides, not every look.
bool worth_storing(const Memory& stored, const Memory& now);

Standing standing_from(std::string_view name); ///< unknown for anything else
Outcome outcome_from(std::string_view name);   ///< local_error for anything else

} // namespace orrery::health
