#include "gslb/decide/pool_evaluation.h"

#include "gslb/decide/mass_failure_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::gslb {

namespace {

void sooner(std::optional<WallTime>& at, WallTime than) {
    if (!at || than < *at) at = than;
}

WallTime after(WallTime from, Duration by) { return from + std::chrono::duration_cast<std::chrono::milliseconds>(by); }

std::string override_message(std::string_view action, const Override& by) {
    std::string out(action);
    if (!by.by.empty()) out += " by " + by.by;
    if (by.until) out += " until " + to_rfc3339(*by.until);
    if (!by.reason.empty()) out += ": " + by.reason;
    return out;
}

/// Withdrawals of one member that are stored: more do not prolong its hold.
constexpr std::size_t max_flaps = 64;

/// Full weight up to `low`, none from `high` on, linear in between.
std::uint32_t percent_at_load(const PoolSpec::Load& rule, double load) {
    if (load <= rule.low) return 100;
    if (load >= rule.high) return 0;
    return static_cast<std::uint32_t>(std::lround(100 * (rule.high - load) / (rule.high - rule.low)));
}

class PoolEvaluator {
public:
    PoolEvaluator(const PoolInput& pool, const PoolState& before, WallTime now)
        : pool_(pool), before_(before), now_(now), guard_(pool.spec.guard, pool.members.size(), before.recently, now) {}

    PoolEvaluation run() {
        out_.view.name = pool_.spec.name;
        out_.view.location = pool_.spec.location;
        out_.view.min_healthy = pool_.spec.min_healthy;
        for (const auto& member : pool_.members) out_.view.members.push_back(evaluate_member(member));
        out_.state.recently = guard_.withdrawals();
        if (const auto at = guard_.next_release()) sooner(out_.next_evaluation, *at);
        measure();
        return std::move(out_);
    }

private:
    MemberView evaluate_member(const MemberInput& member) {
        MemberView view{.name = member.spec.name,
                        .addresses = member.addresses,
                        .weight = member.spec.weight,
                        .site = member.site,
                        .rack = member.rack,
                        .capacity = member.spec.capacity};
        const auto& own = member.spec.override_;
        const auto& pools = pool_.spec.override_;
        for (const auto* each : {&own, &pools})
            if (each->holds(now_) && each->until) sooner(out_.next_evaluation, *each->until);
        const auto load = shed(member, view);
        judge(member, view);
        if (!load.empty()) view.message += (view.message.empty() ? "" : "; ") + load;
        return view;
    }

    void judge(const MemberInput& member, MemberView& view) {
        const auto& own = member.spec.override_;
        const auto& pools = pool_.spec.override_;
        if (member.addresses.empty()) {
            view.message = member.no_address.empty() ? "it has no address" : member.no_address;
            return;
        }
        if (own.holds(now_)) return forced(view, own, "");
        if (pools.holds(now_)) return forced(view, pools, "the pool is ");
        evaluate_health(member, view);
    }

    static void forced(MemberView& view, const Override& by, std::string_view who) {
        view.forced = true;
        view.healthy = by.action == Override::Action::up;
        view.drained = by.action == Override::Action::drain;
        const auto* action = view.healthy ? "held up" : view.drained ? "drained" : "taken down";
        view.message = override_message(fmt::format("{}{}", who, action), by);
    }

    void evaluate_health(const MemberInput& member, MemberView& view) {
        const auto& health = member.health;
        if (!health.monitored) {
            view.healthy = true;
            return;
        }
        view.until_change = health.until_change;
        if (health.drains && health.state != HealthState::down) {
            view.drained = true;
            view.message = health.message.empty() ? "it drains" : health.message;
            return;
        }
        if (health.share && view.weight > 1)
            view.weight = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(std::lround(view.weight * *health.share)));
        view.healthy = health.state == HealthState::unknown ? pool_.spec.unknown_is_up : health.state != HealthState::down;
        view.message = health.message;
        if (health.state == HealthState::unknown)
            view.message = fmt::format("nothing is known yet, which counts as {}", view.healthy ? "up" : "down");
        if (!health.unchecked.empty())
            view.message = fmt::format("it cannot be checked: {}; it counts as {}", health.unchecked, view.healthy ? "up" : "down");
        if (health.stale && health.unchecked.empty())
            view.message += view.message.empty() ? "as before the restart" : ", as before the restart";
        if (view.healthy && health.unconfirmed)
            out_.withheld.push_back({health.unconfirmed->cause, view.name, health.unconfirmed->message, std::nullopt});
        if (view.healthy) {
            hold_down(view);
            if (view.healthy && before_.withdrawn.contains(view.name)) guard_.returned();
            return;
        }
        if (before_.withdrawn.contains(view.name)) {
            out_.state.withdrawn.insert(view.name);
            record_flaps(view.name, false);
            return;
        }
        if (auto hold = guard_.hold(view.name, health)) {
            view.healthy = true;
            view.held_in = !pool_.spec.guard.given;
            view.message = hold->message;
            out_.withheld.push_back(std::move(*hold));
            return;
        }
        out_.state.withdrawn.insert(view.name);
        record_flaps(view.name, true);
    }

    /// Carries over the recent withdrawals of a member; `now` adds one.
    PoolState::Flap* record_flaps(const std::string& name, bool now) {
        const auto& rule = pool_.spec.hold_down;
        if (!rule) return nullptr;
        PoolState::Flap flap;
        if (const auto known = before_.flaps.find(name); known != before_.flaps.end())
            for (const auto at : known->second.withdrawals)
                if (after(at, rule->window) > now_) flap.withdrawals.push_back(std::min(at, now_));
        if (now) flap.withdrawals.push_back(now_);
        if (flap.withdrawals.size() > max_flaps) flap.withdrawals.erase(flap.withdrawals.begin());
        if (flap.withdrawals.empty()) return nullptr;
        return &(out_.state.flaps[name] = std::move(flap));
    }

    /// A member that was withdrawn often within the window returns only after it was healthy for the hold time.
    void hold_down(MemberView& view) {
        const auto& rule = pool_.spec.hold_down;
        const auto known = before_.flaps.find(view.name);
        auto* flap = record_flaps(view.name, false);
        if (flap == nullptr || flap->withdrawals.size() < rule->changes || !before_.withdrawn.contains(view.name)) return;
        auto until = known->second.held_until;
        if (!until) {
            const auto doublings = std::min<std::size_t>(flap->withdrawals.size() - rule->changes, 20);
            until = after(now_, std::min<Duration>(rule->hold * (1 << doublings), rule->max_hold));
        }
        if (*until <= now_) return;
        flap->held_until = until;
        view.healthy = false;
        out_.state.withdrawn.insert(view.name);
        view.message = fmt::format("up by its probes, but held down: withdrawn {} times within {}", flap->withdrawals.size(),
                                   to_text(rule->window));
        out_.withheld.push_back({Cause::flap_hold, view.name, view.message, until});
        sooner(out_.next_evaluation, *until);
    }

    /// Sheds load: reduces the weight by the reported load, in steps. Returns a message, or "" for full weight.
    std::string shed(const MemberInput& member, MemberView& view) {
        const auto& rule = pool_.spec.load;
        if (!rule) return {};
        PoolState::Load state;
        if (const auto known = before_.load.find(view.name); known != before_.load.end()) state = known->second;
        // A missing load is no evidence: the weight stays. An expired load gives the weight back.
        const auto target = member.health.load           ? percent_at_load(*rule, *member.health.load)
                            : member.health.load_expired ? 100
                                                         : state.percent;
        if (target != state.percent) {
            const auto due = state.changed == WallTime{} ? now_ : after(state.changed, rule->interval);
            if (due <= now_) {
                const auto gap = target > state.percent ? target - state.percent : state.percent - target;
                const auto step = std::min(gap, std::max<std::uint32_t>(rule->step, 1));
                state.percent = target > state.percent ? state.percent + step : state.percent - step;
                state.changed = now_;
                state.load = member.health.load.value_or(0);
            }
            if (target != state.percent) sooner(out_.next_evaluation, after(state.changed, rule->interval));
        }
        view.load = state.percent;
        if (state.percent != 100 || (state.changed != WallTime{} && after(state.changed, rule->interval) > now_))
            out_.state.load.emplace(view.name, state);
        if (state.percent == 100) return {};
        const auto cause = member.health.load_expired
                               ? std::string("a load that has expired")
                               : fmt::format("load {:g} (from {:g} to {:g})", state.load, rule->low, rule->high);
        return fmt::format("{} leaves it {} % of its weight", cause, state.percent);
    }

    void measure() {
        std::map<std::string, std::pair<double, int>> sums;
        for (std::size_t at = 0; at < pool_.members.size(); ++at)
            if (out_.view.members[at].healthy)
                for (const auto& [vantage, ms] : pool_.members[at].health.rtt) {
                    sums[vantage].first += ms;
                    ++sums[vantage].second;
                }
        for (const auto& [vantage, sum] : sums) out_.view.rtt.emplace(vantage, std::round(10 * sum.first / sum.second) / 10);
    }

    const PoolInput& pool_;
    const PoolState& before_;
    WallTime now_;
    MassFailureGuard guard_;
    PoolEvaluation out_;
};

} // namespace

PoolEvaluation evaluate_pool(const PoolInput& pool, const PoolState& before, WallTime now) {
    return PoolEvaluator(pool, before, now).run();
}

PoolState merge_with_leader(const PoolState& leaders, const PoolState& own, const PoolInput& pool) {
    auto out = leaders;
    for (const auto& member : own.withdrawn) {
        if (out.withdrawn.contains(member)) continue;
        if (out.recently.size() >= MassFailureGuard::max_withdrawals(pool.spec.guard, pool.members.size())) break;
        if (!own.recently.empty()) out.recently.push_back(own.recently.back());
        out.withdrawn.insert(member);
    }
    std::sort(out.recently.begin(), out.recently.end());
    // Loads are reported to one server only; the others take its result from the leader's state.
    for (const auto& member : pool.members)
        if (member.health.load) {
            out.load.erase(member.spec.name);
            if (const auto known = own.load.find(member.spec.name); known != own.load.end()) out.load.insert(*known);
        }
    return out;
}

} // namespace orrery::gslb
