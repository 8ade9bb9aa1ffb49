#include "gslb/observe/health_watcher.h"

#include "core/json_fields.h"
#include "core/log.h"
#include "gslb/model/specs.h"
#include "health/probe_kind.h"
#include "health/sources/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace orrery::gslb {

namespace {

/// The worst of several monitors counts; unknown is worse than degraded.
int severity(HealthState state) {
    switch (state) {
    case HealthState::up: return 0;
    case HealthState::degraded: return 1;
    case HealthState::unknown: return 2;
    case HealthState::down: return 3;
    }
    return 3;
}

/// Consecutive queries without an answer after which the member's health reports it.
constexpr int max_unanswered = 3;

/// The probe of a Monitor, without its schedule.
json::object probe_spec_of(json::object spec) {
    for (const auto field : monitor_schedule_fields) spec.erase(field);
    return spec;
}

/// "bad_status (HTTP GET http://192.0.2.1:80/: 500 Internal Server Error)"
std::string observation_text(const json::object& line) {
    const auto message = text_at(line, "message");
    return message.empty() ? text_at(line, "class") : fmt::format("{} ({})", text_at(line, "class"), message);
}

/// The observation of the first vantage that does not report the member up.
std::string first_failure(const json::array& evidence) {
    for (const auto& one : evidence) {
        const auto& line = one.get_object();
        const auto parts_state = text_at(line, "state");
        if (parts_state == "down" || parts_state == "degraded") return observation_text(line);
    }
    return {};
}

/// A failure that a vantage reports without reaching the quorum.
std::optional<UnconfirmedFailure> unconfirmed_failure(const std::string& monitor, const health::QuorumDecision& decision) {
    std::string quarantined, found;
    for (const auto& one : decision.evidence) {
        const auto& line = one.get_object();
        const bool ignored = flag_at(line, "quarantined") && line.contains("ignored_state");
        if (!ignored && text_at(line, "state") != "down") continue;
        found += fmt::format("{}{} reports {}", found.empty() ? "" : ", ", text_at(line, "vantage"), observation_text(line));
        if (ignored) quarantined += fmt::format("; {} is quarantined: {}", text_at(line, "vantage"), text_at(line, "excluded"));
    }
    if (!decision.withheld && quarantined.empty()) return std::nullopt;
    return UnconfirmedFailure{decision.withheld ? Cause::quorum_hold : Cause::vantage_excluded,
                              fmt::format("{}: {}; {}{}", monitor, found, decision.message, quarantined)};
}

/// A probe that reads an external health source. Each run also reports the reading: the addresses of a load balancer, whether it
/// drains, and why the source could not be queried.
class PassiveProbe final : public health::Probe {
public:
    /// `error`: why the source could not be asked.
    using OnReading = std::function<void(const std::string& check_state, const std::optional<health::StatusSource::Reading>& last,
                                         const std::string& error)>;
    PassiveProbe(std::shared_ptr<health::SourceReader> reader, std::string id, std::string check_state, OnReading on_reading)
        : reader_(std::move(reader)), id_(std::move(id)), key_(std::move(check_state)), on_reading_(std::move(on_reading)) {}
    std::string identity() const override { return fmt::format("{} {} for {}", reader_->source().name(), id_, key_); }
    asio::awaitable<health::Observation> run(Context ctx) const override {
        auto seen = co_await reader_->observe(std::move(ctx), id_);
        auto error = reader_->error(id_);
        if (!error.empty()) error = fmt::format("{} cannot be queried: {}", reader_->source().name(), error);
        on_reading_(key_, reader_->last(id_), error);
        co_return seen;
    }

private:
    std::shared_ptr<health::SourceReader> reader_;
    std::string id_, key_;
    OnReading on_reading_;
};

HealthState worse(HealthState left, HealthState right) { return severity(right) > severity(left) ? right : left; }

HealthState state_from(health::Outcome outcome) {
    if (outcome == health::Outcome::ok) return HealthState::up;
    if (outcome == health::Outcome::warning) return HealthState::degraded;
    return health::is_evidence(outcome) ? HealthState::down : HealthState::unknown;
}

health::Formula formula_of(const json::object& spec) {
    const auto rule = text_at(spec, "rule");
    using Kind = health::Formula::Kind;
    return {.kind = rule == "at-least" ? Kind::at_least
                    : rule == "any"    ? Kind::any
                    : rule == "none"   ? Kind::none
                                       : Kind::all,
            .count = count_at(spec, "need", 1, 64)};
}

/// The cause in decision records for a check of that kind.
Cause cause_of(const json::object& spec) {
    if (health::probe_kind_of(spec) == health::ProbeKind::push) return Cause::push;
    return health::is_passive(spec) ? Cause::driver : Cause::probe;
}

} // namespace

struct HealthWatcher::State : health::PassiveChecks {
    State(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls,
          Sources* sources_, Permissions permissions)
        : sources(sources_),
          board(clock),
          programs(executor, 16, std::move(permissions.account)),
          aggregator(
              executor, clock,
              {.name = std::move(vantage),
               .deps = {.tls = std::move(tls),
                        .programs = &programs,
                        .program_paths = std::move(permissions.programs),
                        .plugin_folders = {},
                        .outbound = std::move(permissions.outbound),
                        .passive = this,
                        .secrets = std::move(permissions.secrets)},
               .rule = {},
               .prober = {}},
              [this](const std::string& key, const health::AggregatedHealth& aggregated) { on_aggregated(key, aggregated); }) {}

    struct CheckState {
        std::string monitor;
        Cause cause = Cause::probe;
        bool counts = false;   ///< by itself, not only as a part of a calculated check
        bool balancer = false; ///< of the regional load balancer that the member is
        health::AggregatedHealth aggregated;
        std::optional<health::StatusSource::Reading> reading; ///< the last reading of the source
        int unanswered = 0;                                   ///< consecutive queries that failed
        std::string unreachable_reason;                       ///< set after too many failed queries
    };
    struct MemberChecks {
        std::map<std::string, CheckState> checks; ///< by the key of the aggregator
        std::vector<Target::Check> calculated;
        std::string error;     ///< why a check cannot start
        std::string unchecked; ///< why a check cannot run, as last reported
        bool updating = false; ///< `watch` reports once, at its end
    };

    // --- External health sources

    Result<health::ProbePtr> probe(const json::object& check_state, const std::string& address, std::uint16_t port) override {
        const auto kind = health::probe_kind_of(check_state);
        if (kind == health::ProbeKind::push) return health::push_probe(board, text_at(check_state, "for"));
        if (sources == nullptr) return Error{Code::unsupported, "this server queries no external health sources"};
        auto id = text_at(check_state, "id");
        if (kind == health::ProbeKind::prometheus) {
            const bool v6 = address.find(':') != std::string::npos;
            id = port == 0 ? address : fmt::format("{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", port);
        }
        return std::make_shared<PassiveProbe>(sources->reader(check_state), std::move(id), text_at(check_state, "for"),
                                              [this](const std::string& key,
                                                     const std::optional<health::StatusSource::Reading>& last,
                                                     const std::string& error) { on_reading(key, last, error); });
    }

    void on_reading(const std::string& key, const std::optional<health::StatusSource::Reading>& last, const std::string& error) {
        const auto [found, at] = find_check(key);
        if (at == nullptr) return;
        auto& check_state = *at;
        const auto before = std::exchange(check_state.reading, last ? last : check_state.reading);
        bool same = !check_state.balancer || !last ||
                    (before && before->drains == last->drains && before->share == last->share &&
                     health::is_evidence(before->outcome) == health::is_evidence(last->outcome));
        check_state.unanswered = error.empty() ? 0 : std::min(check_state.unanswered + 1, max_unanswered);
        if (check_state.unanswered == 0 && !check_state.unreachable_reason.empty()) {
            check_state.unreachable_reason.clear();
            same = false;
        } else if (check_state.unanswered == max_unanswered && check_state.unreachable_reason != error) {
            check_state.unreachable_reason = error;
            same = false;
        }
        const auto member = found->first; // NOLINT: the callback may remove the member and its checks
        const bool has_addresses = last && check_state.balancer;
        if (!same) report(member, found->second);
        if (!has_addresses) return;
        Addresses addresses;
        for (const auto& text : last->addresses) std::ignore = addresses.add(text); // one of each family is enough
        if (!addresses.empty() && on_addresses) on_addresses(member, addresses);
    }

    /// The check of that key, with its member; null if it was removed.
    std::pair<std::map<std::string, MemberChecks>::iterator, CheckState*> find_check(const std::string& key) {
        const auto found = members.find(key.substr(0, key.find('|')));
        if (found == members.end()) return {found, nullptr};
        const auto check_state = found->second.checks.find(key);
        return {found, check_state == found->second.checks.end() ? nullptr : &check_state->second};
    }

    void on_aggregated(const std::string& key, const health::AggregatedHealth& aggregated) {
        const auto [found, check_state] = find_check(key);
        if (check_state == nullptr) return;
        check_state->aggregated = aggregated;
        if (!found->second.updating) report(found->first, found->second);
    }

    // --- Combination to one health

    /// Adds one check.
    static void add(MemberHealth& health, json::array& evidence, const CheckState& check_state) {
        const auto& aggregated = check_state.aggregated;
        const auto state = aggregated.state;
        if (severity(state) > severity(health.state)) {
            health.state = state;
            health.cause = check_state.cause;
        }
        health.stale = health.stale || aggregated.stale;
        if (state != HealthState::unknown)
            health.until_change =
                health.until_change ? std::min(*health.until_change, aggregated.until_change) : aggregated.until_change;
        if (!health.unconfirmed && state != HealthState::down)
            health.unconfirmed = unconfirmed_failure(check_state.monitor, aggregated.decision);
        for (const auto& [vantage, ms] : aggregated.rtt) health.rtt[vantage] = std::max(health.rtt[vantage], ms);
        if (state == HealthState::up && !aggregated.decision.withheld) return;
        const auto what = first_failure(aggregated.decision.evidence);
        if (what.empty()) return;
        health.message +=
            fmt::format("{}{}: {}, {}", health.message.empty() ? "" : "; ", check_state.monitor, what, aggregated.decision.message);
        for (const auto& one : aggregated.decision.evidence) {
            auto line = one.get_object();
            line.erase("ms"); // the duration of every probe differs: it is not new evidence
            line["monitor"] = check_state.monitor;
            evidence.emplace_back(std::move(line));
        }
    }

    /// Adds a calculated check.
    static void add(MemberHealth& health, json::array& evidence, const MemberChecks& of, const Target::Check& check) {
        std::vector<HealthState> parts;
        auto cause = Cause::probe;
        json::object parts_state;
        for (const auto& part : check.parts) {
            std::optional<HealthState> state;
            for (const auto& [key, check_state] : of.checks)
                if (check_state.monitor == part.monitor) {
                    state = worse(state.value_or(HealthState::up), check_state.aggregated.state);
                    health.stale = health.stale || check_state.aggregated.stale;
                    if (check_state.aggregated.state != HealthState::unknown)
                        health.until_change = health.until_change
                                                  ? std::min(*health.until_change, check_state.aggregated.until_change)
                                                  : check_state.aggregated.until_change;
                    if (check_state.cause != Cause::probe) cause = check_state.cause;
                }
            parts.push_back(state.value_or(HealthState::unknown));
            parts_state[part.monitor] = name_of(state.value_or(HealthState::unknown));
        }
        const auto seen = health::calculate(formula_of(check.spec), parts);
        const auto state = state_from(seen.outcome);
        if (severity(state) > severity(health.state)) {
            health.state = state;
            health.cause = cause;
        }
        if (state == HealthState::up) return;
        health.message += fmt::format("{}{}: {}", health.message.empty() ? "" : "; ", check.monitor, seen.text);
        evidence.push_back(json::object{
            {"monitor", check.monitor}, {"state", name_of(state)}, {"message", seen.text}, {"parts", std::move(parts_state)}});
    }

    /// Why a check cannot run. Checks of external sources report `unreachable_reason` instead.
    static std::string unchecked_in(const MemberChecks& of) {
        if (!of.error.empty()) return of.error;
        for (const auto& [key, check_state] : of.checks)
            if (!check_state.aggregated.decision.error.empty() && check_state.cause == Cause::probe)
                return fmt::format("{}: {}", check_state.monitor, check_state.aggregated.decision.error);
        return {};
    }

    /// Logs the first member with a reason, not a thousand more.
    void note_unchecked(MemberChecks& of, std::string reason) {
        if (of.unchecked == reason) return;
        if (const auto known = unchecked_by_reason.find(of.unchecked); known != unchecked_by_reason.end() && --known->second == 0) {
            log::info(Context::background(), "checks run again: {}", of.unchecked);
            unchecked_by_reason.erase(known);
        }
        of.unchecked = std::move(reason);
        if (!of.unchecked.empty() && ++unchecked_by_reason[of.unchecked] == 1)
            log::warn(Context::background(), "check cannot run: {}", of.unchecked);
    }

    void report(const std::string& member, MemberChecks& of) {
        MemberHealth health;
        note_unchecked(of, unchecked_in(of));
        health.unchecked = of.unchecked;
        health.monitored = true;
        health.state = HealthState::up;
        json::array evidence;
        if (!of.error.empty()) {
            health.state = HealthState::unknown;
            health.message = of.error;
        }
        const auto counting = std::count_if(of.checks.begin(), of.checks.end(), [](const auto& one) { return one.second.counts; }) +
                              static_cast<std::ptrdiff_t>(of.calculated.size());
        for (const auto& [key, check_state] : of.checks) {
            if (!check_state.counts) continue;
            // A load balancer without a health monitor of its own: only the probes from here count.
            if (check_state.balancer && check_state.reading && !health::is_evidence(check_state.reading->outcome)) {
                if (counting > 1) continue;
                auto unknown = check_state;
                unknown.aggregated.state = HealthState::unknown;
                add(health, evidence, unknown);
                health.message = check_state.reading->text;
                continue;
            }
            add(health, evidence, check_state);
            const auto state = check_state.aggregated.state;
            if (!check_state.unreachable_reason.empty()) {
                const auto message =
                    check_state.unreachable_reason + (state == HealthState::unknown ? "" : "; its last status stays");
                health.message += fmt::format("{}{}", health.message.empty() ? "" : "; ", message);
                if (!health.unconfirmed && (state == HealthState::up || state == HealthState::degraded))
                    health.unconfirmed = {Cause::source_silent, message};
            }
            if (!check_state.balancer || !check_state.reading) continue;
            health.drains = check_state.reading->drains;
            health.share = check_state.reading->share;
            if (state != HealthState::up || health.drains)
                health.message += fmt::format("{}{}", health.message.empty() ? "" : "; ", check_state.reading->text);
        }
        for (const auto& check : of.calculated) add(health, evidence, of, check);
        if (!evidence.empty()) health.evidence = std::move(evidence);
        if (on_health) on_health(member, std::move(health));
    }

    /// Starts or changes the check of one address, and adds its key to `wanted` if it can run.
    void set_check(const std::string& member, MemberChecks& of, const Target& target, const Target::Check& check,
                   const std::string& address, bool counts, std::set<std::string>& wanted) {
        const auto key = fmt::format("{}|{}|{}", member, check.monitor, address);
        const auto times = MonitorSpec::from(check.monitor, check.spec);
        const auto added = of.checks.try_emplace(key);
        auto& check_state = added.first->second;
        check_state.monitor = check.monitor;
        check_state.cause = cause_of(check.spec);
        check_state.counts = (wanted.contains(key) && check_state.counts) || counts;
        check_state.balancer = health::probe_kind_of(check.spec) == health::ProbeKind::octavia && check.monitor == "octavia";
        if (added.second) {
            check_state.aggregated.state = target.last_known;
            check_state.aggregated.stale = target.last_known != HealthState::unknown;
            check_state.aggregated.until_change =
                times.interval * (target.last_known == HealthState::down ? times.rise : times.fall);
        }
        auto how = probe_spec_of(check.spec);
        if (health::is_passive(how))
            how["for"] = health::probe_kind_of(how) == health::ProbeKind::push ? pushed_status_key(member, check.monitor) : key;
        const auto set =
            aggregator.set(key,
                           {.probe = std::move(how),
                            .address = address,
                            .port = target.port,
                            .interval = times.interval,
                            .timeout = std::min(times.timeout, times.interval),
                            .thresholds = {times.rise, times.fall, static_cast<int>(count_at(check.spec, "forgive", 1, 100))},
                            .fast_interval = times.fast_interval,
                            .down_interval = times.down_interval},
                           {.need = static_cast<int>(count_at(check.spec, "quorum", 0, 1000))}, target.last_known);
        if (set.ok()) {
            wanted.insert(key);
            return;
        }
        of.error = fmt::format("{}: {}{}{}", check.monitor, set.error().message, set.error().remedy.empty() ? "" : "; ",
                               set.error().remedy);
    }

    Sources* sources;
    OnHealth on_health;
    OnAddresses on_addresses;
    std::map<std::string, MemberChecks> members;
    std::map<std::string, std::size_t> unchecked_by_reason; ///< members
    health::PushedStatuses board;
    health::Programs programs;
    health::HealthAggregator aggregator;
};

HealthWatcher::HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage,
                             std::shared_ptr<net::TlsContext> tls, Sources* sources, Permissions permissions)
    : state_(std::make_unique<State>(std::move(executor), clock, std::move(vantage), std::move(tls), sources,
                                     std::move(permissions))) {}
HealthWatcher::HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage,
                             std::shared_ptr<net::TlsContext> tls, Sources* sources)
    : HealthWatcher(std::move(executor), clock, std::move(vantage), std::move(tls), sources, Permissions{}) {}
HealthWatcher::~HealthWatcher() = default;

void HealthWatcher::report_to(OnHealth on_health) { state_->on_health = std::move(on_health); }
void HealthWatcher::report_addresses_to(OnAddresses on_addresses) { state_->on_addresses = std::move(on_addresses); }

void HealthWatcher::watch(const std::string& member, Target target) {
    auto& of = state_->members[member];
    of.error.clear();
    of.calculated.clear();
    of.updating = true;
    std::set<std::string> wanted;
    const auto probe_addresses = [&](const Target::Check& check, bool counts) {
        const auto kind = health::probe_kind_of(check.spec);
        if (kind == health::ProbeKind::octavia || kind == health::ProbeKind::push) // they have one status for all addresses
            return state_->set_check(member, of, target, check, "", counts, wanted);
        // Both addresses belong to one member: it is up if both are.
        for (const auto& address : target.addresses.texts()) state_->set_check(member, of, target, check, address, counts, wanted);
    };
    for (const auto& check : target.checks) {
        if (!is_calculated(check.spec)) {
            probe_addresses(check, true);
            continue;
        }
        of.calculated.push_back(check);
        for (const auto& part : check.parts)
            if (!is_calculated(part.spec)) probe_addresses(part, false);
    }
    for (auto check_state = of.checks.begin(); check_state != of.checks.end();) {
        if (wanted.contains(check_state->first)) {
            ++check_state;
            continue;
        }
        state_->aggregator.remove(check_state->first);
        check_state = of.checks.erase(check_state);
    }
    of.updating = false;
    state_->report(member, of);
}

void HealthWatcher::forget(const std::string& member) {
    const auto found = state_->members.find(member);
    if (found == state_->members.end()) return;
    for (const auto& [key, check_state] : found->second.checks) state_->aggregator.remove(key);
    state_->note_unchecked(found->second, {});
    state_->members.erase(found);
}

asio::awaitable<void> HealthWatcher::run(Context ctx) { return state_->aggregator.run(std::move(ctx)); }
health::Prober::Counts HealthWatcher::counts() const { return state_->aggregator.counts(); }
std::size_t HealthWatcher::unchecked() const {
    std::size_t out = 0;
    for (const auto& [reason, members] : state_->unchecked_by_reason) out += members;
    return out;
}
Duration HealthWatcher::vantage_expiry() const { return state_->aggregator.vantage_expiry(); }
health::HealthAggregator& HealthWatcher::aggregator() { return state_->aggregator; }
health::PushedStatuses& HealthWatcher::board() { return state_->board; }

} // namespace orrery::gslb
