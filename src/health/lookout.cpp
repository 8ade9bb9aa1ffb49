#include "health/lookout.h"

#include "core/ids.h"
#include "core/log.h"
#include "health/forced.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

namespace orrery::health {

namespace {

constexpr std::size_t most_told = 10'000, told_at_once = 1000, most_gone = 100'000, longest_key = 1024;
constexpr auto sweep_every = std::chrono::seconds(5);
constexpr char between_names = '\n';

bool is_vantage_name(std::string_view name) {
    return !name.empty() && name.size() <= 128 &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
}

Error wrong(std::string_view field, std::string_view what) {
    Error out{Code::invalid, fmt::format("{} {}", field, what)};
    out.fields.push_back({std::string(field), std::string(what)});
    return out;
}

std::int64_t told_number(const json::object& from, std::string_view key, std::int64_t otherwise, std::int64_t most) {
    const auto* value = from.if_contains(key);
    if (value == nullptr || !value->is_number()) return otherwise;
    boost::system::error_code error;
    const auto number = value->to_number<std::int64_t>(error);
    return error ? otherwise : std::clamp<std::int64_t>(number, 0, most);
}

std::string told_text(const json::object& from, std::string_view key) {
    const auto* value = from.if_contains(key);
    return value != nullptr && value->is_string() ? std::string(std::string_view(value->get_string())) : std::string();
}

} // namespace

// --- What is wanted, as data
// --------------------------------------------------------------------------------------------------------

bool Wanted::operator==(const Wanted& other) const {
    return look == other.look && address == other.address && port == other.port && interval == other.interval &&
           timeout == other.timeout && thresholds.rise == other.thresholds.rise && thresholds.fall == other.thresholds.fall &&
           thresholds.forgive == other.thresholds.forgive && fast == other.fast && slow == other.slow;
}

json::object Wanted::to_json() const {
    json::object out{{"look", look},
                     {"address", address},
                     {"port", port},
                     {"interval", to_text(interval)},
                     {"timeout", to_text(timeout)},
                     {"rise", thresholds.rise},
                     {"fall", thresholds.fall},
                     {"forgive", thresholds.forgive}};
    if (fast > Duration{}) out["fast"] = to_text(fast);
    if (slow > Duration{}) out["slow"] = to_text(slow);
    return out;
}

Result<Wanted> Wanted::from_json(const json::object& value) {
    Wanted out;
    const auto* look = value.if_contains("look");
    if (look == nullptr || !look->is_object()) return wrong("look", "must be an object");
    out.look = look->get_object();
    if (auto errors = check_look(out.look, "look", {}); !errors.empty()) return wrong(errors.front().path, errors.front().message);
    out.address = told_text(value, "address");
    if (out.address.empty() || out.address.size() > 253) return wrong("address", "must be a name or an address");
    out.port = static_cast<std::uint16_t>(told_number(value, "port", 0, 65535));
    const auto time = [&](std::string_view key, Duration& into) {
        const auto parsed = parse_duration(told_text(value, key));
        if (!parsed.ok() || *parsed < std::chrono::milliseconds(100) || *parsed > std::chrono::hours(24)) return false;
        into = *parsed;
        return true;
    };
    if (!time("interval", out.interval)) return wrong("interval", "must be a time between 100ms and 24h");
    if (!time("timeout", out.timeout)) return wrong("timeout", "must be a time between 100ms and 24h");
    if (value.contains("fast") && !time("fast", out.fast)) return wrong("fast", "must be a time between 100ms and 24h");
    if (value.contains("slow") && !time("slow", out.slow)) return wrong("slow", "must be a time between 100ms and 24h");
    out.thresholds = {.rise = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "rise", 2, 1000))),
                      .fall = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "fall", 3, 1000))),
                      .forgive = static_cast<int>(std::max<std::int64_t>(1, told_number(value, "forgive", 1, 1000)))};
    return out;
}

// --- The lookout
// --------------------------------------------------------------------------------------------------------------------

struct Lookout::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, Clock& clock_, Options options_, OnFinding on_finding_)
        : clock(clock_),
          options(std::move(options_)),
          on_finding(std::move(on_finding_)),
          assigned(executor),
          prober(executor, clock_, options.prober,
                 [this](const std::string& key, const Verdict& verdict, const Observation& seen, bool) {
                     looked(key, verdict, seen);
                 }) {
        vantages.emplace(options.name, Vantage{.kind = "server", .self = SelfDiagnosis(options.rule)});
    }

    struct Vantage {
        std::string_view kind; ///< server, node, checker
        SelfDiagnosis self{};
        Diagnosis diagnosis;
        std::size_t targets = 0;
        std::set<std::string> failing_canaries;
        SteadyTime heard{}; ///< checkers
    };
    struct Seen {
        Report report;
        SteadyTime at{};
        int until_change = 0; ///< looks
        double rtt = 0, told_rtt = 0;
    };
    struct Watched {
        Wanted wanted;
        QuorumRule quorum;
        std::map<std::string, Seen> seen; ///< by vantage
        Finding finding;
        std::uint64_t revision = 0;
    };

    static std::string prober_key(std::string_view vantage, std::string_view key) {
        return fmt::format("{}{}{}", vantage, between_names, key);
    }

    // --- What this server and its nodes find

    void looked(const std::string& name, const Verdict& verdict, const Observation& observed) {
        const auto cut = name.find(between_names);
        const auto vantage_name = name.substr(0, cut), key = name.substr(cut + 1);
        const auto vantage = vantages.find(vantage_name);
        if (vantage == vantages.end()) return;
        if (key.starts_with(between_names)) { // a canary
            if (!is_evidence(observed.outcome)) return;
            if (is_good(observed.outcome))
                vantage->second.failing_canaries.erase(key);
            else
                vantage->second.failing_canaries.insert(key);
            if (diagnose(vantage_name, vantage->second)) settle_all();
            return;
        }
        const auto at = watched.find(key);
        if (at == watched.end()) return;
        auto& seen = at->second.seen[vantage_name];
        const auto before = seen.report;
        auto& report = seen.report;
        report.vantage = vantage_name;
        report.standing = verdict.standing();
        report.stale = verdict.stale();
        report.failures = verdict.failures();
        seen.until_change = verdict.until_change();
        if (is_evidence(observed.outcome)) {
            report.last = observed.outcome;
            report.took = std::chrono::duration_cast<std::chrono::milliseconds>(observed.total);
            seen.at = clock.steady();
        }
        if (is_good(observed.outcome) && vantage->second.kind == "server") {
            const double ms = std::chrono::duration<double, std::milli>(observed.total).count();
            seen.rtt = seen.rtt == 0 ? ms : 0.8 * seen.rtt + 0.2 * ms;
        }
        // The first failing look of what was up counts, not its fall: most of them at once tell of the vantage before any is down.
        // Where nobody else looks there is no better witness, and what it sees must be believed; the guards of pools remain.
        if (vantages.size() > 1 && before.standing != Standing::down && before.failures == 0 && is_evidence(observed.outcome) &&
            !is_good(observed.outcome)) {
            vantage->second.self.fell(unstepped(clock));
            if (diagnose(vantage_name, vantage->second)) {
                settle_all();
                return;
            }
        }
        const bool same = before.standing == report.standing && before.stale == report.stale &&
                          before.failures == report.failures && before.last == report.last && !rtt_moved(seen);
        if (!same && settle(at->second)) tell(key);
    }

    static bool rtt_moved(const Seen& seen) { return std::abs(seen.rtt - seen.told_rtt) > std::max(1.0, seen.told_rtt / 10); }

    /// True if it counts now and did not, or the other way round.
    bool diagnose(const std::string& name, Vantage& vantage) {
        auto now = vantage.self.diagnose(vantage.targets, canaries, vantage.failing_canaries.size(), unstepped(clock));
        const bool changed = now.fit != vantage.diagnosis.fit;
        vantage.diagnosis = std::move(now);
        if (changed)
            log::info(Context::background(), "vantage {} {}", name,
                      vantage.diagnosis.fit ? "counts again" : "is set aside: " + vantage.diagnosis.words);
        return changed;
    }

    // --- From many to one

    void settle_all() {
        std::vector<std::string> changed; // told afterwards: who listens may change what is watched
        for (auto& [key, of] : watched)
            if (settle(of)) changed.push_back(key);
        for (const auto& key : changed) tell(key);
    }

    void tell(const std::string& key) {
        const auto at = watched.find(key);
        if (at == watched.end() || !on_finding) return;
        const auto name = key;
        const auto finding = at->second.finding;
        on_finding(name, finding);
    }

    /// True if what is known of it is another.
    bool settle(Watched& of) {
        const auto now = clock.wall();
        std::vector<Report> reports;
        for (auto& [name, seen] : of.seen) {
            const auto vantage = vantages.find(name);
            if (vantage == vantages.end()) continue;
            auto report = seen.report;
            // The age is measured on the steady clock: a step of the time of day makes nobody silent.
            report.at = now - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - seen.at);
            report.fit = vantage->second.diagnosis.fit;
            report.unfit_because = vantage->second.diagnosis.words;
            reports.push_back(std::move(report));
        }
        auto rule = of.quorum;
        rule.fresh = std::max(rule.fresh, std::max(of.wanted.interval, of.wanted.slow) * 3);
        Finding next;
        next.decision = decide(reports, rule, of.finding.standing, now);
        next.standing = next.decision.standing;
        next.stale = next.decision.counted == 0 && next.standing != Standing::unknown;
        std::optional<int> until;
        for (auto& [name, seen] : of.seen) {
            if (seen.report.standing != Standing::unknown) until = std::min(until.value_or(seen.until_change), seen.until_change);
            if (rtt_moved(seen)) seen.told_rtt = seen.rtt;
            if (seen.told_rtt > 0) next.rtt[name] = std::round(seen.told_rtt * 10) / 10;
        }
        // Once a result points to a change they come fast.
        next.until_change = (of.wanted.fast > Duration{} ? of.wanted.fast : of.wanted.interval) * until.value_or(0);
        auto& last = of.finding;
        const bool same = last.standing == next.standing && last.stale == next.stale && last.until_change == next.until_change &&
                          last.rtt == next.rtt && last.decision.words == next.decision.words &&
                          last.decision.withheld == next.decision.withheld;
        last = std::move(next);
        return !same;
    }

    /// Time alone: who has gone silent, who is fit again.
    void sweep() {
        const auto now = clock.steady();
        for (auto at = vantages.begin(); at != vantages.end();) {
            if (at->second.kind == "checker" && now - at->second.heard > options.checker_forgotten) {
                for (auto& [key, of] : watched) of.seen.erase(at->first);
                at = vantages.erase(at);
                continue;
            }
            if (at->second.kind != "checker") diagnose(at->first, at->second);
            ++at;
        }
        settle_all();
    }

    static asio::awaitable<void> keep_sweeping(std::shared_ptr<State> self) {
        co_await asio::this_coro::throw_if_cancelled(false);
        while ((co_await self->clock.sleep(sweep_every)).ok()) self->sweep();
    }

    // --- Who looks

    void look_from(const std::string& vantage, const std::string& key, const Watched& of, Standing remembered) {
        const auto probe = vantage == options.name ? probe_from(of.wanted.look, of.wanted.address, of.wanted.port, options.tools)
                                                   : node_probe(*commands, vantage, of.wanted);
        if (!probe.ok()) return; // this vantage has no word on it
        prober.set(prober_key(vantage, key), {.probe = *probe,
                                              .interval = of.wanted.interval,
                                              .timeout = of.wanted.timeout,
                                              .thresholds = of.wanted.thresholds,
                                              .remembered = remembered,
                                              .fast = of.wanted.fast,
                                              .slow = of.wanted.slow});
    }

    void note(const std::string& key, Watched* of) {
        const auto old = of != nullptr ? of->revision : 0;
        if (old != 0) changes.erase(old);
        changes.emplace(++revision, std::pair(key, of != nullptr));
        if (of != nullptr)
            of->revision = revision;
        else if (++gone > most_gone)
            forget_oldest_gone();
        assigned.notify_all();
    }

    void forget_oldest_gone() {
        for (auto at = changes.begin(); at != changes.end(); ++at)
            if (!at->second.second) {
                floor = at->first;
                changes.erase(at);
                --gone;
                return;
            }
    }

    void forget(std::string key) {
        const auto at = watched.find(key);
        if (at == watched.end()) return;
        for (auto& [name, vantage] : vantages) {
            if (vantage.kind == "checker") continue;
            prober.remove(prober_key(name, key));
            if (vantage.targets > 0) --vantage.targets;
        }
        changes.erase(at->second.revision);
        watched.erase(at);
        note(key, nullptr);
    }

    Clock& clock;
    Options options;
    OnFinding on_finding;
    Notifier assigned;
    std::map<std::string, Vantage> vantages;
    std::unordered_map<std::string, Watched> watched;
    CommandRunner* commands = nullptr;
    std::size_t canaries = 0;
    const std::string epoch = random_id();
    std::uint64_t revision = 0, floor = 0;
    std::map<std::uint64_t, std::pair<std::string, bool>> changes; ///< revision → key, whether it is wanted
    std::size_t gone = 0;
    Prober prober;
};

Lookout::Lookout(asio::any_io_executor executor, Clock& clock, Options options, OnFinding on_finding)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options), std::move(on_finding))) {}
Lookout::~Lookout() = default;

Result<Unit> Lookout::set(const std::string& key, Wanted wanted, QuorumRule quorum, Standing remembered) {
    auto& state = *state_;
    if (key.empty() || key.size() > longest_key || key.find(between_names) != std::string::npos)
        return Error{Code::invalid, "a target's key must be one line of at most 1024 characters"};
    TRY(std::ignore, probe_from(wanted.look, wanted.address, wanted.port, state.options.tools));
    const auto known = state.watched.find(key);
    if (known != state.watched.end() && known->second.wanted == wanted) {
        known->second.quorum = quorum;
        if (state.settle(known->second)) state.tell(key);
        return Unit{};
    }
    const bool is_new = known == state.watched.end();
    auto& of = state.watched[key];
    of.wanted = std::move(wanted);
    of.quorum = quorum;
    if (is_new) {
        of.finding.standing = remembered;
        of.finding.stale = remembered != Standing::unknown;
    } else {
        of.seen.clear(); // another look: what the earlier one found says nothing of it, and the standing stays until there is word
    }
    for (auto& [name, vantage] : state.vantages) {
        if (vantage.kind == "checker") continue;
        if (is_new) ++vantage.targets;
        state.prober.remove(State::prober_key(name, key));
        state.look_from(name, key, of, of.finding.standing);
    }
    state.note(key, &of);
    if (state.settle(of)) state.tell(key);
    return Unit{};
}

void Lookout::remove(const std::string& key) { state_->forget(key); }

std::optional<Finding> Lookout::finding(const std::string& key) const {
    const auto at = state_->watched.find(key);
    return at == state_->watched.end() ? std::nullopt : std::optional(at->second.finding);
}

Result<Unit> Lookout::set_canaries(std::vector<Wanted> canaries) {
    auto& state = *state_;
    std::vector<ProbePtr> probes;
    for (const auto& one : canaries) {
        TRY(auto probe, probe_from(one.look, one.address, one.port, state.options.tools));
        probes.push_back(std::move(probe));
    }
    auto& self = state.vantages.at(state.options.name);
    const auto key = [&](std::size_t i) {
        return State::prober_key(state.options.name, fmt::format("{}canary {}", between_names, i));
    };
    for (std::size_t i = 0; i < state.canaries; ++i) state.prober.remove(key(i));
    self.failing_canaries.clear();
    state.canaries = canaries.size();
    for (std::size_t i = 0; i < canaries.size(); ++i)
        state.prober.set(key(i), {.probe = probes[i],
                                  .interval = canaries[i].interval,
                                  .timeout = canaries[i].timeout,
                                  .thresholds = canaries[i].thresholds});
    return Unit{};
}

void Lookout::set_nodes(std::vector<std::string> nodes, CommandRunner& commands) {
    auto& state = *state_;
    state.commands = &commands;
    for (auto at = state.vantages.begin(); at != state.vantages.end();) {
        if (at->second.kind != "node" || std::find(nodes.begin(), nodes.end(), at->first) != nodes.end()) {
            ++at;
            continue;
        }
        for (auto& [key, of] : state.watched) {
            state.prober.remove(State::prober_key(at->first, key));
            of.seen.erase(at->first);
        }
        at = state.vantages.erase(at);
    }
    for (const auto& node : nodes) {
        if (!is_vantage_name(node) || state.vantages.contains(node)) continue;
        state.vantages.emplace(
            node, State::Vantage{.kind = "node", .self = SelfDiagnosis(state.options.rule), .targets = state.watched.size()});
        for (const auto& [key, of] : state.watched) state.look_from(node, key, of, of.finding.standing);
    }
    state.settle_all();
}

asio::awaitable<void> Lookout::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    TaskGroup group(co_await asio::this_coro::executor);
    group.spawn(State::keep_sweeping(state_));
    co_await state_->prober.run(std::move(ctx));
    co_await group.stop();
}

Prober::Counts Lookout::counts() const { return state_->prober.counts(); }

// --- Checkers
// -----------------------------------------------------------------------------------------------------------------------

json::object Lookout::assignments(std::string_view epoch, std::uint64_t after) const {
    const auto& state = *state_;
    const bool reset = epoch != state.epoch || after < state.floor || after > state.revision;
    if (reset) after = 0;
    json::array set, removed;
    std::size_t count = 0;
    auto at = state.changes.upper_bound(after);
    for (; at != state.changes.end() && count < told_at_once; ++at, ++count) {
        after = at->first;
        const auto& [key, wanted] = at->second;
        if (!wanted) {
            removed.emplace_back(key);
            continue;
        }
        auto one = state.watched.at(key).wanted.to_json();
        one["key"] = key;
        one["revision"] = at->first;
        set.emplace_back(std::move(one));
    }
    const bool more = at != state.changes.end();
    return {{"epoch", state.epoch},  {"revision", more ? after : state.revision},
            {"reset", reset},        {"more", more},
            {"set", std::move(set)}, {"removed", std::move(removed)}};
}

Task<Unit> Lookout::assignments_changed(Context ctx, std::uint64_t after) {
    const auto state = state_;
    while (state->revision <= after) {
        CO_TRY(std::ignore, co_await state->assigned.wait(ctx));
    }
    co_return Unit{};
}

Result<Unit> Lookout::take(const json::value& told) {
    auto& state = *state_;
    if (!told.is_object()) return wrong("body", "must be an object");
    const auto& body = told.get_object();
    const auto name = told_text(body, "vantage");
    if (!is_vantage_name(name)) return wrong("vantage", "must be a name of up to 128 printable characters");
    const auto known = state.vantages.find(name);
    if (known != state.vantages.end() && known->second.kind != "checker")
        return wrong("vantage", fmt::format("\"{}\" is a {} already", name, known->second.kind));
    if (known == state.vantages.end()) {
        const auto checkers = std::count_if(state.vantages.begin(), state.vantages.end(),
                                            [](const auto& one) { return one.second.kind == "checker"; });
        if (static_cast<std::size_t>(checkers) >= state.options.most_checkers)
            return Error{Code::throttled, fmt::format("{} checkers have joined already, and no more may", checkers)};
    }
    const auto* fit = body.if_contains("fit");
    if (fit == nullptr || !fit->is_bool()) return wrong("fit", "must be true or false");
    const auto* reports = body.if_contains("reports");
    if (reports == nullptr || !reports->is_array()) return wrong("reports", "must be a list");
    const auto& list = reports->get_array();
    if (list.size() > most_told) return wrong("reports", fmt::format("may have at most {} entries", most_told));
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!list[i].is_object()) return wrong(fmt::format("reports[{}]", i), "must be an object");
        if (told_text(list[i].get_object(), "key").empty())
            return wrong(fmt::format("reports[{}].key", i), "must say which target");
    }
    const auto now = state.clock.steady();
    auto& vantage = state.vantages[name];
    vantage.kind = "checker";
    vantage.heard = now;
    vantage.targets = static_cast<std::size_t>(told_number(body, "targets", 0, 10'000'000));
    const bool was_fit = vantage.diagnosis.fit;
    vantage.diagnosis.fit = fit->get_bool();
    vantage.diagnosis.words = vantage.diagnosis.fit ? std::string() : told_text(body, "because").substr(0, 256);
    std::vector<std::string> changed;
    for (const auto& entry : list) {
        const auto& one = entry.get_object();
        const auto at = state.watched.find(told_text(one, "key"));
        if (at == state.watched.end()) continue;
        // What it found by an earlier way to look is of no use.
        if (one.contains("revision") &&
            told_number(one, "revision", 0, INT64_MAX) != static_cast<std::int64_t>(at->second.revision))
            continue;
        auto& seen = at->second.seen[name];
        auto& report = seen.report;
        report.vantage = name;
        report.standing = standing_from(told_text(one, "standing"));
        report.last = outcome_from(told_text(one, "class"));
        report.took = std::chrono::milliseconds(told_number(one, "ms", 0, 3'600'000));
        report.failures = static_cast<int>(told_number(one, "n_fail", 0, 1000));
        const auto* stale = one.if_contains("stale");
        report.stale = stale != nullptr && stale->is_bool() && stale->get_bool();
        seen.at = now - std::chrono::milliseconds(told_number(one, "age_ms", 0, 86'400'000));
        const auto& thresholds = at->second.wanted.thresholds;
        seen.until_change = report.standing == Standing::down ? thresholds.rise : std::max(1, thresholds.fall - report.failures);
        if (is_good(report.last)) seen.rtt = static_cast<double>(report.took.count());
        if (state.settle(at->second)) changed.push_back(at->first);
    }
    if (was_fit != vantage.diagnosis.fit) {
        log::info(Context::background(), "vantage {} {}", name,
                  vantage.diagnosis.fit ? "counts again" : "sets itself aside: " + vantage.diagnosis.words);
        state.settle_all();
    }
    for (const auto& key : changed) state.tell(key);
    return Unit{};
}

json::array Lookout::vantages() const {
    const auto& state = *state_;
    json::array out;
    for (const auto& [name, vantage] : state.vantages) {
        json::object one{{"name", name}, {"kind", vantage.kind}, {"fit", vantage.diagnosis.fit}, {"targets", vantage.targets}};
        if (!vantage.diagnosis.fit) one["because"] = vantage.diagnosis.words;
        if (vantage.kind == "checker")
            one["heard_ms_ago"] =
                std::chrono::duration_cast<std::chrono::milliseconds>(state.clock.steady() - vantage.heard).count();
        out.emplace_back(std::move(one));
    }
    return out;
}

} // namespace orrery::health
