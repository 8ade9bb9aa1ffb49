#include "health/vantages/aggregator_state.h"

#include "core/ids.h"
#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace orrery::health {

namespace {

constexpr int sweep_every = 5; ///< times `expire_every`

/// The messages in the evidence of a decision, to find out whether one changed.
std::string messages_of(const QuorumDecision& decision) {
    std::string out;
    for (const auto& one : decision.evidence)
        if (const auto* message = one.get_object().if_contains("message")) out += std::string_view(message->get_string());
    return out;
}

bool same_health(const AggregatedHealth& left, const AggregatedHealth& right) {
    return left.state == right.state && left.stale == right.stale && left.until_change == right.until_change &&
           left.rtt == right.rtt && left.decision.message == right.decision.message &&
           left.decision.error == right.decision.error && left.decision.withheld == right.decision.withheld &&
           messages_of(left.decision) == messages_of(right.decision);
}

} // namespace

HealthAggregator::State::State(asio::any_io_executor executor, Clock& clock_, Options options_, OnHealth on_health_)
    : clock(clock_),
      options(std::move(options_)),
      on_health(std::move(on_health_)),
      assigned(executor),
      epoch(random_id()),
      prober(executor, clock_, options.prober,
             [this](const std::string& key, const HealthStateMachine& verdict, const Observation& seen, bool) {
                 on_result(key, verdict, seen);
             }) {
    vantages.emplace(options.name, Vantage{.kind = VantageKind::server, .self = SelfDiagnosis(options.rule)});
}

std::string_view name_of(VantageKind kind) {
    switch (kind) {
    case VantageKind::server:
    case VantageKind::peer: return "server";
    case VantageKind::checker: return "checker";
    case VantageKind::node: return "node";
    }
    return "server";
}

bool HealthAggregator::State::Vantage::saw_mass_failure() const {
    return !diagnosis.trusted && diagnosis.cause == QuarantineCause::mass_failure;
}

bool HealthAggregator::State::Seen::rtt_moved() const { return std::abs(rtt - reported_rtt) > std::max(1.0, reported_rtt / 10); }

std::string HealthAggregator::State::prober_key(std::string_view vantage, std::string_view key) {
    return fmt::format("{}{}{}", vantage, key_separator, key);
}

// --- Results of this server and its nodes

void HealthAggregator::State::on_result(const std::string& name, const HealthStateMachine& verdict, const Observation& observed) {
    const auto cut = name.find(key_separator);
    const auto vantage_name = name.substr(0, cut), key = name.substr(cut + 1);
    const auto vantage = vantages.find(vantage_name);
    if (vantage == vantages.end()) return;
    if (key.starts_with(key_separator)) {
        on_canary(vantage_name, vantage->second, key, observed);
        return;
    }
    const auto at = targets.find(key);
    if (at == targets.end()) return;
    const bool passive = is_passive(at->second.spec.probe), own = vantage->second.kind == VantageKind::server;
    auto& seen = at->second.seen[vantage_name];
    const auto before = seen.report;
    seen.update(verdict, observed, passive, clock.steady());
    seen.report.vantage = vantage_name;
    seen.until_change = verdict.until_change();
    if (is_good(observed.outcome) && own) {
        const double ms = std::chrono::duration<double, std::milli>(observed.total).count();
        seen.rtt = seen.rtt == 0 ? ms : 0.8 * seen.rtt + 0.2 * ms;
    }
    if (own && differs(before, seen.report)) share_own_report(key, at->second);
    // The first bad result of an up target counts, not its change to down: many of them at once indicate a fault of the vantage
    // before any target is down. Without another witness the vantage must be believed; the guards of pools still apply. The result
    // of a passive check says nothing about this vantage.
    if (before.state != HealthState::down && before.failures == 0 && is_evidence(observed.outcome) && !is_good(observed.outcome) &&
        !passive && has_other_witness(vantage_name)) {
        vantage->second.self.target_failed(unstepped(clock));
        if (diagnose(vantage_name, vantage->second)) {
            aggregate_all();
            return;
        }
    }
    const bool same = !differs(before, seen.report) && before.failures == seen.report.failures && !seen.rtt_moved();
    if (!same && aggregate(key, at->second)) notify(key);
}

void HealthAggregator::State::on_canary(const std::string& vantage_name, Vantage& vantage, const std::string& key,
                                        const Observation& observed) {
    if (!is_evidence(observed.outcome)) return;
    if (is_good(observed.outcome))
        vantage.failing_canaries.erase(key);
    else
        vantage.failing_canaries.insert(key);
    if (diagnose(vantage_name, vantage)) aggregate_all();
}

bool HealthAggregator::State::has_other_witness(const std::string& vantage_name) const {
    return std::any_of(vantages.begin(), vantages.end(),
                       [&](const auto& one) { return one.first != vantage_name && !is_silent(one.second); });
}

bool HealthAggregator::State::diagnose(const std::string& name, Vantage& vantage) {
    auto now = vantage.self.diagnose(vantage.targets, canaries, vantage.failing_canaries.size(), unstepped(clock));
    const bool changed = now.trusted != vantage.diagnosis.trusted;
    vantage.diagnosis = std::move(now);
    if (!changed) return false;
    detect_mass_failure();
    if (vantage.kind == VantageKind::server && on_trust) on_trust(vantage.diagnosis);
    log_trust(name, vantage.diagnosis);
    return true;
}

void HealthAggregator::State::log_trust(const std::string& name, const Diagnosis& diagnosis) const {
    if (diagnosis.trusted)
        log::info(Context::background(), "vantage counts towards quorum again vantage={}", name);
    else
        log::info(Context::background(), "vantage quarantined vantage={} message=\"{}\"", name, diagnosis.message);
}

void HealthAggregator::State::share_own_report(const std::string& key, const Target& target) const {
    if (!on_report) return;
    const auto own = target.seen.find(options.name);
    PeerReport report{.report = own == target.seen.end() ? Report{} : own->second.report, .digest = target.digest};
    if (own == target.seen.end()) {
        report.report.state = target.health.state;
        report.report.stale = true;
    }
    report.report.vantage = options.name;
    on_report(key, &report);
}

// --- From reports to health

/// If every vantage saw most of its targets fail at once, no vantage is isolated: the targets are at fault.
void HealthAggregator::State::detect_mass_failure() {
    std::size_t present = 0, failed = 0;
    for (const auto& [name, vantage] : vantages) {
        if (is_silent(vantage)) continue;
        if (vantage.kind == VantageKind::peer && !peers_connected) continue;
        ++present;
        if (vantage.saw_mass_failure()) ++failed;
    }
    const bool confirmed = present > 1 && failed == present;
    if (confirmed == mass_failure) return;
    mass_failure = confirmed;
    log::info(Context::background(), "{}",
              confirmed ? "mass failure confirmed by all vantages; accepting it"
                        : "mass failure is no longer reported by all vantages");
}

bool HealthAggregator::State::is_silent(const Vantage& vantage) const {
    return vantage.kind == VantageKind::checker && clock.steady() - vantage.last_report_at > vantage.expiry();
}

std::string HealthAggregator::State::unreachable_reason(const Vantage& vantage) const {
    return fmt::format("silent for {}",
                       to_text(std::chrono::duration_cast<std::chrono::seconds>(clock.steady() - vantage.last_report_at)));
}

void HealthAggregator::State::aggregate_all() {
    std::vector<std::string> changed; // notified afterwards: the callback may change the targets
    for (auto& [key, target] : targets)
        if (aggregate(key, target)) changed.push_back(key);
    for (const auto& key : changed) notify(key);
}

void HealthAggregator::State::notify(const std::string& key) {
    const auto at = targets.find(key);
    if (at == targets.end() || !on_health) return;
    const auto name = key; // NOLINT: the callback may remove the target
    const auto health = at->second.health;
    on_health(name, health);
}

std::vector<Report> HealthAggregator::State::reports_of(const std::string& key, const Target& target) const {
    const auto now = clock.wall();
    std::vector<Report> out;
    for (const auto& [name, seen] : target.seen) {
        const auto vantage = vantages.find(name);
        if (vantage == vantages.end()) continue;
        auto report = seen.report;
        // The age is measured with the steady clock: a step of the wall clock makes no vantage silent.
        report.at = now - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - seen.at);
        report.trusted = counts(vantage->second);
        report.untrusted_reason = vantage->second.diagnosis.message;
        if (is_silent(vantage->second)) report.unreachable_reason = unreachable_reason(vantage->second);
        out.push_back(std::move(report));
    }
    for (const auto& [name, vantage] : vantages)
        if (vantage.kind == VantageKind::peer)
            if (auto report = peer_report(name, vantage, key, target)) out.push_back(std::move(*report));
    return out;
}

bool HealthAggregator::State::aggregate(const std::string& key, Target& target) {
    auto rule = target.quorum;
    rule.fresh = std::max(rule.fresh, std::max(target.spec.interval, target.spec.down_interval) * 3);
    AggregatedHealth next;
    next.decision = decide(reports_of(key, target), rule, target.health.state, clock.wall());
    next.state = next.decision.state;
    next.stale = next.decision.counted == 0 && next.state != HealthState::unknown;
    std::optional<int> until;
    for (auto& [name, seen] : target.seen) {
        if (seen.report.state != HealthState::unknown) until = std::min(until.value_or(seen.until_change), seen.until_change);
        if (seen.rtt_moved()) seen.reported_rtt = seen.rtt;
        if (seen.reported_rtt > 0) next.rtt[name] = std::round(seen.reported_rtt * 10) / 10;
    }
    // Once a result points to a change, the fast interval applies.
    const auto& spec = target.spec;
    next.until_change = (spec.fast_interval > Duration{} ? spec.fast_interval : spec.interval) * until.value_or(0);
    const bool changed = !same_health(target.health, next);
    target.health = std::move(next);
    return changed;
}

/// A peer reports the targets that it does not consider healthy. The others are healthy, once the peer has probed every target and
/// had the time to probe new ones.
std::optional<Report> HealthAggregator::State::peer_report(const std::string& name, const Vantage& vantage, const std::string& key,
                                                           const Target& target) const {
    Report report;
    report.last = Outcome::ok;
    if (const auto found = vantage.reports.find(key);
        peers_connected && found != vantage.reports.end() && found->second.digest == target.digest) {
        report = found->second.report;
    } else if (peers_connected) {
        const auto grace = target.spec.interval * 2 + target.spec.timeout;
        if (!vantage.ready || clock.steady() - target.since < grace) return std::nullopt;
        report.state = HealthState::up;
    }
    report.vantage = name;
    report.at = clock.wall();
    report.trusted = peers_connected && counts(vantage);
    report.untrusted_reason = peers_connected ? vantage.diagnosis.message : "this server is disconnected from it";
    return report;
}

// --- What time alone changes

void HealthAggregator::State::sweep() {
    const auto now = clock.steady();
    for (auto at = vantages.begin(); at != vantages.end();) {
        if (at->second.kind == VantageKind::checker && now - at->second.last_report_at > options.checker_retention) {
            for (auto& [key, target] : targets) target.seen.erase(at->first);
            at = vantages.erase(at);
            continue;
        }
        if (!at->second.is_remote()) diagnose(at->first, at->second);
        ++at;
    }
    detect_mass_failure();
    aggregate_all();
}

/// The reports of a silent checker do not count, neither for nor against a withdrawal.
void HealthAggregator::State::expire() {
    bool changed = false;
    for (auto& [name, vantage] : vantages) {
        if (vantage.known_silent || !is_silent(vantage)) continue;
        vantage.known_silent = changed = true;
        log::warn(Context::background(), "checker is silent; ignoring its reports vantage={}", name);
    }
    if (!changed) return;
    detect_mass_failure();
    aggregate_all();
}

asio::awaitable<void> HealthAggregator::State::keep_sweeping(std::shared_ptr<State> self) {
    co_await asio::this_coro::throw_if_cancelled(false);
    for (int round = 1; (co_await self->clock.sleep(expire_every)).ok(); ++round) {
        self->expire();
        if (round % sweep_every == 0) self->sweep();
    }
}

} // namespace orrery::health
