#include "gslb/decide/simulate_change.h"

#include "core/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace orrery::gslb {

namespace {

Decision decided(const LoadBalancerSpec& spec, const std::vector<PoolSnapshot>& pools, const LoadBalancerState& state,
                 WallTime now) {
    Snapshot snapshot{.spec = spec, .state = state, .time = now};
    for (const auto& pool : pools)
        snapshot.pools.push_back(std::make_shared<const PoolView>(evaluate_pool(pool.input, pool.state, now).view));
    return decide(snapshot);
}

class ImpactAssessment {
public:
    ImpactAssessment(const LoadBalancerSpec& spec, const std::vector<PoolSnapshot>& pools, ImpactReport& out)
        : spec_(spec), out_(out) {
        for (const auto& pool : pools)
            for (const auto& member : pool.input.members) capacity_[member.spec.name] = member.spec.capacity;
    }

    void run() {
        for (std::size_t at = 0; at < out_.after.answers.size(); ++at) judge(out_.after.answers[at], out_.shares_after[at]);
        if (!against_.empty()) {
            out_.verdict = ImpactReport::Verdict::unsafe;
            out_.messages = std::move(against_);
        } else if (!unknown_.empty()) {
            out_.verdict = ImpactReport::Verdict::unknown;
            out_.messages = std::move(unknown_);
        } else {
            out_.verdict = ImpactReport::Verdict::safe;
            out_.messages = {fmt::format("every member that answers can carry its share of {}", spec_.demand)};
        }
    }

private:
    void judge(const Answer& answer, const Shares& shares) {
        const auto who = answer.clients.empty() ? std::string() : fmt::format(" for {}", answer.clients);
        if (answer.panic) return against(fmt::format("no pool would be usable{}: the name would be in PANIC", who));
        if (answer.candidates.empty()) return against(fmt::format("nothing would be answered{}", who));
        if (spec_.demand <= 0)
            return unknown(fmt::format("the demand is not known: set spec.demand of LoadBalancer {}", spec_.name));
        for (const auto& [member, share] : shares.by_member) {
            const auto capacity = capacity_[member];
            const auto load = share * spec_.demand;
            if (capacity <= 0)
                unknown(fmt::format("the capacity of {} is not known: set spec.capacity of Member {}", member, member));
            else if (load > capacity * (1 + 1e-9))
                against(fmt::format("{} would get {:.1f} of {}{}, and can carry {}", member, load, spec_.demand, who, capacity));
        }
    }
    void against(std::string message) { add(against_, std::move(message)); }
    void unknown(std::string message) { add(unknown_, std::move(message)); }
    static void add(std::vector<std::string>& to, std::string message) {
        if (std::find(to.begin(), to.end(), message) == to.end()) to.push_back(std::move(message));
    }

    const LoadBalancerSpec& spec_;
    ImpactReport& out_;
    std::map<std::string, double> capacity_;
    std::vector<std::string> against_, unknown_;
};

} // namespace

void apply(const ProposedChange& change, PoolInput& pool) {
    if (change.drained_pools.contains(pool.spec.name))
        pool.spec.override_ = {.action = Override::Action::drain, .reason = "what if"};
    for (auto& member : pool.members) {
        if (change.drained_members.contains(member.spec.name))
            member.spec.override_ = {.action = Override::Action::drain, .reason = "what if"};
        if (!change.down_members.contains(member.spec.name)) continue;
        if (member.health.monitored) {
            member.health.state = HealthState::down;
            member.health.message = "what if";
        } else {
            member.spec.override_ = {.action = Override::Action::down, .reason = "what if"};
        }
    }
}

Result<ImpactReport> simulate_change(const LoadBalancerSpec& spec, const std::vector<PoolSnapshot>& pools,
                                     const LoadBalancerState& state, const ProposedChange& change, WallTime now) {
    std::set<std::string> known_pools, known_members;
    for (const auto& pool : pools) {
        known_pools.insert(pool.input.spec.name);
        for (const auto& member : pool.input.members) known_members.insert(member.spec.name);
    }
    for (const auto& pool : change.drained_pools)
        if (!known_pools.contains(pool))
            return Error{Code::invalid, fmt::format("pool {} has no part in LoadBalancer {}", pool, spec.name),
                         fmt::format("its pools are {}", fmt::join(known_pools, ", "))};
    for (const auto* members : {&change.drained_members, &change.down_members})
        for (const auto& member : *members)
            if (!known_members.contains(member))
                return Error{Code::invalid, fmt::format("member {} has no part in LoadBalancer {}", member, spec.name),
                             "see: orrery get members"};
    auto changed = pools;
    for (auto& pool : changed) apply(change, pool.input);
    ImpactReport out;
    out.before = decided(spec, pools, state, now);
    out.after = decided(spec, changed, state, now);
    for (const auto& answer : out.before.answers) out.shares_before.push_back(predict(answer));
    for (const auto& answer : out.after.answers) out.shares_after.push_back(predict(answer));
    ImpactAssessment(spec, changed, out).run();
    return out;
}

std::string_view name_of(ImpactReport::Verdict verdict) {
    switch (verdict) {
    case ImpactReport::Verdict::safe: return "safe";
    case ImpactReport::Verdict::unsafe: return "unsafe";
    case ImpactReport::Verdict::unknown: return "unknown";
    }
    return "unknown";
}

json::object ImpactReport::to_json() const {
    const auto shares = [](const std::vector<Shares>& all) {
        json::array out;
        for (const auto& one : all) out.emplace_back(one.to_json());
        return out;
    };
    auto then = after.to_json();
    then["messages"] = to_array(after.messages);
    json::array withheld;
    for (const auto& one : after.withheld) withheld.emplace_back(one.to_json());
    if (!withheld.empty()) then["withheld"] = std::move(withheld);
    return {{"verdict", name_of(verdict)}, {"messages", to_array(messages)},         {"before", before.to_json()},
            {"after", std::move(then)},    {"shares_before", shares(shares_before)}, {"shares_after", shares(shares_after)}};
}

} // namespace orrery::gslb
