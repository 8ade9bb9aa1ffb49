#include "gslb/settle.h"

#include "gslb/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::gslb {

namespace {

void sooner(std::optional<WallTime>& at, WallTime than) {
    if (!at || than < *at) at = than;
}

WallTime after(WallTime from, Duration by) { return from + std::chrono::duration_cast<std::chrono::milliseconds>(by); }

std::string said(std::string_view what, const Override& by) {
    std::string out(what);
    if (!by.by.empty()) out += " by " + by.by;
    if (by.until) out += " until " + to_rfc3339(*by.until);
    if (!by.reason.empty()) out += ": " + by.reason;
    return out;
}

/// How many withdrawals the guard lets through within its window.
std::size_t most_withdrawn(const PoolSpec::Guard& guard, std::size_t members) {
    if (!guard.most.share) return guard.most.value;
    return std::max<std::size_t>(1, members * guard.most.value / 100);
}

/// All of the weight up to the low mark, none from the high one on, a straight line between.
std::uint32_t percent_at_load(const PoolSpec::Load& rule, double load) {
    if (load <= rule.low) return 100;
    if (load >= rule.high) return 0;
    return static_cast<std::uint32_t>(std::lround(100 * (rule.high - load) / (rule.high - rule.low)));
}

class Settling {
public:
    Settling(const PoolInput& pool, const PoolMemory& before, WallTime now) : pool_(pool), before_(before), now_(now) {}

    Settled run() {
        out_.view.name = pool_.spec.name;
        out_.view.location = pool_.spec.location;
        out_.view.min_healthy = pool_.spec.min_healthy;
        if (pool_.spec.guard)
            for (const auto at : before_.recently) // one from a clock that was ahead holds no longer than one from now
                if (at + window() > now_) out_.memory.recently.push_back(std::min(at, now_));
        for (const auto& member : pool_.members) out_.view.members.push_back(look_at(member));
        if (!out_.memory.recently.empty() && held_) sooner(out_.look_again, out_.memory.recently.front() + window());
        measure();
        return std::move(out_);
    }

private:
    std::chrono::milliseconds window() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(pool_.spec.guard->window);
    }

    MemberView look_at(const MemberInput& member) {
        MemberView view{.name = member.spec.name,
                        .addresses = member.addresses,
                        .weight = member.spec.weight,
                        .site = member.site,
                        .rack = member.rack,
                        .capacity = member.spec.capacity};
        const auto& own = member.spec.override_;
        const auto& pools = pool_.spec.override_;
        for (const auto* each : {&own, &pools})
            if (each->holds(now_) && each->until) sooner(out_.look_again, *each->until);
        shed(member, view);
        if (member.addresses.empty()) {
            view.why = member.no_address.empty() ? "it has no address" : member.no_address;
            return view;
        }
        if (own.holds(now_)) return forced(std::move(view), own, "");
        if (pools.holds(now_)) return forced(std::move(view), pools, "the pool is ");
        by_probes(member, view);
        return view;
    }

    static MemberView forced(MemberView view, const Override& by, std::string_view who) {
        view.forced = true;
        view.healthy = by.what == Override::What::up;
        view.drained = by.what == Override::What::drain;
        const auto* word = view.healthy ? "held up" : view.drained ? "drained" : "taken down";
        view.why = said(fmt::format("{}{}", who, word), by);
        return view;
    }

    void by_probes(const MemberInput& member, MemberView& view) {
        const auto& signal = member.signal;
        if (!signal.monitored) {
            view.healthy = true;
            return;
        }
        view.until_change = signal.until_change;
        view.healthy = signal.standing == Health::unknown ? pool_.spec.unknown_is_up : signal.standing != Health::down;
        view.why = signal.words;
        if (signal.standing == Health::unknown)
            view.why = fmt::format("nothing is known yet, which counts as {}", view.healthy ? "up" : "down");
        if (signal.stale) view.why += view.why.empty() ? "as before the restart" : ", as before the restart";
        if (view.healthy && signal.doubt)
            out_.withheld.push_back({signal.doubt->cause, view.name, signal.doubt->words, std::nullopt});
        if (view.healthy) return;
        if (before_.withdrawn.contains(view.name)) {
            out_.memory.withdrawn.insert(view.name);
            return;
        }
        const auto& guard = pool_.spec.guard;
        if (guard && signal.stale) {
            // It was held in when it was last seen, or its withdrawal would be remembered: what is decided anew needs fresh
            // evidence.
            view.healthy = true;
            view.why = fmt::format("down when it was last looked at{}{}, but held in until it is looked at again",
                                   signal.words.empty() ? "" : ": ", signal.words);
            out_.withheld.push_back({"mass_guard_hold", view.name, view.why, std::nullopt});
            return;
        }
        if (guard && out_.memory.recently.size() >= most_withdrawn(*guard, pool_.members.size())) {
            held_ = true;
            view.healthy = true;
            const auto free = out_.memory.recently.empty() ? std::nullopt : std::optional(out_.memory.recently.front() + window());
            view.why =
                fmt::format("down by its probes{}{}, but held in: {} withdrawn within {} already, and the pool's guard allows {}",
                            signal.words.empty() ? "" : ": ", signal.words, out_.memory.recently.size(), to_text(guard->window),
                            guard->most.text());
            out_.withheld.push_back({"mass_guard_hold", view.name, view.why, free});
            return;
        }
        out_.memory.withdrawn.insert(view.name);
        if (guard) out_.memory.recently.push_back(now_);
    }

    void shed(const MemberInput& member, MemberView& view) {
        const auto& rule = pool_.spec.load;
        if (!rule) return;
        PoolMemory::Load memory;
        if (const auto known = before_.load.find(view.name); known != before_.load.end()) memory = known->second;
        // No measurement is no evidence: the weight stays where it is.
        const auto target = member.signal.load ? percent_at_load(*rule, *member.signal.load) : memory.percent;
        if (target != memory.percent) {
            const auto due = memory.changed == WallTime{} ? now_ : after(memory.changed, rule->interval);
            if (due <= now_) {
                const auto gap = target > memory.percent ? target - memory.percent : memory.percent - target;
                const auto step = std::min(gap, std::max<std::uint32_t>(rule->step, 1));
                memory.percent = target > memory.percent ? memory.percent + step : memory.percent - step;
                memory.changed = now_;
            }
            if (target != memory.percent) sooner(out_.look_again, after(memory.changed, rule->interval));
        }
        view.load = memory.percent;
        if (memory.percent != 100 || (memory.changed != WallTime{} && after(memory.changed, rule->interval) > now_))
            out_.memory.load.emplace(view.name, memory);
    }

    void measure() {
        std::map<std::string, std::pair<double, int>> sums;
        for (std::size_t at = 0; at < pool_.members.size(); ++at)
            if (out_.view.members[at].healthy)
                for (const auto& [vantage, ms] : pool_.members[at].signal.rtt) {
                    sums[vantage].first += ms;
                    ++sums[vantage].second;
                }
        for (const auto& [vantage, sum] : sums) out_.view.rtt.emplace(vantage, std::round(10 * sum.first / sum.second) / 10);
    }

    const PoolInput& pool_;
    const PoolMemory& before_;
    WallTime now_;
    Settled out_;
    bool held_ = false;
};

} // namespace

std::string_view name_of(Health health) {
    switch (health) {
    case Health::unknown: return "unknown";
    case Health::up: return "up";
    case Health::degraded: return "degraded";
    case Health::down: return "down";
    }
    return "unknown";
}

Settled settle(const PoolInput& pool, const PoolMemory& before, WallTime now) { return Settling(pool, before, now).run(); }

PoolMemory followed(const PoolMemory& leaders, const PoolMemory& own, const PoolInput& pool) {
    auto out = leaders;
    const auto& guard = pool.spec.guard;
    for (const auto& member : own.withdrawn) {
        if (out.withdrawn.contains(member)) continue;
        if (guard) {
            if (out.recently.size() >= most_withdrawn(*guard, pool.members.size())) break;
            if (!own.recently.empty()) out.recently.push_back(own.recently.back());
        }
        out.withdrawn.insert(member);
    }
    std::sort(out.recently.begin(), out.recently.end());
    // Load is told to one server: the others know it from what it made of it.
    for (const auto& member : pool.members)
        if (member.signal.load) {
            out.load.erase(member.spec.name);
            if (const auto known = own.load.find(member.spec.name); known != own.load.end()) out.load.insert(*known);
        }
    return out;
}

json::object PoolMemory::to_json() const {
    json::object out;
    if (!withdrawn.empty()) out["withdrawn"] = json::array(withdrawn.begin(), withdrawn.end());
    if (!recently.empty()) {
        json::array times;
        for (const auto at : recently) times.emplace_back(to_rfc3339(at));
        out["recently"] = std::move(times);
    }
    if (!load.empty()) {
        json::object all;
        for (const auto& [name, one] : load)
            all[name] = json::object{{"percent", one.percent}, {"changed", to_rfc3339(one.changed)}};
        out["load"] = std::move(all);
    }
    return out;
}

PoolMemory PoolMemory::from(const json::object& value) {
    PoolMemory out;
    for (const auto& name : texts_at(value, "withdrawn")) out.withdrawn.insert(name);
    for (const auto& text : texts_at(value, "recently"))
        if (const auto at = from_rfc3339(text); at.ok()) out.recently.push_back(*at);
    for (const auto& [name, one] : object_at(value, "load"))
        if (one.is_object())
            out.load[std::string(std::string_view(name))] = {.percent = count_at(one.get_object(), "percent", 100, 100),
                                                             .changed = time_at(one.get_object(), "changed").value_or(WallTime{})};
    return out;
}

json::object Withheld::to_json() const {
    json::object out{{"cause", cause}, {"about", about}, {"words", words}};
    if (until) out["until"] = to_rfc3339(*until);
    return out;
}

// What has its usual value is left out: a decision record holds all of this.
json::object PoolView::to_json() const {
    json::object out{{"name", name}, {"min_healthy", min_healthy.text()}};
    if (location) out["location"] = json::array{location->latitude, location->longitude};
    json::array all;
    for (const auto& member : members) {
        json::object one{{"name", member.name}, {"addresses", to_array(member.addresses.texts())}};
        if (member.weight != 1) one["weight"] = member.weight;
        if (member.load != 100) one["load"] = member.load;
        if (!member.site.empty()) one["site"] = member.site;
        if (!member.rack.empty()) one["rack"] = member.rack;
        if (member.capacity != 0) one["capacity"] = member.capacity;
        if (!member.healthy) one["healthy"] = false;
        if (member.drained) one["drained"] = true;
        if (member.forced) one["forced"] = true;
        if (!member.why.empty()) one["why"] = member.why;
        if (member.until_change) one["until_change"] = to_text(*member.until_change);
        all.emplace_back(std::move(one));
    }
    out["members"] = std::move(all);
    if (!rtt.empty()) {
        json::object measured;
        for (const auto& [vantage, ms] : rtt) measured[vantage] = ms;
        out["rtt"] = std::move(measured);
    }
    return out;
}

PoolView PoolView::from(const json::object& value) {
    PoolView out;
    out.name = text_at(value, "name");
    if (const auto* amount = value.if_contains("min_healthy")) {
        auto text = text_at(value, "min_healthy");
        if (text.ends_with('%'))
            out.min_healthy = Amount::parse(*amount).value_or({});
        else
            out.min_healthy = {.share = false, .value = static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 10))};
    }
    if (const auto& where = array_at(value, "location"); where.size() == 2)
        out.location = PoolSpec::Location{where[0].to_number<double>(), where[1].to_number<double>()};
    for (const auto& item : array_at(value, "members")) {
        if (!item.is_object()) continue;
        const auto& given = item.get_object();
        MemberView one{.name = text_at(given, "name"),
                       .weight = count_at(given, "weight", 1),
                       .load = count_at(given, "load", 100),
                       .site = text_at(given, "site"),
                       .rack = text_at(given, "rack"),
                       .capacity = number_at(given, "capacity", 0),
                       .healthy = flag_at(given, "healthy", true),
                       .drained = flag_at(given, "drained"),
                       .forced = flag_at(given, "forced"),
                       .why = text_at(given, "why")};
        for (const auto& address : texts_at(given, "addresses")) std::ignore = one.addresses.add(address);
        if (given.contains("until_change")) one.until_change = duration_at(given, "until_change", Duration{});
        out.members.push_back(std::move(one));
    }
    for (const auto& [vantage, ms] : object_at(value, "rtt"))
        out.rtt.emplace(std::string(std::string_view(vantage)), ms.to_number<double>());
    return out;
}

} // namespace orrery::gslb
