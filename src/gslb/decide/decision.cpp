#include "gslb/decide/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace orrery::gslb {

namespace {

/// Pools that answer together; the first step with a usable pool answers.
using Step = std::vector<const PoolView*>;

struct Candidates {
    std::vector<AnswerMember> serving;
    std::vector<double> weights;
};

/// Scales weights to whole numbers of at most `max_weight`; a positive weight stays positive.
void set_weights(Candidates& candidates) {
    double largest = 0;
    bool whole = true;
    for (const auto weight : candidates.weights) {
        largest = std::max(largest, weight);
        whole = whole && weight == std::floor(weight);
    }
    double scale = 1;
    if (largest > max_weight || (!whole && largest > 0)) scale = max_weight / largest;
    for (std::size_t at = 0; at < candidates.weights.size(); ++at) {
        const auto weight = candidates.weights[at] * scale;
        candidates.serving[at].weight = weight <= 0 ? 0 : static_cast<std::uint32_t>(std::max(1.0, std::round(weight)));
    }
}

class DecisionBuilder {
public:
    explicit DecisionBuilder(const Snapshot& snapshot) : in_(snapshot), spec_(snapshot.spec) {}

    Decision run() {
        if (!spec_.geo_source.empty()) add_message(spec_.geo_source);
        for (const auto& use : spec_.pools) {
            const auto* pool = find(use.pool);
            if (pool == nullptr) {
                add_message(fmt::format("pool {} does not exist", use.pool));
                continue;
            }
            auto state = is_usable(*pool);
            add_message(fmt::format("pool {} is {}: {}", pool->name, state.usable ? "usable" : "not usable", state.message));
            for (const auto& member : pool->members)
                if (!member.message.empty()) add_message(fmt::format("{} in {}: {}", member.name, pool->name, member.message));
            usable_.emplace(pool->name, state.usable);
            usable_with_held_.emplace(pool->name, is_usable(*pool, true).usable);
        }
        for (const auto& use : spec_.pools)
            if (usable_.contains(use.pool)) trust(use.pool);
        answer_class({});
        for (const auto& one : spec_.classes) answer_class(one);
        return std::move(out_);
    }

private:
    void add_message(std::string message) {
        if (std::find(out_.messages.begin(), out_.messages.end(), message) == out_.messages.end())
            out_.messages.push_back(std::move(message));
    }
    void evaluate_by(WallTime at) {
        if (!out_.next_evaluation || at < *out_.next_evaluation) out_.next_evaluation = at;
    }
    const PoolView* find(std::string_view name) const {
        for (const auto& pool : in_.pools)
            if (pool->name == name) return pool.get();
        return nullptr;
    }

    /// Whether clients may use a pool, by the failback policy.
    void trust(const std::string& pool) {
        bool trusted = usable_[pool];
        if (spec_.failback != Failback::automatic) {
            const auto known = in_.state.left.find(pool);
            if (!usable_[pool]) {
                auto left = known == in_.state.left.end() ? LoadBalancerState::Left{.since = in_.time} : known->second;
                left.back.reset();
                out_.state.left[pool] = left;
            } else if (known != in_.state.left.end()) {
                auto left = known->second;
                if (!left.back) left.back = in_.time;
                trusted = returns(pool, left);
                if (!trusted) out_.state.left[pool] = left;
            }
        }
        trusted_[pool] = trusted;
    }

    bool returns(const std::string& pool, const LoadBalancerState::Left& left) {
        if (spec_.failback_approved && *spec_.failback_approved >= left.since && *spec_.failback_approved <= in_.time) return true;
        if (spec_.failback == Failback::manual) {
            waiting_[pool] = {
                Cause::failback, pool,
                fmt::format("pool {} is usable again since {}; clients return after an approval", pool, to_rfc3339(*left.back)),
                std::nullopt};
            return false;
        }
        const auto due = *left.back + std::chrono::duration_cast<std::chrono::milliseconds>(spec_.failback_after);
        if (due <= in_.time) return true;
        waiting_[pool] = {Cause::failback, pool,
                          fmt::format("pool {} is usable again since {}; clients return after {}", pool, to_rfc3339(*left.back),
                                      to_text(spec_.failback_after)),
                          due};
        return false;
    }

    std::vector<Step> default_steps() const {
        std::vector<Step> out;
        for (const bool passive : {false, true}) {
            Step together;
            for (const auto& use : spec_.pools) {
                const auto* pool = find(use.pool);
                if (pool == nullptr || use.passive != passive) continue;
                if (spec_.steering == Steering::spread)
                    together.push_back(pool);
                else
                    out.push_back({pool});
            }
            if (!together.empty()) out.push_back(std::move(together));
        }
        return out;
    }

    std::vector<Step> steps_of(const ClientClass& clients) {
        auto usual = default_steps();
        if (spec_.steering == Steering::latency && !clients.vantage.empty()) return by_latency(clients, std::move(usual));
        if (clients.pools.empty()) return usual;
        std::vector<Step> out;
        std::set<const PoolView*> taken;
        for (const auto& name : clients.pools)
            if (const auto* pool = find(name); pool != nullptr && taken.insert(pool).second) out.push_back({pool});
        if (!clients.strict)
            for (auto& step : usual)
                if (!taken.contains(step.front())) out.push_back(std::move(step));
        return out;
    }

    bool is_passive(const PoolView* pool) const {
        return std::any_of(spec_.pools.begin(), spec_.pools.end(),
                           [&](const auto& use) { return use.pool == pool->name && use.passive; });
    }

    /// The active pools by measured round-trip time, then the others. The leading pool keeps leading until another is better by
    /// more than the dead band, so that two pools of similar distance do not alternate.
    std::vector<Step> by_latency(const ClientClass& clients, std::vector<Step> usual) {
        const auto ms = [&](const Step& step) -> std::optional<double> {
            const auto found = step.front()->rtt.find(clients.vantage);
            return found == step.front()->rtt.end() ? std::nullopt : std::optional(found->second);
        };
        const auto rank = [&](const Step& step) { return is_passive(step.front()) ? 2 : ms(step) ? 0 : 1; };
        std::vector<std::tuple<int, double, std::size_t>> order; // equal pools stay in the order of the spec
        for (std::size_t at = 0; at < usual.size(); ++at)
            order.emplace_back(rank(usual[at]), rank(usual[at]) == 0 ? *ms(usual[at]) : 0, at);
        std::sort(order.begin(), order.end());
        std::vector<Step> sorted;
        for (const auto& [ranked, measured, at] : order) sorted.push_back(std::move(usual[at]));
        usual = std::move(sorted);
        if (usual.empty() || rank(usual.front()) != 0) return usual;
        const auto known = in_.state.leading.find(clients.label);
        if (known != in_.state.leading.end() && known->second != usual.front().front()->name) {
            const auto led =
                std::find_if(usual.begin(), usual.end(), [&](const Step& step) { return step.front()->name == known->second; });
            if (led != usual.end() && rank(*led) == 0) {
                const auto best = *ms(usual.front()), now = *ms(*led);
                const auto band =
                    std::max(std::chrono::duration<double, std::milli>(spec_.dead_band).count(), now * spec_.dead_band_share / 100);
                if (now - best <= band) {
                    out_.withheld.push_back(
                        {Cause::dead_band, clients.label,
                         fmt::format(
                             "for {} pool {} has {} ms and {} has {} ms, which is within the dead band of {:.1f} ms: {} stays",
                             clients.label, usual.front().front()->name, best, known->second, now, band, known->second),
                         std::nullopt});
                    std::rotate(usual.begin(), led, led + 1);
                }
            }
        }
        out_.state.leading[clients.label] = usual.front().front()->name;
        return usual;
    }

    void answer_class(const ClientClass& clients) {
        Answer answer{.clients = clients.label, .policy = spec_.answers, .max_answers = spec_.max_answers, .ttl = spec_.ttl_max};
        if (spec_.answers == Answers::sticky_by_name && !spec_.fqdn.starts_with("*.")) answer.name = spec_.fqdn;
        const auto steps = steps_of(clients);
        const auto chosen = choose(steps);
        const auto who = clients.label.empty() ? std::string() : fmt::format(" for {}", clients.label);
        Condition condition = Condition::normal;
        if (chosen) {
            Step good;
            for (const auto* pool : steps[*chosen])
                if (usable_[pool->name] && (trusted_[pool->name] || !any_trusted(steps[*chosen]))) good.push_back(pool);
            if (good.empty())
                for (const auto* pool : steps[*chosen])
                    if (usable_with_held_[pool->name]) good.push_back(pool);
            fill(answer, good);
            for (const auto* pool : good)
                if (is_all_shed(*pool))
                    add_message(
                        fmt::format("the load of every healthy member of {} leaves no weight: they share equally", pool->name));
            // Clients use these pools, so they have returned, also if no other pool could answer.
            for (const auto* pool : good) out_.state.left.erase(pool->name);
            if (*chosen > 0 || good.size() < steps[*chosen].size()) condition = Condition::failover;
            add_message(
                fmt::format("{} {}{}", fmt::join(answer.pools, " and "), answer.pools.size() == 1 ? "answers" : "answer", who));
            if (spec_.all_down == AllDown::last_good) out_.state.last_good[clients.label] = answer.candidates;
            set_ttl(answer, steps, *chosen);
            // A failback is withheld only for pools that would answer instead.
            for (std::size_t at = 0; at <= *chosen; ++at)
                for (const auto* pool : steps[at])
                    if (const auto held = waiting_.find(pool->name);
                        held != waiting_.end() && std::find(good.begin(), good.end(), pool) == good.end())
                        withhold(held->second);
        } else {
            condition = all_down(answer, steps, clients, who);
        }
        if (condition > out_.condition) out_.condition = condition;
        out_.answers.push_back(std::move(answer));
    }

    void withhold(const Withheld& held) {
        if (std::find(out_.withheld.begin(), out_.withheld.end(), held) != out_.withheld.end()) return;
        out_.withheld.push_back(held);
        if (held.until) evaluate_by(*held.until);
    }

    bool any_trusted(const Step& step) {
        return std::any_of(step.begin(), step.end(), [this](const auto* pool) { return trusted_[pool->name]; });
    }

    std::optional<std::size_t> choose(const std::vector<Step>& steps) {
        for (std::size_t at = 0; at < steps.size(); ++at)
            if (any_trusted(steps[at])) return at;
        // No pool is trusted: an early failback is better than no answer.
        for (std::size_t at = 0; at < steps.size(); ++at)
            if (std::any_of(steps[at].begin(), steps[at].end(), [this](const auto* pool) { return usable_[pool->name]; }))
                return at;
        // Members that the default guard holds in answer only if no pool is usable without them.
        for (std::size_t at = 0; at < steps.size(); ++at)
            if (std::any_of(steps[at].begin(), steps[at].end(), [this](const auto* pool) { return usable_with_held_[pool->name]; }))
                return at;
        return std::nullopt;
    }

    static bool is_all_shed(const PoolView& pool) {
        bool some = false;
        for (const auto& member : pool.members) {
            if (!member.healthy || member.drained || member.weight == 0) continue;
            if (member.load > 0) return false;
            some = true;
        }
        return some;
    }

    std::uint32_t weight_of(const PoolView* pool) const {
        for (const auto& use : spec_.pools)
            if (use.pool == pool->name) return use.weight;
        return 1;
    }

    /// Adds the members of these pools that match `takes`, with their weights.
    template <class Takes> void gather(Answer& answer, const Step& pools, Takes takes) const {
        Candidates all;
        for (const auto* pool : pools) {
            Candidates here;
            double sum = 0;
            for (const auto& member : pool->members) {
                if (member.addresses.empty() || !takes(member)) continue;
                here.serving.push_back({member.name, pool->name, member.addresses, 0, member.site, member.rack});
                // A weight of 100 at 50 % is 50; weights without load shedding stay unchanged.
                here.weights.push_back(member.load == 100 ? member.weight : member.weight * (member.load / 100.0));
                sum += here.weights.back();
            }
            if (here.serving.empty()) continue;
            answer.pools.push_back(pool->name);
            for (std::size_t at = 0; at < here.serving.size(); ++at) {
                // Weight 0: unused while another member has a weight.
                if (sum > 0 && here.weights[at] <= 0) continue;
                auto weight = sum > 0 ? here.weights[at] : 1.0;
                if (spec_.steering == Steering::spread)
                    weight = weight_of(pool) * weight / (sum > 0 ? sum : static_cast<double>(here.serving.size()));
                all.serving.push_back(std::move(here.serving[at]));
                all.weights.push_back(weight);
            }
        }
        set_weights(all);
        // A pool of weight 0 answers only without the others.
        const bool some = std::any_of(all.serving.begin(), all.serving.end(), [](const auto& one) { return one.weight > 0; });
        for (auto& one : all.serving) {
            if (some && one.weight == 0) continue;
            if (!some) one.weight = 1;
            answer.candidates.push_back(std::move(one));
        }
        if (answer.pools.size() > 1)
            std::erase_if(answer.pools, [&](const auto& pool) {
                return std::none_of(answer.candidates.begin(), answer.candidates.end(),
                                    [&](const auto& one) { return one.pool == pool; });
            });
    }

    void fill(Answer& answer, const Step& pools) const {
        gather(answer, pools, [](const MemberView& member) { return member.healthy && !member.drained; });
    }

    /// The TTL ends at the earliest possible change of the members involved, within the limits of the spec.
    void set_ttl(Answer& answer, const std::vector<Step>& steps, std::size_t chosen) const {
        std::optional<Duration> soonest;
        for (std::size_t at = 0; at <= chosen; ++at)
            for (const auto* pool : steps[at])
                for (const auto& member : pool->members)
                    if (member.until_change && !member.drained && !member.forced)
                        soonest = soonest ? std::min(*soonest, *member.until_change) : *member.until_change;
        if (!soonest) return;
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(*soonest).count();
        answer.ttl = static_cast<std::uint32_t>(std::clamp<std::int64_t>(seconds, spec_.ttl_min, spec_.ttl_max));
    }

    Condition all_down(Answer& answer, const std::vector<Step>& steps, const ClientClass& clients, const std::string& who) {
        answer.ttl = spec_.ttl_min;
        auto kept = in_.state.last_good.find(clients.label);
        if (kept != in_.state.last_good.end() && spec_.all_down == AllDown::last_good)
            out_.state.last_good[clients.label] = kept->second;
        switch (spec_.all_down) {
        case AllDown::last_good:
            if (kept != in_.state.last_good.end()) answer.candidates = still_there(kept->second);
            if (!answer.candidates.empty()) {
                answer.panic = true;
                for (const auto& one : answer.candidates)
                    if (std::find(answer.pools.begin(), answer.pools.end(), one.pool) == answer.pools.end())
                        answer.pools.push_back(one.pool);
                add_message(fmt::format("PANIC: no pool is usable{}; the last good answer stays", who));
                return Condition::panic;
            }
            return panic(answer, steps, who);
        case AllDown::healthy:
            for (const auto& step : steps) {
                fill(answer, step);
                if (answer.candidates.empty()) continue;
                answer.panic = true;
                add_message(fmt::format("PANIC: no pool is usable{}; the healthy members of {} that are left answer", who,
                                        fmt::join(answer.pools, " and ")));
                return Condition::panic;
            }
            return panic(answer, steps, who);
        case AllDown::all: return panic(answer, steps, who);
        case AllDown::fallback:
            answer.panic = true;
            answer.alias = spec_.fallback_alias;
            if (!spec_.fallback.empty())
                answer.candidates.push_back({.member = "fallback", .pool = "", .addresses = spec_.fallback});
            add_message(fmt::format("PANIC: no pool is usable{}; the fallback answers", who));
            return Condition::panic;
        case AllDown::nodata:
        case AllDown::servfail:
        case AllDown::refuse:
            answer.empty = spec_.all_down;
            add_message(fmt::format("no pool is usable{}; nothing is answered ({})", who, name_of(spec_.all_down)));
            return Condition::empty;
        }
        return Condition::empty;
    }

    /// The members of an earlier answer that still exist and have no override, with their present addresses.
    std::vector<AnswerMember> still_there(const std::vector<AnswerMember>& earlier) const {
        std::vector<AnswerMember> out;
        for (const auto& one : earlier) {
            const auto* pool = find(one.pool);
            if (pool == nullptr) continue;
            for (const auto& member : pool->members) {
                if (member.name != one.member || member.drained || (member.forced && !member.healthy)) continue;
                if (member.addresses.empty()) continue;
                out.push_back(one);
                out.back().addresses = member.addresses;
            }
        }
        return out;
    }

    /// Fails open: all members without an override, in the first pools that have such; otherwise all members with an address.
    Condition panic(Answer& answer, const std::vector<Step>& steps, const std::string& who) {
        for (const bool also_forced : {false, true})
            for (const auto& step : steps) {
                gather(answer, step, [&](const MemberView& member) {
                    return also_forced || (!member.drained && !(member.forced && !member.healthy));
                });
                if (answer.candidates.empty()) continue;
                answer.panic = true;
                add_message(fmt::format("PANIC: no pool is usable{}; all members of {} answer, whatever their health", who,
                                        fmt::join(answer.pools, " and ")));
                return Condition::panic;
            }
        add_message(fmt::format("there is no member with an address{}; nothing is answered", who));
        return Condition::empty;
    }

    const Snapshot& in_;
    const LoadBalancerSpec& spec_;
    Decision out_;
    std::map<std::string, bool> usable_, usable_with_held_, trusted_;
    std::map<std::string, Withheld> waiting_;
};

} // namespace

std::string_view name_of(Condition condition) {
    switch (condition) {
    case Condition::normal: return "normal";
    case Condition::failover: return "failover";
    case Condition::panic: return "panic";
    case Condition::empty: return "empty";
    }
    return "empty";
}

Condition condition_named(std::string_view name) {
    for (const auto one : {Condition::failover, Condition::panic, Condition::empty})
        if (name_of(one) == name) return one;
    return Condition::normal;
}

Usable is_usable(const PoolView& pool, bool with_held) {
    std::uint64_t total = 0, healthy = 0, counted = 0, healthy_count = 0, drained = 0;
    bool reserve = false, weighted_healthy = false;
    const bool weightless = std::all_of(pool.members.begin(), pool.members.end(), [](const auto& one) { return one.weight == 0; });
    for (const auto& member : pool.members) {
        if (member.drained) {
            ++drained;
            continue;
        }
        const std::uint64_t weight = weightless ? 1 : member.weight;
        total += weight;
        ++counted;
        if (!member.healthy || (member.held_in && !with_held)) continue;
        healthy += weight;
        ++healthy_count;
        reserve = reserve || weight == 0;
        weighted_healthy = weighted_healthy || weight > 0;
    }
    const auto aside = drained == 0 ? std::string() : fmt::format(", {} drained", drained);
    if (counted == 0) return {false, pool.members.empty() ? "it has no members" : fmt::format("all {} are drained", drained)};
    bool enough = false;
    std::string message;
    if (pool.min_healthy.share) {
        const auto needed = std::max<std::uint64_t>(1, (total * pool.min_healthy.value + 99) / 100);
        enough = healthy >= needed;
        const bool plain = total == counted;
        message = fmt::format("{} of {}{} healthy, needs {}{}", healthy, total, plain ? "" : " by weight", needed, aside);
    } else {
        const auto needed = std::max<std::uint64_t>(1, pool.min_healthy.value); // zero healthy members are never enough
        enough = healthy_count >= needed;
        message = fmt::format("{} of {} healthy, needs {}{}", healthy_count, counted, needed, aside);
    }
    // Members of weight 0 replace unhealthy ones.
    if (!enough && !weighted_healthy && reserve) return {true, message + "; members of weight 0 serve instead"};
    return {enough, std::move(message)};
}

Decision decide(const Snapshot& snapshot) { return DecisionBuilder(snapshot).run(); }

} // namespace orrery::gslb
