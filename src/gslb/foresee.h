#pragma once

#include "gslb/compile.h"

#include <map>
#include <set>
#include <string>
#include <vector>

/// What would be: made by the same functions that decide what is.
namespace orrery::gslb {

/// The longest that a client can go on using an address after it failed.
struct FailoverTime {
    bool bounded = false;   ///< false: some failure is never seen
    Duration detection{};   ///< until the slowest monitor counts it as down
    Duration publication{}; ///< until every name server answers accordingly
    Duration ttl{};         ///< until the last cached answer has expired
    Duration total() const { return detection + publication + ttl; }
    std::vector<std::string> warnings; ///< each with what to do about it
    json::object to_json() const;
};
/// `monitors`: by member, those that watch it. `publication`: of the slowest way out.
FailoverTime worst_failover(const Rule& rule, const std::map<std::string, std::vector<MonitorSpec>>& monitors,
                            Duration publication);

struct PoolNow {
    PoolInput input;
    PoolMemory memory;
};

/// A change that somebody thinks of making, or fears.
struct Hypothesis {
    std::set<std::string> drained_pools, drained_members;
    std::set<std::string> down_members; ///< as if all their monitors had found them down
};

struct Foresight {
    Decision before, after;
    std::vector<Shares> shares_before, shares_after;
    enum class Verdict { safe, unsafe, unknown };
    Verdict verdict = Verdict::unknown;
    std::vector<std::string> why; ///< what speaks against it, or what is not known
    json::object to_json() const;
};
std::string_view name_of(Foresight::Verdict verdict);

/// What a name would answer. `pools`: those of the rule, as far as they exist. `invalid` for a pool or member that has no part in
/// it.
Result<Foresight> foresee(const Rule& rule, const std::vector<PoolNow>& pools, const Memory& memory, const Hypothesis& change,
                          WallTime now);

/// The same change, applied: what the inputs then are.
void apply(const Hypothesis& change, PoolInput& pool);

} // namespace orrery::gslb
