#include "gslb/runtime/engine.h"

#include "core/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::gslb {

namespace {

struct Pool {
    std::optional<PoolSpec> spec; ///< nullopt: only members of it are known so far
    std::map<std::string, MemberInput> members;
    std::set<std::string> users;      ///< load balancers
    std::set<std::string> by_latency; ///< the users that steer by latency
    PoolState state;
    std::optional<PoolState> led; ///< the leader's state; nullopt: this server uses its own
    PoolViewPtr view;
    std::vector<Withheld> withheld;
    std::optional<WallTime> next_evaluation;
};

struct LoadBalancer {
    LoadBalancerSpec spec;
    ClientClasses clients;
    bool clients_changed = false; ///< since the last decision
    LoadBalancerState state;
    std::shared_ptr<const Decision> decision;
    std::optional<json::object> summary_before;      ///< of the decision before a restart
    std::vector<std::pair<Cause, std::string>> held; ///< cause and about, when last recorded
    std::int64_t decisions = 0;
    std::optional<WallTime> next_evaluation;
};

/// The identity of withheld changes: a new message or time alone is not a change.
std::vector<std::pair<Cause, std::string>> keys_of(const std::vector<Withheld>& withheld) {
    std::vector<std::pair<Cause, std::string>> out;
    for (const auto& one : withheld) out.emplace_back(one.cause, one.about);
    std::sort(out.begin(), out.end());
    return out;
}

TriggerPtr by_time() {
    static const auto out = std::make_shared<const Trigger>(Trigger{.cause = Cause::time});
    return out;
}

/// The trigger of an override that was set or cleared. An override carries its actor and reason. The trigger of a cleared override
/// describes the old one under `cleared`; its actor is the author of the change.
Trigger override_trigger(const Override& before, const Override& now, json::object details, const Trigger& change) {
    Trigger out{.cause = Cause::admin, .details = std::move(details), .actor = now.by, .reason = now.reason};
    out.details["override"] = name_of(now.action);
    if (now.action == Override::Action::none && before.action != Override::Action::none) {
        json::object cleared{{"override", name_of(before.action)}};
        if (!before.by.empty()) cleared["actor"] = before.by;
        if (!before.reason.empty()) cleared["reason"] = before.reason;
        out.details["cleared"] = std::move(cleared);
    }
    if (out.actor.empty()) out.actor = change.actor;
    if (out.reason.empty()) out.reason = change.reason;
    return out;
}

} // namespace

struct Engine::State {
    std::unordered_map<std::string, LoadBalancer> lbs;
    std::unordered_map<std::string, Pool> pools;
    std::unordered_map<std::string, std::string> pool_of; ///< by member
    std::unordered_map<std::string, std::string> by_fqdn;
    std::unordered_map<std::string, MemberHealth> early; ///< of members that are not known yet
    std::unordered_map<std::string, MonitorSpec> monitors;
    std::map<std::string, TriggerPtr> dirty_lbs, dirty_pools;
    std::set<std::string> changed_pools;
    Duration vantage_expiry{};
    std::vector<std::string> removed;
    std::set<std::pair<WallTime, std::string>> due_lbs, due_pools;

    void mark_pool(const std::string& pool, Trigger trigger) {
        mark(dirty_pools, pool, std::make_shared<const Trigger>(std::move(trigger)));
    }
    void mark_lb(const std::string& name, const TriggerPtr& trigger) { mark(dirty_lbs, name, trigger); }
    static void mark(std::map<std::string, TriggerPtr>& dirty, const std::string& key, const TriggerPtr& trigger) {
        const auto [before, is_new] = dirty.try_emplace(key, trigger);
        if (!is_new && before->second != trigger)
            before->second = std::make_shared<const Trigger>(merge_triggers(*before->second, *trigger));
    }

    static void reschedule(std::set<std::pair<WallTime, std::string>>& due, std::optional<WallTime>& at, std::optional<WallTime> to,
                           const std::string& key) {
        if (at == to) return;
        if (at) due.erase({*at, key});
        if (to) due.emplace(*to, key);
        at = to;
    }

    static void collect_due(std::set<std::pair<WallTime, std::string>>& due, WallTime now,
                            std::map<std::string, TriggerPtr>& into) {
        for (const auto& [at, key] : due) {
            if (at > now) break;
            into.try_emplace(key, by_time());
        }
    }

    static PoolInput input_of(const Pool& pool) {
        PoolInput out;
        out.spec = *pool.spec;
        for (const auto& [name, member] : pool.members) out.members.push_back(member);
        return out;
    }

    void reevaluate_pool(const std::string& key, const TriggerPtr& given, WallTime now) {
        const auto found = pools.find(key);
        if (found == pools.end()) return;
        auto& pool = found->second;
        if (!pool.spec) {
            if (pool.view)
                for (const auto& user : pool.users) mark_lb(user, given);
            pool.view.reset();
            pool.withheld.clear();
            reschedule(due_pools, pool.next_evaluation, std::nullopt, key);
            if (pool.members.empty() && pool.users.empty()) pools.erase(found);
            return;
        }
        const auto input = input_of(pool);
        auto evaluation = evaluate_pool(input, pool.led ? merge_with_leader(*pool.led, pool.state, input) : pool.state, now);
        const auto trigger = load_trigger(given, pool.state, evaluation.state);
        const bool same_view = pool.view && pool.view->same_except_rtt(evaluation.view);
        const bool same_rtt = pool.view && pool.view->rtt == evaluation.view.rtt;
        const bool same_withheld = keys_of(pool.withheld) == keys_of(evaluation.withheld);
        if (!same_view || !same_withheld || !(pool.state == evaluation.state)) changed_pools.insert(key);
        if (!same_view || !same_rtt) pool.view = std::make_shared<const PoolView>(std::move(evaluation.view));
        pool.state = std::move(evaluation.state);
        pool.withheld = std::move(evaluation.withheld);
        reschedule(due_pools, pool.next_evaluation, evaluation.next_evaluation, key);
        const bool same = same_view && same_withheld;
        if (same && same_rtt) return;
        for (const auto& user : same ? pool.by_latency : pool.users) mark_lb(user, trigger);
    }

    Snapshot snapshot_of(const LoadBalancer& lb, WallTime now) const {
        Snapshot out{.spec = lb.spec, .state = lb.state, .time = now};
        for (const auto& use : lb.spec.pools)
            if (const auto pool = pools.find(use.pool); pool != pools.end() && pool->second.view)
                out.pools.push_back(pool->second.view);
        return out;
    }

    /// Withheld changes of a pool belong to every load balancer that uses it.
    void add_withheld(const LoadBalancer& lb, Decision& decision) const {
        for (const auto& use : lb.spec.pools)
            if (const auto pool = pools.find(use.pool); pool != pools.end())
                decision.withheld.insert(decision.withheld.end(), pool->second.withheld.begin(), pool->second.withheld.end());
    }

    std::optional<Outcome> decide_lb(const std::string& key, const TriggerPtr& trigger, WallTime now) {
        const auto found = lbs.find(key);
        if (found == lbs.end()) return std::nullopt;
        auto& lb = found->second;
        auto snapshot = snapshot_of(lb, now);
        auto made = std::make_shared<Decision>(decide(snapshot));
        add_withheld(lb, *made);
        reschedule(due_lbs, lb.next_evaluation, made->next_evaluation, key);
        Outcome out{.lb = key, .decision = made};
        const auto held = keys_of(made->withheld);
        const bool first = !lb.decision && !lb.summary_before;
        // With one class only, a change of the prefixes cannot change an answer.
        const bool reclassified = std::exchange(lb.clients_changed, false) && made->answers.size() > 1;
        out.answers_changed = !lb.decision || !lb.decision->same_answers(*made) || reclassified;
        // The first decision after a restart is a change only if its answers differ from the stored ones.
        const bool changed = lb.decision ? out.answers_changed : first || made->summary() != *lb.summary_before;
        // A change withheld before a restart already has its record.
        const bool newly_withheld = held != lb.held && !held.empty() && !lb.summary_before;
        if (changed || newly_withheld) {
            ++lb.decisions;
            out.record = RecordDraft(std::make_shared<const RecordDraft::From>(RecordDraft::From{
                std::move(snapshot), lb.decision, made, lb.summary_before, lb.held, trigger, lb.decisions, changed}));
        }
        lb.held = held;
        lb.state = made->state;
        lb.decision = std::move(made);
        lb.summary_before.reset();
        return out;
    }

    const LoadBalancer* find(std::string_view key) const {
        const auto found = lbs.find(std::string(key));
        return found == lbs.end() ? nullptr : &found->second;
    }
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

void Engine::set_load_balancer(LoadBalancerSpec spec, ClientClasses clients, const Trigger& trigger) {
    const auto key = spec.name;
    auto& lb = state_->lbs[key];
    const bool reclassified = !lb.clients.same_as(clients);
    if (lb.decision && lb.spec == spec && !reclassified) return;
    lb.clients_changed = lb.clients_changed || reclassified;
    if (lb.spec.fqdn != spec.fqdn) {
        if (const auto held = state_->by_fqdn.find(lb.spec.fqdn); held != state_->by_fqdn.end() && held->second == key)
            state_->by_fqdn.erase(held);
        state_->by_fqdn[spec.fqdn] = key;
    }
    for (const auto& use : lb.spec.pools) {
        state_->pools[use.pool].users.erase(key);
        state_->pools[use.pool].by_latency.erase(key);
    }
    for (const auto& use : spec.pools) {
        state_->pools[use.pool].users.insert(key);
        if (spec.steering == Steering::latency) state_->pools[use.pool].by_latency.insert(key);
    }
    lb.spec = std::move(spec);
    lb.clients = std::move(clients);
    state_->mark_lb(key, std::make_shared<const Trigger>(trigger));
}

void Engine::remove_load_balancer(const std::string& key) {
    const auto found = state_->lbs.find(key);
    if (found == state_->lbs.end()) return;
    auto& lb = found->second;
    if (const auto held = state_->by_fqdn.find(lb.spec.fqdn); held != state_->by_fqdn.end() && held->second == key)
        state_->by_fqdn.erase(held);
    for (const auto& use : lb.spec.pools) {
        const auto pool = state_->pools.find(use.pool);
        if (pool == state_->pools.end()) continue;
        pool->second.users.erase(key);
        pool->second.by_latency.erase(key);
        if (!pool->second.spec) state_->mark_pool(use.pool, {});
    }
    State::reschedule(state_->due_lbs, lb.next_evaluation, std::nullopt, key);
    state_->dirty_lbs.erase(key);
    state_->removed.push_back(key);
    state_->lbs.erase(found);
}

void Engine::set_pool(PoolSpec pool, const Trigger& trigger) {
    auto& here = state_->pools[pool.name];
    if (here.spec == pool) return;
    auto by = trigger;
    // An override has a cause of its own: "admin", not "config".
    if (here.spec && !(here.spec->override_ == pool.override_))
        by = override_trigger(here.spec->override_, pool.override_, {{"pool", pool.name}}, trigger);
    state_->mark_pool(pool.name, by);
    here.spec = std::move(pool);
}

void Engine::remove_pool(const std::string& name, const Trigger& trigger) {
    const auto found = state_->pools.find(name);
    if (found == state_->pools.end()) return;
    found->second.spec.reset();
    found->second.state = {};
    found->second.led.reset();
    state_->mark_pool(name, trigger);
}

void Engine::set_member(MemberInput member, const Trigger& trigger) {
    const auto key = member.spec.name;
    auto by = trigger;
    if (const auto known = state_->pool_of.find(key); known != state_->pool_of.end()) {
        auto& old_pool = state_->pools[known->second];
        auto& old = old_pool.members.at(key);
        member.health = old.health;
        if (old == member) return;
        if (!(old.spec.override_ == member.spec.override_))
            by = override_trigger(old.spec.override_, member.spec.override_, {{"member", key}}, trigger);
        if (known->second != member.spec.pool) {
            old_pool.members.erase(key);
            state_->mark_pool(known->second, by);
        }
    } else if (const auto early = state_->early.find(key); early != state_->early.end()) {
        member.health = std::move(early->second);
        state_->early.erase(early);
    }
    state_->pool_of[key] = member.spec.pool;
    state_->mark_pool(member.spec.pool, by);
    auto& pool = state_->pools[member.spec.pool];
    pool.members.insert_or_assign(key, std::move(member));
}

void Engine::remove_member(const std::string& name, const Trigger& trigger) {
    state_->early.erase(name);
    const auto known = state_->pool_of.find(name);
    if (known == state_->pool_of.end()) return;
    state_->pools[known->second].members.erase(name);
    state_->mark_pool(known->second, trigger);
    state_->pool_of.erase(known);
}

void Engine::set_member_health(const std::string& member, MemberHealth health, Cause cause) {
    const auto known = state_->pool_of.find(member);
    if (known == state_->pool_of.end()) {
        state_->early.insert_or_assign(member, std::move(health));
        return;
    }
    auto& here = state_->pools[known->second].members.at(member);
    if (here.health == health) return;
    Trigger trigger{.cause = cause};
    trigger.details = {{"member", member}, {"from", name_of(here.health.state)}, {"to", name_of(health.state)}};
    if (!health.message.empty()) trigger.details["message"] = health.message;
    if (!health.evidence.is_null()) trigger.details["evidence"] = health.evidence;
    if (cause == Cause::load) { // the results of probes are not its reason
        trigger.details = {{"member", member}};
        if (health.load) trigger.details["load"] = *health.load;
    }
    here.health = std::move(health);
    state_->mark_pool(known->second, trigger);
}

void Engine::set_monitor(MonitorSpec monitor) { state_->monitors.insert_or_assign(monitor.name, std::move(monitor)); }
void Engine::remove_monitor(const std::string& name) { state_->monitors.erase(name); }

void Engine::restore_lb(const std::string& lb, LoadBalancerState state, std::int64_t decisions,
                        std::optional<json::object> last_summary) {
    const auto found = state_->lbs.find(lb);
    if (found == state_->lbs.end()) return;
    found->second.state = std::move(state);
    found->second.decisions = decisions;
    found->second.summary_before = std::move(last_summary);
}

void Engine::restore_pool(const std::string& name, PoolState state) { state_->pools[name].state = std::move(state); }

void Engine::follow_pool(const std::string& name, PoolState leaders) {
    const auto found = state_->pools.find(name);
    if (found == state_->pools.end() || found->second.led == leaders) return;
    const bool same = found->second.state == leaders;
    found->second.led = std::move(leaders);
    if (!same) state_->mark_pool(name, {.cause = Cause::leader});
}

void Engine::follow_count(const std::string& lb, std::int64_t decisions) {
    if (const auto found = state_->lbs.find(lb); found != state_->lbs.end())
        found->second.decisions = std::max(found->second.decisions, decisions);
}

void Engine::set_count(const std::string& lb, std::int64_t decisions) {
    if (const auto found = state_->lbs.find(lb); found != state_->lbs.end()) found->second.decisions = decisions;
}

void Engine::lead() {
    for (auto& [key, pool] : state_->pools) pool.led.reset();
}

void Engine::clock_stepped(std::chrono::milliseconds by) {
    for (auto& [key, pool] : state_->pools) {
        for (auto* state : {&pool.state, pool.led ? &*pool.led : nullptr}) {
            if (state == nullptr) continue;
            for (auto& at : state->recently) at += by;
            for (auto& [member, load] : state->load)
                if (load.changed != WallTime{}) load.changed += by;
            for (auto& [member, flap] : state->flaps) {
                for (auto& at : flap.withdrawals) at += by;
                if (flap.held_until) *flap.held_until += by;
            }
        }
        if (pool.next_evaluation) state_->dirty_pools.try_emplace(key, by_time());
        // Stored times must match the new clock: a restart may read them.
        if (!pool.state.recently.empty() || !pool.state.load.empty() || !pool.state.flaps.empty())
            state_->changed_pools.insert(key);
    }
    for (auto& [key, lb] : state_->lbs) {
        for (auto& [pool, left] : lb.state.left) {
            left.since += by;
            if (left.back) *left.back += by;
        }
        if (lb.next_evaluation || !lb.state.left.empty()) state_->dirty_lbs.try_emplace(key, by_time());
    }
}

std::vector<Outcome> Engine::evaluate(WallTime now) {
    std::vector<Outcome> out;
    for (auto& lb : std::exchange(state_->removed, {}))
        if (!state_->lbs.contains(lb)) out.push_back({.lb = std::move(lb), .answers_changed = true, .removed = true});
    State::collect_due(state_->due_pools, now, state_->dirty_pools);
    for (const auto& [pool, trigger] : std::exchange(state_->dirty_pools, {})) state_->reevaluate_pool(pool, trigger, now);
    State::collect_due(state_->due_lbs, now, state_->dirty_lbs);
    for (const auto& [lb, trigger] : std::exchange(state_->dirty_lbs, {}))
        if (auto outcome = state_->decide_lb(lb, trigger, now)) out.push_back(std::move(*outcome));
    return out;
}

bool Engine::has_work() const { return !state_->dirty_lbs.empty() || !state_->dirty_pools.empty() || !state_->removed.empty(); }

std::optional<WallTime> Engine::next() const {
    std::optional<WallTime> out;
    for (const auto* due : {&state_->due_lbs, &state_->due_pools})
        if (!due->empty() && (!out || due->begin()->first < *out)) out = due->begin()->first;
    return out;
}

std::shared_ptr<const Decision> Engine::decision(std::string_view lb) const {
    const auto* found = state_->find(lb);
    return found == nullptr ? nullptr : found->decision;
}

std::optional<Snapshot> Engine::snapshot(std::string_view lb, WallTime now) const {
    const auto* found = state_->find(lb);
    return found == nullptr ? std::nullopt : std::optional(state_->snapshot_of(*found, now));
}

const LoadBalancerSpec* Engine::spec(std::string_view lb) const {
    const auto* found = state_->find(lb);
    return found == nullptr ? nullptr : &found->spec;
}

const ClientClasses* Engine::clients(std::string_view lb) const {
    const auto* found = state_->find(lb);
    return found == nullptr ? nullptr : &found->clients;
}

std::string Engine::lb_of_fqdn(std::string_view fqdn) const {
    const auto found = state_->by_fqdn.find(lowered_name(fqdn));
    return found == state_->by_fqdn.end() ? std::string() : found->second;
}

std::optional<dns::DynamicName> Engine::dynamic_name(std::string_view lb) const {
    const auto* found = state_->find(lb);
    if (found == nullptr || !found->decision) return std::nullopt;
    return compile(*found->decision, found->clients);
}

FailoverTime Engine::failover_time(std::string_view lb, Duration publication) const {
    const auto* found = state_->find(lb);
    if (found == nullptr) return {};
    FailoverInput input{.publication = publication, .vantage_expiry = state_->vantage_expiry};
    for (const auto& use : found->spec.pools) {
        const auto pool = state_->pools.find(use.pool);
        if (pool == state_->pools.end() || !pool->second.spec) continue;
        for (const auto& [key, member] : pool->second.members) {
            auto& list = input.monitors[key];
            if (!member.health.unchecked.empty()) input.unchecked[key] = member.health.unchecked;
            for (const auto* monitors : {&std::as_const(*pool->second.spec).monitors, &member.spec.monitors})
                for (const auto& monitor : *monitors)
                    if (const auto known = state_->monitors.find(monitor); known != state_->monitors.end())
                        list.push_back(known->second);
        }
    }
    return worst_failover(found->spec, input);
}

void Engine::set_vantage_expiry(Duration expiry) { state_->vantage_expiry = expiry; }

std::int64_t Engine::decisions(std::string_view lb) const {
    const auto* found = state_->find(lb);
    return found == nullptr ? 0 : found->decisions;
}

Result<ImpactReport> Engine::what_if(std::string_view lb, const ProposedChange& change, WallTime now) const {
    const auto* found = state_->find(lb);
    if (found == nullptr) return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", lb)};
    std::vector<PoolSnapshot> pools;
    for (const auto& use : found->spec.pools)
        if (const auto pool = state_->pools.find(use.pool); pool != state_->pools.end() && pool->second.spec)
            pools.push_back({State::input_of(pool->second), pool->second.state});
    return simulate_change(found->spec, pools, found->state, change, now);
}

std::optional<Engine::EvaluatedPool> Engine::pool(std::string_view name) const {
    const auto found = state_->pools.find(std::string(name));
    if (found == state_->pools.end() || !found->second.view) return std::nullopt;
    return EvaluatedPool{found->second.view, &found->second.state, &found->second.withheld};
}

std::vector<std::string> Engine::take_changed_pools() {
    const auto changed = std::exchange(state_->changed_pools, {});
    return {changed.begin(), changed.end()};
}

const MemberInput* Engine::member(std::string_view name) const {
    const auto pool = state_->pool_of.find(std::string(name));
    return pool == state_->pool_of.end() ? nullptr : &state_->pools.at(pool->second).members.at(std::string(name));
}

std::set<std::string> Engine::lbs_using(std::string_view pool) const {
    const auto found = state_->pools.find(std::string(pool));
    return found == state_->pools.end() ? std::set<std::string>{} : found->second.users;
}

Duration Engine::cached_by_resolvers(std::string_view pool,
                                     const std::function<Duration(const std::string& fqdn)>& publication) const {
    Duration out{};
    if (const auto found = state_->pools.find(std::string(pool)); found != state_->pools.end())
        for (const auto& user : found->second.users)
            if (const auto* lb = state_->find(user))
                out = std::max<Duration>(out, std::chrono::seconds(lb->spec.ttl_max) + publication(lb->spec.fqdn));
    return out;
}

} // namespace orrery::gslb
