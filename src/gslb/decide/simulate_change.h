#pragma once

#include "gslb/decide/compile_answers.h"

#include <set>
#include <string>
#include <vector>

/// What a proposed change would do, computed with the functions that decide real answers.
namespace orrery::gslb {

/// Everything that the evaluation of one pool depends on.
struct PoolSnapshot {
    PoolInput input;
    PoolState state;
};

struct ProposedChange {
    std::set<std::string> drained_pools, drained_members;
    std::set<std::string> down_members; ///< as if all their monitors reported them down
};

struct ImpactReport {
    Decision before, after;
    std::vector<Shares> shares_before, shares_after;
    enum class Verdict { safe, unsafe, unknown };
    Verdict verdict = Verdict::unknown;
    std::vector<std::string> messages; ///< the reasons for the verdict
    json::object to_json() const;
};
std::string_view name_of(ImpactReport::Verdict verdict);

/// What a load balancer would answer after the change, and whether the remaining members have the capacity. `pools`: the pools of
/// the spec that exist. `invalid` for a pool or member that the load balancer does not use.
Result<ImpactReport> simulate_change(const LoadBalancerSpec& spec, const std::vector<PoolSnapshot>& pools,
                                     const LoadBalancerState& state, const ProposedChange& change, WallTime now);

/// Applies the change to the inputs of one pool.
void apply(const ProposedChange& change, PoolInput& pool);

} // namespace orrery::gslb
