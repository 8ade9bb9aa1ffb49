#pragma once

#include "core/ids.h"
#include "core/log.h"
#include "health/lookout.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

/// Private to the module.
namespace orrery::health {

constexpr char between_names = '\n';

bool is_vantage_name(std::string_view name);
/// What another process told: bounded, and never an error where a default will do.
Error told_wrong(std::string_view field, std::string_view what);
std::int64_t told_number(const json::object& from, std::string_view key, std::int64_t otherwise, std::int64_t most);
std::string told_text(const json::object& from, std::string_view key);

/// More than this without a word, and a checker has no part in what all see.
constexpr auto silent_after = std::chrono::seconds(60);
constexpr auto sweep_every = std::chrono::seconds(5);
constexpr std::size_t most_gone = 100'000, longest_key = 1024;

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
        std::string_view kind; ///< server (this one), node, checker, peer
        SelfDiagnosis self{};
        Diagnosis diagnosis;
        std::size_t targets = 0;
        std::set<std::string> failing_canaries;
        SteadyTime heard{};                          ///< checkers
        bool ready = false;                          ///< peers
        std::unordered_map<std::string, Word> words; ///< peers: of what they do not find well
        /// It looks by itself and tells: its targets are not this server's to look at.
        bool is_elsewhere() const { return kind == "checker" || kind == "peer"; }
        bool has_fallen() const {
            const auto* reason = diagnosis.data.if_contains("reason");
            return !diagnosis.fit && reason != nullptr && *reason == "fall";
        }
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
        std::uint64_t how = 0; ///< a digest of what is wanted
        SteadyTime since{};    ///< when it was first wanted so
    };

    static std::string prober_key(std::string_view vantage, std::string_view key) {
        return fmt::format("{}{}{}", vantage, between_names, key);
    }

    /// The same for the same way to look, at every server.
    static std::uint64_t digest_of(const Wanted& wanted) {
        std::uint64_t hash = 0xcbf29ce484222325U;
        for (const char c : to_json_text(wanted.to_json())) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        return hash >> 1U; // JSON's numbers have a sign
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
        if (vantage->second.kind == "server" &&
            (before.standing != report.standing || before.stale != report.stale || before.last != report.last))
            say(key, at->second);
        // The first failing look of what was up counts, not its fall: most of them at once tell of the vantage before any is down.
        // Where nobody else looks there is no better witness, and what it sees must be believed; the guards of pools remain.
        // What somebody else said tells nothing of this vantage.
        if (vantages.size() > 1 && before.standing != Standing::down && before.failures == 0 && is_evidence(observed.outcome) &&
            !is_good(observed.outcome) && !is_informed(at->second.wanted.look)) {
            vantage->second.self.fell(unstepped(clock));
            if (diagnose(vantage_name, vantage->second)) {
                settle_all();
                return;
            }
        }
        const bool same = before.standing == report.standing && before.stale == report.stale &&
                          before.failures == report.failures && before.last == report.last && !rtt_moved(seen);
        if (!same && settle(key, at->second)) tell(key);
    }

    static bool rtt_moved(const Seen& seen) { return std::abs(seen.rtt - seen.told_rtt) > std::max(1.0, seen.told_rtt / 10); }

    /// True if it counts now and did not, or the other way round.
    bool diagnose(const std::string& name, Vantage& vantage) {
        auto now = vantage.self.diagnose(vantage.targets, canaries, vantage.failing_canaries.size(), unstepped(clock));
        const bool changed = now.fit != vantage.diagnosis.fit;
        vantage.diagnosis = std::move(now);
        if (changed) fall_together();
        if (changed && vantage.kind == "server" && on_fit) on_fit(vantage.diagnosis);
        if (changed)
            log::info(Context::background(), "vantage {} {}", name,
                      vantage.diagnosis.fit ? "counts again" : "is set aside: " + vantage.diagnosis.words);
        return changed;
    }

    /// What this server finds, for others.
    void say(const std::string& key, const Watched& of) const {
        if (!on_word) return;
        const auto own = of.seen.find(options.name);
        Word word{.report = own == of.seen.end() ? Report{} : own->second.report, .how = of.how};
        if (own == of.seen.end()) {
            word.report.standing = of.finding.standing;
            word.report.stale = true;
        }
        word.report.vantage = options.name;
        on_word(key, &word);
    }

    // --- From many to one

    /// Where everybody who looks saw most targets fall at once, nobody is isolated: it is the targets.
    void fall_together() {
        const auto now = clock.steady();
        std::size_t heard = 0, fell = 0;
        for (const auto& [name, vantage] : vantages) {
            if (vantage.kind == "checker" && now - vantage.heard > silent_after) continue;
            if (vantage.kind == "peer" && !peers_heard) continue;
            ++heard;
            if (vantage.has_fallen()) ++fell;
        }
        const bool together = heard > 1 && fell == heard;
        if (together == all_fell) return;
        all_fell = together;
        log::info(Context::background(), "{}",
                  together ? "all vantages saw most of their targets fall at once: they are believed"
                           : "not all vantages see the same any more");
    }
    bool counts(const Vantage& vantage) const { return vantage.diagnosis.fit || (all_fell && vantage.has_fallen()); }

    void settle_all() {
        std::vector<std::string> changed; // told afterwards: who listens may change what is watched
        for (auto& [key, of] : watched)
            if (settle(key, of)) changed.push_back(key);
        for (const auto& key : changed) tell(key);
    }

    void tell(const std::string& key) {
        const auto at = watched.find(key);
        if (at == watched.end() || !on_finding) return;
        const auto name = key; // NOLINT: the listener may remove it
        const auto finding = at->second.finding;
        on_finding(name, finding);
    }

    /// True if what is known of it is another.
    bool settle(const std::string& key, Watched& of) {
        const auto now = clock.wall();
        std::vector<Report> reports;
        for (auto& [name, seen] : of.seen) {
            const auto vantage = vantages.find(name);
            if (vantage == vantages.end()) continue;
            auto report = seen.report;
            // The age is measured on the steady clock: a step of the time of day makes nobody silent.
            report.at = now - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - seen.at);
            report.fit = counts(vantage->second);
            report.unfit_because = vantage->second.diagnosis.words;
            reports.push_back(std::move(report));
        }
        for (const auto& [name, vantage] : vantages)
            if (vantage.kind == "peer")
                if (auto report = word_of(name, vantage, key, of, now)) reports.push_back(std::move(*report));
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

    /// What another server says of a target. It tells what it does not find well; what it does not mention it finds well, once it
    /// has looked at everything, and had the time to look at what is new.
    std::optional<Report> word_of(const std::string& name, const Vantage& vantage, const std::string& key, const Watched& of,
                                  WallTime now) const {
        Report report{.vantage = name, .at = now, .fit = counts(vantage), .unfit_because = vantage.diagnosis.words};
        if (!peers_heard) {
            report.fit = false;
            report.unfit_because = "this server does not hear of it";
            report.last = Outcome::ok;
            return report;
        }
        if (const auto word = vantage.words.find(key); word != vantage.words.end() && word->second.how == of.how) {
            report.standing = word->second.report.standing;
            report.last = word->second.report.last;
            report.took = word->second.report.took;
            report.failures = word->second.report.failures;
            report.stale = word->second.report.stale;
            return report;
        }
        const auto grace = of.wanted.interval * 2 + of.wanted.timeout;
        if (!vantage.ready || clock.steady() - of.since < grace) return std::nullopt;
        report.standing = Standing::up;
        report.last = Outcome::ok;
        return report;
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
            if (!at->second.is_elsewhere()) diagnose(at->first, at->second);
            ++at;
        }
        fall_together();
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
        if (of != nullptr && is_informed(of->wanted.look)) { // only this server knows whom to ask
            of->revision = 0;
            if (old != 0) {
                changes.erase(old);
                note(key, nullptr);
            }
            return;
        }
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
            if (vantage.is_elsewhere()) continue;
            prober.remove(prober_key(name, key));
            if (vantage.targets > 0) --vantage.targets;
        }
        const bool assigned_elsewhere = at->second.revision != 0;
        changes.erase(at->second.revision);
        watched.erase(at);
        if (assigned_elsewhere) note(key, nullptr);
        if (on_word) on_word(key, nullptr);
    }

    Clock& clock;
    Options options;
    OnFinding on_finding;
    Notifier assigned;
    OnWord on_word;
    OnFit on_fit;
    std::string resting;
    bool all_fell = false, peers_heard = true, closed = false;
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

} // namespace orrery::health
