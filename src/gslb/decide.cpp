#include "gslb/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace orrery::gslb {

namespace {

/// Pools that are used together; the first step with a good pool answers.
using Step = std::vector<const PoolView*>;

struct Candidates {
    std::vector<Serving> serving;
    std::vector<double> weights;
};

/// Whole numbers in the same proportion, none greater than the greatest weight, none that was there gone.
void set_weights(Candidates& candidates) {
    double greatest = 0;
    bool whole = true;
    for (const auto weight : candidates.weights) {
        greatest = std::max(greatest, weight);
        whole = whole && weight == std::floor(weight);
    }
    double scale = 1;
    if (greatest > greatest_weight || (!whole && greatest > 0)) scale = greatest_weight / greatest;
    for (std::size_t at = 0; at < candidates.weights.size(); ++at) {
        const auto weight = candidates.weights[at] * scale;
        candidates.serving[at].weight = weight <= 0 ? 0 : static_cast<std::uint32_t>(std::max(1.0, std::round(weight)));
    }
}

class Deciding {
public:
    explicit Deciding(const Snapshot& snapshot) : in_(snapshot), rule_(snapshot.rule) {}

    Decision run() {
        if (!rule_.places.empty()) say(rule_.places);
        for (const auto& use : rule_.pools) {
            const auto* pool = find(use.pool);
            if (pool == nullptr) {
                say(fmt::format("pool {} does not exist", use.pool));
                continue;
            }
            auto state = is_usable(*pool);
            say(fmt::format("pool {} is {}: {}", pool->name, state.usable ? "usable" : "not usable", state.words));
            for (const auto& member : pool->members)
                if (!member.why.empty()) say(fmt::format("{} in {}: {}", member.name, pool->name, member.why));
            usable_.emplace(pool->name, state.usable);
        }
        for (const auto& use : rule_.pools)
            if (usable_.contains(use.pool)) trust(use.pool);
        answer_class({});
        for (const auto& one : rule_.classes) answer_class(one);
        return std::move(out_);
    }

private:
    void say(std::string words) {
        if (std::find(out_.because.begin(), out_.because.end(), words) == out_.because.end())
            out_.because.push_back(std::move(words));
    }
    void again(WallTime at) {
        if (!out_.look_again || at < *out_.look_again) out_.look_again = at;
    }
    const PoolView* find(std::string_view name) const {
        for (const auto& pool : in_.pools)
            if (pool->name == name) return pool.get();
        return nullptr;
    }

    /// Whether clients may be sent (back) to a pool, by what the rule says of returning.
    void trust(const std::string& pool) {
        bool trusted = usable_[pool];
        if (rule_.failback != Failback::automatic) {
            const auto known = in_.memory.left.find(pool);
            if (!usable_[pool]) {
                auto left = known == in_.memory.left.end() ? Memory::Left{.since = in_.time} : known->second;
                left.back.reset();
                out_.memory.left[pool] = left;
            } else if (known != in_.memory.left.end()) {
                auto left = known->second;
                if (!left.back) left.back = in_.time;
                trusted = returns(pool, left);
                if (!trusted) out_.memory.left[pool] = left;
            }
        }
        trusted_[pool] = trusted;
    }

    bool returns(const std::string& pool, const Memory::Left& left) {
        if (rule_.failback_approved && *rule_.failback_approved >= left.since && *rule_.failback_approved <= in_.time) return true;
        if (rule_.failback == Failback::manual) {
            waiting_[pool] = {"failback", pool,
                              fmt::format("pool {} is usable again since {}; clients return when somebody approves it", pool,
                                          to_rfc3339(*left.back)),
                              std::nullopt};
            return false;
        }
        const auto due = *left.back + std::chrono::duration_cast<std::chrono::milliseconds>(rule_.failback_after);
        if (due <= in_.time) return true;
        waiting_[pool] = {"failback", pool,
                          fmt::format("pool {} is usable again since {}; clients return after {} of that", pool,
                                      to_rfc3339(*left.back), to_text(rule_.failback_after)),
                          due};
        return false;
    }

    std::vector<Step> default_steps() const {
        std::vector<Step> out;
        for (const bool passive : {false, true}) {
            Step together;
            for (const auto& use : rule_.pools) {
                const auto* pool = find(use.pool);
                if (pool == nullptr || use.passive != passive) continue;
                if (rule_.steering == Steering::spread)
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
        if (rule_.steering == Steering::latency && !clients.vantage.empty()) return by_latency(clients, std::move(usual));
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
        return std::any_of(rule_.pools.begin(), rule_.pools.end(),
                           [&](const auto& use) { return use.pool == pool->name && use.passive; });
    }

    /// The active pools by what the vantage measures, the rest behind them. The one that leads goes on leading until another is
    /// better by more than the dead band, so that two of nearly the same distance do not take turns.
    std::vector<Step> by_latency(const ClientClass& clients, std::vector<Step> usual) {
        const auto ms = [&](const Step& step) -> std::optional<double> {
            const auto found = step.front()->rtt.find(clients.vantage);
            return found == step.front()->rtt.end() ? std::nullopt : std::optional(found->second);
        };
        const auto rank = [&](const Step& step) { return is_passive(step.front()) ? 2 : ms(step) ? 0 : 1; };
        std::vector<std::tuple<int, double, std::size_t>> order; // what is equal stays in the order of the rule
        for (std::size_t at = 0; at < usual.size(); ++at)
            order.emplace_back(rank(usual[at]), rank(usual[at]) == 0 ? *ms(usual[at]) : 0, at);
        std::sort(order.begin(), order.end());
        std::vector<Step> sorted;
        for (const auto& [ranked, measured, at] : order) sorted.push_back(std::move(usual[at]));
        usual = std::move(sorted);
        if (usual.empty() || rank(usual.front()) != 0) return usual;
        const auto known = in_.memory.leading.find(clients.label);
        if (known != in_.memory.leading.end() && known->second != usual.front().front()->name) {
            const auto led =
                std::find_if(usual.begin(), usual.end(), [&](const Step& step) { return step.front()->name == known->second; });
            if (led != usual.end() && rank(*led) == 0) {
                const auto best = *ms(usual.front()), now = *ms(*led);
                const auto band =
                    std::max(std::chrono::duration<double, std::milli>(rule_.dead_band).count(), now * rule_.dead_band_share / 100);
                if (now - best <= band) {
                    out_.withheld.push_back(
                        {"dead_band", clients.label,
                         fmt::format(
                             "for {} pool {} has {} ms and {} has {} ms, which is within the dead band of {:.1f} ms: {} stays",
                             clients.label, usual.front().front()->name, best, known->second, now, band, known->second),
                         std::nullopt});
                    std::rotate(usual.begin(), led, led + 1);
                }
            }
        }
        out_.memory.leading[clients.label] = usual.front().front()->name;
        return usual;
    }

    void answer_class(const ClientClass& clients) {
        Answer answer{.clients = clients.label, .picking = rule_.answers, .most = rule_.max_answers, .ttl = rule_.ttl_max};
        if (rule_.answers == Answers::sticky_by_name && !rule_.fqdn.starts_with("*.")) answer.name = rule_.fqdn;
        const auto steps = steps_of(clients);
        const auto chosen = choose(steps);
        const auto who = clients.label.empty() ? std::string() : fmt::format(" for {}", clients.label);
        Condition condition = Condition::normal;
        if (chosen) {
            Step good;
            for (const auto* pool : steps[*chosen])
                if (usable_[pool->name] && (trusted_[pool->name] || !any_trusted(steps[*chosen]))) good.push_back(pool);
            fill(answer, good);
            // Where clients are, they have returned: also where nobody else could answer, or nobody had answered before.
            for (const auto* pool : good) out_.memory.left.erase(pool->name);
            if (*chosen > 0 || good.size() < steps[*chosen].size()) condition = Condition::failover;
            say(fmt::format("{} {}{}", fmt::join(answer.pools, " and "), answer.pools.size() == 1 ? "answers" : "answer", who));
            if (rule_.all_down == AllDown::last_good) out_.memory.last_good[clients.label] = answer.candidates;
            set_ttl(answer, steps, *chosen);
            // Only what would answer in place of what does is held back from anybody.
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
        if (held.until) again(*held.until);
    }

    bool any_trusted(const Step& step) {
        return std::any_of(step.begin(), step.end(), [this](const auto* pool) { return trusted_[pool->name]; });
    }

    std::optional<std::size_t> choose(const std::vector<Step>& steps) {
        for (std::size_t at = 0; at < steps.size(); ++at)
            if (any_trusted(steps[at])) return at;
        // Nobody is trusted: one that is back too early is better than none.
        for (std::size_t at = 0; at < steps.size(); ++at)
            if (std::any_of(steps[at].begin(), steps[at].end(), [this](const auto* pool) { return usable_[pool->name]; }))
                return at;
        return std::nullopt;
    }

    std::uint32_t weight_of(const PoolView* pool) const {
        for (const auto& use : rule_.pools)
            if (use.pool == pool->name) return use.weight;
        return 1;
    }

    /// The members of these pools that `takes` lets in, with their weights.
    template <class Takes> void gather(Answer& answer, const Step& pools, Takes takes) const {
        Candidates all;
        for (const auto* pool : pools) {
            Candidates here;
            double sum = 0;
            for (const auto& member : pool->members) {
                if (member.addresses.empty() || !takes(member)) continue;
                here.serving.push_back({member.name, pool->name, member.addresses, 0, member.site, member.rack});
                // A weight of 100 and a load of 50 % are 50: what a pool without loads has is left alone.
                here.weights.push_back(member.load == 100 ? member.weight : member.weight * (member.load / 100.0));
                sum += here.weights.back();
            }
            if (here.serving.empty()) continue;
            answer.pools.push_back(pool->name);
            for (std::size_t at = 0; at < here.serving.size(); ++at) {
                // Nothing goes to a weight of 0 while there is another.
                if (sum > 0 && here.weights[at] <= 0) continue;
                auto weight = sum > 0 ? here.weights[at] : 1.0;
                if (rule_.steering == Steering::spread)
                    weight = weight_of(pool) * weight / (sum > 0 ? sum : static_cast<double>(here.serving.size()));
                all.serving.push_back(std::move(here.serving[at]));
                all.weights.push_back(weight);
            }
        }
        set_weights(all);
        // A pool of weight 0 is there for when the others are not.
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

    /// No answer may live longer than the soonest change among those it rests on, within what the rule allows.
    void set_ttl(Answer& answer, const std::vector<Step>& steps, std::size_t chosen) const {
        std::optional<Duration> soonest;
        for (std::size_t at = 0; at <= chosen; ++at)
            for (const auto* pool : steps[at])
                for (const auto& member : pool->members)
                    if (member.until_change && !member.drained && !member.forced)
                        soonest = soonest ? std::min(*soonest, *member.until_change) : *member.until_change;
        if (!soonest) return;
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(*soonest).count();
        answer.ttl = static_cast<std::uint32_t>(std::clamp<std::int64_t>(seconds, rule_.ttl_min, rule_.ttl_max));
    }

    Condition all_down(Answer& answer, const std::vector<Step>& steps, const ClientClass& clients, const std::string& who) {
        answer.ttl = rule_.ttl_min;
        auto kept = in_.memory.last_good.find(clients.label);
        if (kept != in_.memory.last_good.end() && rule_.all_down == AllDown::last_good)
            out_.memory.last_good[clients.label] = kept->second;
        switch (rule_.all_down) {
        case AllDown::last_good:
            if (kept != in_.memory.last_good.end() && !kept->second.empty()) {
                answer.panic = true;
                answer.candidates = kept->second;
                for (const auto& one : answer.candidates)
                    if (std::find(answer.pools.begin(), answer.pools.end(), one.pool) == answer.pools.end())
                        answer.pools.push_back(one.pool);
                say(fmt::format("PANIC: no pool is usable{}; the last good answer stays", who));
                return Condition::panic;
            }
            [[fallthrough]];
        case AllDown::all: return panic(answer, steps, who);
        case AllDown::fallback:
            answer.panic = true;
            answer.alias = rule_.fallback_alias;
            if (!rule_.fallback.empty())
                answer.candidates.push_back({.member = "fallback", .pool = "", .addresses = rule_.fallback});
            say(fmt::format("PANIC: no pool is usable{}; the fallback answers", who));
            return Condition::panic;
        case AllDown::nodata:
        case AllDown::servfail:
        case AllDown::refuse:
            answer.empty = rule_.all_down;
            say(fmt::format("no pool is usable{}; nothing is answered ({})", who, name_of(rule_.all_down)));
            return Condition::empty;
        }
        return Condition::empty;
    }

    /// Fails open: everybody whom nobody took out by hand, in the first pools that have such members; else whoever has an address.
    Condition panic(Answer& answer, const std::vector<Step>& steps, const std::string& who) {
        for (const bool also_forced : {false, true})
            for (const auto& step : steps) {
                gather(answer, step, [&](const MemberView& member) {
                    return also_forced || (!member.drained && !(member.forced && !member.healthy));
                });
                if (answer.candidates.empty()) continue;
                answer.panic = true;
                say(fmt::format("PANIC: no pool is usable{}; all members of {} answer, whatever their health", who,
                                fmt::join(answer.pools, " and ")));
                return Condition::panic;
            }
        say(fmt::format("there is no member with an address{}; nothing is answered", who));
        return Condition::empty;
    }

    const Snapshot& in_;
    const Rule& rule_;
    Decision out_;
    std::map<std::string, bool> usable_, trusted_;
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

Usable is_usable(const PoolView& pool) {
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
        if (!member.healthy) continue;
        healthy += weight;
        ++healthy_count;
        reserve = reserve || weight == 0;
        weighted_healthy = weighted_healthy || weight > 0;
    }
    const auto aside = drained == 0 ? std::string() : fmt::format(", {} drained", drained);
    if (counted == 0) return {false, pool.members.empty() ? "it has no members" : fmt::format("all {} are drained", drained)};
    bool enough = false;
    std::string words;
    if (pool.min_healthy.share) {
        const auto needed = (total * pool.min_healthy.value + 99) / 100;
        enough = healthy >= needed && healthy_count > 0;
        const bool plain = total == counted;
        words = fmt::format("{} of {}{} healthy, needs {}{}", healthy, total, plain ? "" : " by weight", needed, aside);
    } else {
        enough = healthy_count >= pool.min_healthy.value && healthy_count > 0;
        words = fmt::format("{} of {} healthy, needs {}{}", healthy_count, counted, pool.min_healthy.value, aside);
    }
    // Members of weight 0 stand in when nobody else can.
    if (!enough && !weighted_healthy && reserve) return {true, words + "; members of weight 0 stand in"};
    return {enough, std::move(words)};
}

Decision decide(const Snapshot& snapshot) { return Deciding(snapshot).run(); }

} // namespace orrery::gslb
