#include "gslb/foresee.h"

#include "gslb/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace orrery::gslb {

namespace {

/// Resolvers do not go below this, whatever they are told.
constexpr auto least_sensible_ttl = std::chrono::seconds(5);

Decision decided(const Rule& rule, const std::vector<PoolNow>& pools, const Memory& memory, WallTime now) {
    Snapshot snapshot{.rule = rule, .memory = memory, .time = now};
    for (const auto& pool : pools)
        snapshot.pools.push_back(std::make_shared<const PoolView>(settle(pool.input, pool.memory, now).view));
    return decide(snapshot);
}

class Judging {
public:
    Judging(const Rule& rule, const std::vector<PoolNow>& pools, Foresight& out) : rule_(rule), out_(out) {
        for (const auto& pool : pools)
            for (const auto& member : pool.input.members) capacity_[member.spec.name] = member.spec.capacity;
    }

    void run() {
        for (std::size_t at = 0; at < out_.after.answers.size(); ++at) judge(out_.after.answers[at], out_.shares_after[at]);
        if (!against_.empty()) {
            out_.verdict = Foresight::Verdict::unsafe;
            out_.why = std::move(against_);
        } else if (!unknown_.empty()) {
            out_.verdict = Foresight::Verdict::unknown;
            out_.why = std::move(unknown_);
        } else {
            out_.verdict = Foresight::Verdict::safe;
            out_.why = {fmt::format("every member that answers can carry its share of {}", rule_.demand)};
        }
    }

private:
    void judge(const Answer& answer, const Shares& shares) {
        const auto who = answer.clients.empty() ? std::string() : fmt::format(" for {}", answer.clients);
        if (answer.panic) return against(fmt::format("no pool would be usable{}: the name would be in PANIC", who));
        if (answer.candidates.empty()) return against(fmt::format("nothing would be answered{}", who));
        if (rule_.demand <= 0)
            return unknown(fmt::format("how much is wanted is not known: set spec.demand of LoadBalancer {}", rule_.name));
        for (const auto& [member, share] : shares.by_member) {
            const auto capacity = capacity_[member];
            const auto load = share * rule_.demand;
            if (capacity <= 0)
                unknown(fmt::format("what {} can carry is not known: set spec.capacity of Member {}", member, member));
            else if (load > capacity * (1 + 1e-9))
                against(fmt::format("{} would get {:.1f} of {}{}, and can carry {}", member, load, rule_.demand, who, capacity));
        }
    }
    void against(std::string words) { add(against_, std::move(words)); }
    void unknown(std::string words) { add(unknown_, std::move(words)); }
    static void add(std::vector<std::string>& to, std::string words) {
        if (std::find(to.begin(), to.end(), words) == to.end()) to.push_back(std::move(words));
    }

    const Rule& rule_;
    Foresight& out_;
    std::map<std::string, double> capacity_;
    std::vector<std::string> against_, unknown_;
};

} // namespace

FailoverTime worst_failover(const Rule& rule, const std::map<std::string, std::vector<MonitorSpec>>& monitors,
                            Duration publication) {
    FailoverTime out;
    out.publication = publication;
    out.bounded = true;
    std::vector<std::string> unwatched;
    std::optional<Duration> quickest_change;
    for (const auto& [member, watching] : monitors) {
        if (watching.empty()) unwatched.push_back(member);
        for (const auto& monitor : watching) {
            out.detection = std::max(out.detection, monitor.slowest());
            const Duration change = monitor.between() * monitor.fall;
            quickest_change = quickest_change ? std::min(*quickest_change, change) : change;
        }
    }
    // While all is well an answer lives as long as nothing can change, within what the rule allows.
    const Duration most = std::chrono::seconds(rule.ttl_max), least = std::chrono::seconds(rule.ttl_min);
    out.ttl = quickest_change ? std::clamp(*quickest_change, least, most) : most;
    if (!unwatched.empty()) {
        out.bounded = false;
        if (unwatched.size() > 5) {
            const auto more = unwatched.size() - 5;
            unwatched.resize(5);
            unwatched.push_back(fmt::format("{} more", more));
        }
        out.warnings.push_back(
            fmt::format("a failure of {} is never seen, because no monitor watches there: set spec.monitors of the pool",
                        fmt::join(unwatched, ", ")));
    }
    if (out.bounded && out.ttl > out.detection + out.publication && out.ttl > least_sensible_ttl)
        out.warnings.push_back(
            fmt::format("resolvers keep an answer for {}, longer than it takes to see a failure and to publish ({}): "
                        "lower spec.ttl.max",
                        to_text(out.ttl), to_text(out.detection + out.publication)));
    if (rule.failover_within && (!out.bounded || out.total() > *rule.failover_within)) {
        const auto left = *rule.failover_within - out.detection - out.publication;
        const auto remedy =
            left >= std::chrono::seconds(1)
                ? fmt::format("set spec.ttl.max to {} or less", to_text(std::chrono::floor<std::chrono::seconds>(left)))
                : "shorten the monitors' interval or lower their fall: the TTL alone cannot make up for it";
        out.warnings.push_back(out.bounded
                                   ? fmt::format("clients may take {} to leave an address that failed, and spec.failover_within "
                                                 "says {}: {}",
                                                 to_text(out.total()), to_text(*rule.failover_within), remedy)
                                   : fmt::format("spec.failover_within says {}, which cannot be held while failures go unseen",
                                                 to_text(*rule.failover_within)));
    }
    return out;
}

json::object FailoverTime::to_json() const {
    json::object out{{"bounded", bounded}};
    if (bounded) out["worst"] = to_text(total());
    out["detection"] = to_text(detection);
    out["publication"] = to_text(publication);
    out["ttl"] = to_text(ttl);
    if (!warnings.empty()) out["warnings"] = to_array(warnings);
    return out;
}

void apply(const Hypothesis& change, PoolInput& pool) {
    if (change.drained_pools.contains(pool.spec.name)) pool.spec.override_ = {.what = Override::What::drain, .reason = "what if"};
    for (auto& member : pool.members) {
        if (change.drained_members.contains(member.spec.name))
            member.spec.override_ = {.what = Override::What::drain, .reason = "what if"};
        if (!change.down_members.contains(member.spec.name)) continue;
        if (member.signal.monitored) {
            member.signal.standing = Health::down;
            member.signal.words = "what if";
        } else {
            member.spec.override_ = {.what = Override::What::down, .reason = "what if"};
        }
    }
}

Result<Foresight> foresee(const Rule& rule, const std::vector<PoolNow>& pools, const Memory& memory, const Hypothesis& change,
                          WallTime now) {
    std::set<std::string> known_pools, known_members;
    for (const auto& pool : pools) {
        known_pools.insert(pool.input.spec.name);
        for (const auto& member : pool.input.members) known_members.insert(member.spec.name);
    }
    for (const auto& pool : change.drained_pools)
        if (!known_pools.contains(pool))
            return Error{Code::invalid, fmt::format("pool {} has no part in LoadBalancer {}", pool, rule.name),
                         fmt::format("its pools are {}", fmt::join(known_pools, ", "))};
    for (const auto* members : {&change.drained_members, &change.down_members})
        for (const auto& member : *members)
            if (!known_members.contains(member))
                return Error{Code::invalid, fmt::format("member {} has no part in LoadBalancer {}", member, rule.name),
                             "see: orrery get members"};
    auto changed = pools;
    for (auto& pool : changed) apply(change, pool.input);
    Foresight out;
    out.before = decided(rule, pools, memory, now);
    out.after = decided(rule, changed, memory, now);
    for (const auto& answer : out.before.answers) out.shares_before.push_back(predict(answer));
    for (const auto& answer : out.after.answers) out.shares_after.push_back(predict(answer));
    Judging(rule, changed, out).run();
    return out;
}

std::string_view name_of(Foresight::Verdict verdict) {
    switch (verdict) {
    case Foresight::Verdict::safe: return "safe";
    case Foresight::Verdict::unsafe: return "unsafe";
    case Foresight::Verdict::unknown: return "unknown";
    }
    return "unknown";
}

json::object Foresight::to_json() const {
    const auto shares = [](const std::vector<Shares>& all) {
        json::array out;
        for (const auto& one : all) out.emplace_back(one.to_json());
        return out;
    };
    auto then = after.to_json();
    then["because"] = to_array(after.because);
    json::array withheld;
    for (const auto& one : after.withheld) withheld.emplace_back(one.to_json());
    if (!withheld.empty()) then["withheld"] = std::move(withheld);
    return {{"verdict", name_of(verdict)},
            {"why", to_array(why)},
            {"before", before.to_json()},
            {"after", std::move(then)},
            {"shares_before", shares(shares_before)},
            {"shares_after", shares(shares_after)}};
}

} // namespace orrery::gslb
