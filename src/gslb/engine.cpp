#include "gslb/engine.h"

#include "gslb/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::gslb {

namespace {

struct Pool {
    std::optional<PoolSpec> spec; ///< nothing: members of it are known, it is not
    std::map<std::string, MemberInput> members;
    std::set<std::string> users;      ///< names
    std::set<std::string> by_latency; ///< those of them to which its distance matters
    PoolMemory memory;
    std::optional<PoolMemory> led; ///< as the leader has it; nothing: this server decides by its own
    PoolViewPtr view;
    std::vector<Withheld> withheld;
    std::optional<WallTime> look_again;
};

struct Name {
    Rule rule;
    Clients clients;
    bool clients_changed = false; ///< since the last decision
    Memory memory;
    std::shared_ptr<const Decision> decision;
    std::optional<json::object> summary_before;            ///< of the decision before a restart
    std::vector<std::pair<std::string, std::string>> held; ///< cause and about, when last recorded
    std::int64_t decisions = 0;
    std::optional<WallTime> look_again;
};

/// Changes of words and times are no changes.
std::vector<std::pair<std::string, std::string>> keys_of(const std::vector<Withheld>& withheld) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const auto& one : withheld) out.emplace_back(one.cause, one.about);
    std::sort(out.begin(), out.end());
    return out;
}

TriggerPtr by_time() {
    static const auto out = std::make_shared<const Trigger>(Trigger{.cause = "time"});
    return out;
}

/// Somebody says something of a member or pool, or takes it back. A word carries who said it and why; of one that is taken back
/// that is told, and who did so is whoever made the change.
Trigger by_word_of(const Override& before, const Override& said, json::object what, const Trigger& change) {
    Trigger out{.cause = "admin", .what = std::move(what), .actor = said.by, .reason = said.reason};
    out.what["said"] = name_of(said.what);
    if (said.what == Override::What::none && before.what != Override::What::none) {
        json::object taken_back{{"said", name_of(before.what)}};
        if (!before.by.empty()) taken_back["actor"] = before.by;
        if (!before.reason.empty()) taken_back["reason"] = before.reason;
        out.what["taken_back"] = std::move(taken_back);
    }
    if (out.actor.empty()) out.actor = change.actor;
    if (out.reason.empty()) out.reason = change.reason;
    return out;
}

} // namespace

struct Engine::State {
    std::unordered_map<std::string, Name> names;
    std::unordered_map<std::string, Pool> pools;
    std::unordered_map<std::string, std::string> pool_of; ///< by member
    std::unordered_map<std::string, std::string> by_fqdn;
    std::unordered_map<std::string, Signal> early; ///< of members that are not there yet
    std::unordered_map<std::string, MonitorSpec> monitors;
    std::map<std::string, TriggerPtr> dirty_names, dirty_pools;
    std::set<std::string> changed_pools;
    std::vector<std::string> gone;
    std::set<std::pair<WallTime, std::string>> due_names, due_pools;

    void mark_pool(const std::string& pool, Trigger trigger) {
        mark(dirty_pools, pool, std::make_shared<const Trigger>(std::move(trigger)));
    }
    void mark_name(const std::string& name, const TriggerPtr& trigger) { mark(dirty_names, name, trigger); }
    static void mark(std::map<std::string, TriggerPtr>& dirty, const std::string& key, const TriggerPtr& trigger) {
        const auto [before, is_new] = dirty.try_emplace(key, trigger);
        if (!is_new && before->second != trigger) before->second = std::make_shared<const Trigger>(both(*before->second, *trigger));
    }

    static void reschedule(std::set<std::pair<WallTime, std::string>>& due, std::optional<WallTime>& at, std::optional<WallTime> to,
                           const std::string& key) {
        if (at == to) return;
        if (at) due.erase({*at, key});
        if (to) due.emplace(*to, key);
        at = to;
    }

    static void take_due(std::set<std::pair<WallTime, std::string>>& due, WallTime now, std::map<std::string, TriggerPtr>& into) {
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

    void settle_pool(const std::string& key, const TriggerPtr& trigger, WallTime now) {
        const auto found = pools.find(key);
        if (found == pools.end()) return;
        auto& pool = found->second;
        if (!pool.spec) {
            if (pool.view)
                for (const auto& user : pool.users) mark_name(user, trigger);
            pool.view.reset();
            pool.withheld.clear();
            reschedule(due_pools, pool.look_again, std::nullopt, key);
            if (pool.members.empty() && pool.users.empty()) pools.erase(found);
            return;
        }
        const auto input = input_of(pool);
        auto settled = settle(input, pool.led ? followed(*pool.led, pool.memory, input) : pool.memory, now);
        const bool same_view = pool.view && pool.view->same_but_for_distance(settled.view);
        const bool same_distance = pool.view && pool.view->rtt == settled.view.rtt;
        const bool same_held = keys_of(pool.withheld) == keys_of(settled.withheld);
        if (!same_view || !same_held || !(pool.memory == settled.memory)) changed_pools.insert(key);
        if (!same_view || !same_distance) pool.view = std::make_shared<const PoolView>(std::move(settled.view));
        pool.memory = std::move(settled.memory);
        pool.withheld = std::move(settled.withheld);
        reschedule(due_pools, pool.look_again, settled.look_again, key);
        const bool same = same_view && same_held;
        if (same && same_distance) return;
        for (const auto& user : same ? pool.by_latency : pool.users) mark_name(user, trigger);
    }

    Snapshot snapshot_of(const Name& name, WallTime now) const {
        Snapshot out{.rule = name.rule, .memory = name.memory, .time = now};
        for (const auto& use : name.rule.pools)
            if (const auto pool = pools.find(use.pool); pool != pools.end() && pool->second.view)
                out.pools.push_back(pool->second.view);
        return out;
    }

    /// A pool's held changes are those of every name that uses it.
    void add_held(const Name& name, Decision& decision) const {
        for (const auto& use : name.rule.pools)
            if (const auto pool = pools.find(use.pool); pool != pools.end())
                decision.withheld.insert(decision.withheld.end(), pool->second.withheld.begin(), pool->second.withheld.end());
    }

    std::optional<Outcome> decide_name(const std::string& key, const TriggerPtr& trigger, WallTime now) {
        const auto found = names.find(key);
        if (found == names.end()) return std::nullopt;
        auto& name = found->second;
        auto snapshot = snapshot_of(name, now);
        auto made = std::make_shared<Decision>(decide(snapshot));
        add_held(name, *made);
        reschedule(due_names, name.look_again, made->look_again, key);
        Outcome out{.name = key, .decision = made};
        const auto held = keys_of(made->withheld);
        const bool first = !name.decision && !name.summary_before;
        // Where all get the same, it does not matter who they are.
        const bool others = std::exchange(name.clients_changed, false) && made->answers.size() > 1;
        out.answers_changed = !name.decision || !name.decision->same_answers(*made) || others;
        // The first decision after a restart is a change only if the answers are others than those before it.
        const bool changed = name.decision ? out.answers_changed : first || made->summary() != *name.summary_before;
        // What was held back before a restart has its record already.
        const bool newly_held = held != name.held && !held.empty() && !name.summary_before;
        if (changed || newly_held) {
            ++name.decisions;
            out.record = RecordDraft(std::make_shared<const RecordDraft::From>(RecordDraft::From{
                std::move(snapshot), name.decision, made, name.summary_before, name.held, trigger, name.decisions, changed}));
        }
        name.held = held;
        name.memory = made->memory;
        name.decision = std::move(made);
        name.summary_before.reset();
        return out;
    }

    const Name* find(std::string_view key) const {
        const auto found = names.find(std::string(key));
        return found == names.end() ? nullptr : &found->second;
    }
};

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

void Engine::set_rule(Rule rule, Clients clients, const Trigger& trigger) {
    const auto key = rule.name;
    auto& name = state_->names[key];
    const bool others = !name.clients.same_as(clients);
    if (name.decision && name.rule == rule && !others) return;
    name.clients_changed = name.clients_changed || others;
    if (name.rule.fqdn != rule.fqdn) {
        if (const auto held = state_->by_fqdn.find(name.rule.fqdn); held != state_->by_fqdn.end() && held->second == key)
            state_->by_fqdn.erase(held);
        state_->by_fqdn[rule.fqdn] = key;
    }
    for (const auto& use : name.rule.pools) {
        state_->pools[use.pool].users.erase(key);
        state_->pools[use.pool].by_latency.erase(key);
    }
    for (const auto& use : rule.pools) {
        state_->pools[use.pool].users.insert(key);
        if (rule.steering == Steering::latency) state_->pools[use.pool].by_latency.insert(key);
    }
    name.rule = std::move(rule);
    name.clients = std::move(clients);
    state_->mark_name(key, std::make_shared<const Trigger>(trigger));
}

void Engine::remove_rule(const std::string& key) {
    const auto found = state_->names.find(key);
    if (found == state_->names.end()) return;
    auto& name = found->second;
    if (const auto held = state_->by_fqdn.find(name.rule.fqdn); held != state_->by_fqdn.end() && held->second == key)
        state_->by_fqdn.erase(held);
    for (const auto& use : name.rule.pools) {
        const auto pool = state_->pools.find(use.pool);
        if (pool == state_->pools.end()) continue;
        pool->second.users.erase(key);
        pool->second.by_latency.erase(key);
        if (!pool->second.spec) state_->mark_pool(use.pool, {});
    }
    State::reschedule(state_->due_names, name.look_again, std::nullopt, key);
    state_->dirty_names.erase(key);
    state_->gone.push_back(key);
    state_->names.erase(found);
}

void Engine::set_pool(PoolSpec pool, const Trigger& trigger) {
    auto& here = state_->pools[pool.name];
    if (here.spec == pool) return;
    auto said = trigger;
    // The word of a person is another cause than a change of how things are set up.
    if (here.spec && !(here.spec->override_ == pool.override_))
        said = by_word_of(here.spec->override_, pool.override_, {{"pool", pool.name}}, trigger);
    state_->mark_pool(pool.name, said);
    here.spec = std::move(pool);
}

void Engine::remove_pool(const std::string& name, const Trigger& trigger) {
    const auto found = state_->pools.find(name);
    if (found == state_->pools.end()) return;
    found->second.spec.reset();
    found->second.memory = {};
    found->second.led.reset();
    state_->mark_pool(name, trigger);
}

void Engine::set_member(MemberInput member, const Trigger& trigger) {
    const auto key = member.spec.name;
    auto said = trigger;
    if (const auto known = state_->pool_of.find(key); known != state_->pool_of.end()) {
        auto& old_pool = state_->pools[known->second];
        auto& old = old_pool.members.at(key);
        member.signal = old.signal;
        if (old == member) return;
        if (!(old.spec.override_ == member.spec.override_))
            said = by_word_of(old.spec.override_, member.spec.override_, {{"member", key}}, trigger);
        if (known->second != member.spec.pool) {
            old_pool.members.erase(key);
            state_->mark_pool(known->second, said);
        }
    } else if (const auto early = state_->early.find(key); early != state_->early.end()) {
        member.signal = std::move(early->second);
        state_->early.erase(early);
    }
    state_->pool_of[key] = member.spec.pool;
    state_->mark_pool(member.spec.pool, said);
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

void Engine::set_signal(const std::string& member, Signal signal, std::string cause) {
    const auto known = state_->pool_of.find(member);
    if (known == state_->pool_of.end()) {
        state_->early.insert_or_assign(member, std::move(signal));
        return;
    }
    auto& here = state_->pools[known->second].members.at(member);
    if (here.signal == signal) return;
    Trigger trigger{.cause = std::move(cause)};
    trigger.what = {{"member", member}, {"from", name_of(here.signal.standing)}, {"to", name_of(signal.standing)}};
    if (!signal.words.empty()) trigger.what["words"] = signal.words;
    if (!signal.evidence.is_null()) trigger.what["evidence"] = signal.evidence;
    here.signal = std::move(signal);
    state_->mark_pool(known->second, trigger);
}

void Engine::set_monitor(MonitorSpec monitor) { state_->monitors.insert_or_assign(monitor.name, std::move(monitor)); }
void Engine::remove_monitor(const std::string& name) { state_->monitors.erase(name); }

void Engine::remember(const std::string& name, Memory memory, std::int64_t decisions, std::optional<json::object> last_summary) {
    const auto found = state_->names.find(name);
    if (found == state_->names.end()) return;
    found->second.memory = std::move(memory);
    found->second.decisions = decisions;
    found->second.summary_before = std::move(last_summary);
}

void Engine::remember_pool(const std::string& name, PoolMemory memory) { state_->pools[name].memory = std::move(memory); }

void Engine::follow_pool(const std::string& name, PoolMemory leaders) {
    const auto found = state_->pools.find(name);
    if (found == state_->pools.end() || found->second.led == leaders) return;
    const bool same = found->second.memory == leaders;
    found->second.led = std::move(leaders);
    if (!same) state_->mark_pool(name, {.cause = "leader"});
}

void Engine::follow_count(const std::string& name, std::int64_t decisions) {
    if (const auto found = state_->names.find(name); found != state_->names.end())
        found->second.decisions = std::max(found->second.decisions, decisions);
}

void Engine::lead() {
    for (auto& [key, pool] : state_->pools) pool.led.reset();
}

void Engine::clock_stepped(std::chrono::milliseconds by) {
    for (auto& [key, pool] : state_->pools) {
        for (auto* memory : {&pool.memory, pool.led ? &*pool.led : nullptr}) {
            if (memory == nullptr) continue;
            for (auto& at : memory->recently) at += by;
            for (auto& [member, load] : memory->load)
                if (load.changed != WallTime{}) load.changed += by;
        }
        if (pool.look_again) state_->dirty_pools.try_emplace(key, by_time());
        // What is stored must be right by the clock as it is now, for it may be read after a restart.
        if (!pool.memory.recently.empty() || !pool.memory.load.empty()) state_->changed_pools.insert(key);
    }
    for (auto& [key, name] : state_->names) {
        for (auto& [pool, left] : name.memory.left) {
            left.since += by;
            if (left.back) *left.back += by;
        }
        if (name.look_again || !name.memory.left.empty()) state_->dirty_names.try_emplace(key, by_time());
    }
}

std::vector<Outcome> Engine::turn(WallTime now) {
    std::vector<Outcome> out;
    for (auto& name : std::exchange(state_->gone, {}))
        if (!state_->names.contains(name)) out.push_back({.name = std::move(name), .answers_changed = true, .gone = true});
    State::take_due(state_->due_pools, now, state_->dirty_pools);
    for (const auto& [pool, trigger] : std::exchange(state_->dirty_pools, {})) state_->settle_pool(pool, trigger, now);
    State::take_due(state_->due_names, now, state_->dirty_names);
    for (const auto& [name, trigger] : std::exchange(state_->dirty_names, {}))
        if (auto outcome = state_->decide_name(name, trigger, now)) out.push_back(std::move(*outcome));
    return out;
}

bool Engine::has_work() const { return !state_->dirty_names.empty() || !state_->dirty_pools.empty() || !state_->gone.empty(); }

std::optional<WallTime> Engine::next() const {
    std::optional<WallTime> out;
    for (const auto* due : {&state_->due_names, &state_->due_pools})
        if (!due->empty() && (!out || due->begin()->first < *out)) out = due->begin()->first;
    return out;
}

std::shared_ptr<const Decision> Engine::decision(std::string_view name) const {
    const auto* found = state_->find(name);
    return found == nullptr ? nullptr : found->decision;
}

std::optional<Snapshot> Engine::snapshot(std::string_view name, WallTime now) const {
    const auto* found = state_->find(name);
    return found == nullptr ? std::nullopt : std::optional(state_->snapshot_of(*found, now));
}

const Rule* Engine::rule(std::string_view name) const {
    const auto* found = state_->find(name);
    return found == nullptr ? nullptr : &found->rule;
}

const Clients* Engine::clients(std::string_view name) const {
    const auto* found = state_->find(name);
    return found == nullptr ? nullptr : &found->clients;
}

std::string Engine::name_of_fqdn(std::string_view fqdn) const {
    const auto found = state_->by_fqdn.find(lowered_name(fqdn));
    return found == state_->by_fqdn.end() ? std::string() : found->second;
}

std::optional<dns::Tailored> Engine::tailored(std::string_view name) const {
    const auto* found = state_->find(name);
    if (found == nullptr || !found->decision) return std::nullopt;
    return compile(*found->decision, found->clients);
}

FailoverTime Engine::failover_time(std::string_view name, Duration publication) const {
    const auto* found = state_->find(name);
    if (found == nullptr) return {};
    std::map<std::string, std::vector<MonitorSpec>> watching;
    for (const auto& use : found->rule.pools) {
        const auto pool = state_->pools.find(use.pool);
        if (pool == state_->pools.end() || !pool->second.spec) continue;
        for (const auto& [key, member] : pool->second.members) {
            auto& list = watching[key];
            for (const auto* monitors : {&std::as_const(*pool->second.spec).monitors, &member.spec.monitors})
                for (const auto& monitor : *monitors)
                    if (const auto known = state_->monitors.find(monitor); known != state_->monitors.end())
                        list.push_back(known->second);
        }
    }
    return worst_failover(found->rule, watching, publication);
}

std::int64_t Engine::decisions(std::string_view name) const {
    const auto* found = state_->find(name);
    return found == nullptr ? 0 : found->decisions;
}

Result<Foresight> Engine::what_if(std::string_view name, const Hypothesis& change, WallTime now) const {
    const auto* found = state_->find(name);
    if (found == nullptr) return Error{Code::not_found, fmt::format("there is no LoadBalancer {}", name)};
    std::vector<PoolNow> pools;
    for (const auto& use : found->rule.pools)
        if (const auto pool = state_->pools.find(use.pool); pool != state_->pools.end() && pool->second.spec)
            pools.push_back({State::input_of(pool->second), pool->second.memory});
    return foresee(found->rule, pools, found->memory, change, now);
}

std::optional<Engine::PoolNowView> Engine::pool(std::string_view name) const {
    const auto found = state_->pools.find(std::string(name));
    if (found == state_->pools.end() || !found->second.view) return std::nullopt;
    return PoolNowView{found->second.view, &found->second.memory, &found->second.withheld};
}

std::vector<std::string> Engine::take_changed_pools() {
    const auto changed = std::exchange(state_->changed_pools, {});
    return {changed.begin(), changed.end()};
}

const MemberInput* Engine::member(std::string_view name) const {
    const auto pool = state_->pool_of.find(std::string(name));
    return pool == state_->pool_of.end() ? nullptr : &state_->pools.at(pool->second).members.at(std::string(name));
}

std::set<std::string> Engine::names_using(std::string_view pool) const {
    const auto found = state_->pools.find(std::string(pool));
    return found == state_->pools.end() ? std::set<std::string>{} : found->second.users;
}

Duration Engine::kept_by_resolvers(std::string_view pool,
                                   const std::function<Duration(const std::string& fqdn)>& publication) const {
    Duration out{};
    if (const auto found = state_->pools.find(std::string(pool)); found != state_->pools.end())
        for (const auto& user : found->second.users)
            if (const auto* name = state_->find(user))
                out = std::max<Duration>(out, std::chrono::seconds(name->rule.ttl_max) + publication(name->rule.fqdn));
    return out;
}

} // namespace orrery::gslb
