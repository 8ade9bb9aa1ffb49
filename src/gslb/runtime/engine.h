#pragma once

#include "gslb/decide/compile_answers.h"
#include "gslb/decide/decision_record.h"
#include "gslb/decide/failover_time.h"
#include "gslb/decide/simulate_change.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::gslb {

/// The result of evaluating one load balancer.
struct Outcome {
    std::string lb;
    bool answers_changed = false; ///< clients get different answers
    bool removed = false;         ///< the load balancer was removed; the fields below are empty
    RecordDraft record;           ///< empty if neither answers nor withheld changes changed
    std::shared_ptr<const Decision> decision;
};

/// All inputs of decisions in memory, and which load balancer depends on which. A change marks the load balancers that it may
/// affect; `evaluate` decides those again and no others. Has no clock, store or network: the caller passes the time. Loop thread
/// only.
class Engine {
public:
    Engine();
    ~Engine();

    // --- Inputs. Each carries its trigger; `merge_triggers` merges the triggers of one evaluation. Setting an equal value is not a
    // change.
    void set_load_balancer(LoadBalancerSpec spec, ClientClasses clients, const Trigger& trigger);
    void remove_load_balancer(const std::string& lb);
    void set_pool(PoolSpec pool, const Trigger& trigger);
    void remove_pool(const std::string& name, const Trigger& trigger);
    /// Keeps the health of a known member.
    void set_member(MemberInput member, const Trigger& trigger);
    void remove_member(const std::string& name, const Trigger& trigger);
    /// The health of an unknown member is kept until `set_member`.
    void set_member_health(const std::string& member, MemberHealth health, Cause cause = Cause::probe);
    void set_monitor(MonitorSpec monitor);
    void remove_monitor(const std::string& name);
    /// Restores the state from before a restart. To be called before the first `evaluate`.
    void restore_lb(const std::string& lb, LoadBalancerState state, std::int64_t decisions,
                    std::optional<json::object> last_summary = {});
    void restore_pool(const std::string& name, PoolState state);

    /// Sets the leader's state of a pool: all servers must withdraw the same members. Used until the next call or until `lead`.
    void follow_pool(const std::string& name, PoolState leaders);
    /// Sets the leader's number of decisions about a load balancer: the next leader continues from it.
    void follow_count(const std::string& lb, std::int64_t decisions);
    /// The number of the newest written record of a load balancer.
    void set_count(const std::string& lb, std::int64_t decisions);
    /// This server is the leader from now on: its own state counts, which is the followed state and what it observed since.
    void lead();

    /// The wall clock was set: shifts stored deadlines, so that hold times keep their length. Overrides with `until` keep their
    /// time of day.
    void clock_stepped(std::chrono::milliseconds by);

    /// Evaluates the pools and load balancers whose inputs changed or whose next evaluation is due.
    std::vector<Outcome> evaluate(WallTime now);
    bool has_work() const;
    /// The next time at which time alone may change a decision; nullopt: never.
    std::optional<WallTime> next() const;

    // --- Queries. Null or nullopt for an unknown load balancer.
    std::shared_ptr<const Decision> decision(std::string_view lb) const;
    std::optional<Snapshot> snapshot(std::string_view lb, WallTime now) const;
    const LoadBalancerSpec* spec(std::string_view lb) const;
    const ClientClasses* clients(std::string_view lb) const;
    /// The load balancer of a domain name, or "".
    std::string lb_of_fqdn(std::string_view fqdn) const;
    std::optional<dns::DynamicName> dynamic_name(std::string_view lb) const;
    /// `publication`: the time from a decision until every name server answers accordingly.
    FailoverTime failover_time(std::string_view lb, Duration publication = {}) const;
    /// How long the reports of a dead vantage count: part of every failover time.
    void set_vantage_expiry(Duration expiry);
    std::int64_t decisions(std::string_view lb) const;
    Result<ImpactReport> what_if(std::string_view lb, const ProposedChange& change, WallTime now) const;
    struct EvaluatedPool {
        PoolViewPtr view;
        const PoolState* state = nullptr;
        const std::vector<Withheld>* withheld = nullptr;
    };
    std::optional<EvaluatedPool> pool(std::string_view name) const;
    /// Pools whose view, state or withheld changes changed since the last call.
    std::vector<std::string> take_changed_pools();
    const MemberInput* member(std::string_view name) const;
    std::set<std::string> lbs_using(std::string_view pool) const;
    /// How long resolvers may still return a member of this pool after its withdrawal: the maximum over its load balancers of the
    /// TTL and the publication time of the domain name.
    Duration cached_by_resolvers(std::string_view pool, const std::function<Duration(const std::string& fqdn)>& publication) const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace orrery::gslb
