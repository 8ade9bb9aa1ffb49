#include "gslb/health_watcher.h"

#include "gslb/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orrery::gslb {

namespace {

health::Standing standing_of(Health health) {
    switch (health) {
    case Health::unknown: return health::Standing::unknown;
    case Health::up: return health::Standing::up;
    case Health::degraded: return health::Standing::degraded;
    case Health::down: return health::Standing::down;
    }
    return health::Standing::unknown;
}

Health health_of(health::Standing standing) {
    switch (standing) {
    case health::Standing::unknown: return Health::unknown;
    case health::Standing::up: return Health::up;
    case health::Standing::degraded: return Health::degraded;
    case health::Standing::down: return Health::down;
    }
    return Health::unknown;
}

/// Of several monitors the worst counts; one that knows nothing yet is worse than one that is good.
int trouble_of(Health health) {
    switch (health) {
    case Health::up: return 0;
    case Health::degraded: return 1;
    case Health::unknown: return 2;
    case Health::down: return 3;
    }
    return 3;
}

/// What of a Monitor's spec says how to look, without when and how often.
json::object look_of(json::object spec) {
    for (const auto field : monitor_pace) spec.erase(field);
    return spec;
}

/// What those say who do not find it good: "refused".
std::string class_of(const json::array& evidence) {
    for (const auto& one : evidence) {
        const auto& line = one.get_object();
        const auto says = text_at(line, "says");
        if (says == "down" || says == "degraded") return text_at(line, "class");
    }
    return {};
}

/// Whether somebody finds it down and is not believed.
std::optional<Doubt> doubt_of(const std::string& monitor, const health::QuorumDecision& decision) {
    std::string aside, found;
    for (const auto& one : decision.evidence) {
        const auto& line = one.get_object();
        const bool ignored = flag_at(line, "set_aside") && line.contains("would_say");
        if (!ignored && text_at(line, "says") != "down") continue;
        found += fmt::format("{}{} says {}", found.empty() ? "" : ", ", text_at(line, "vantage"), text_at(line, "class"));
        if (ignored) aside += fmt::format("; {} is set aside: {}", text_at(line, "vantage"), text_at(line, "left_out"));
    }
    if (!decision.withheld && aside.empty()) return std::nullopt;
    return Doubt{decision.withheld ? "quorum_hold" : "vantage_excluded",
                 fmt::format("{}: {}; {}{}", monitor, found, decision.words, aside)};
}

} // namespace

struct HealthWatcher::State {
    State(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls)
        : programs(executor),
          lookout(executor, clock,
                  {.name = std::move(vantage), .tools = {.tls = std::move(tls), .programs = &programs}, .rule = {}, .prober = {}},
                  [this](const std::string& key, const health::Finding& finding) { take(key, finding); }) {}

    struct Look {
        std::string monitor;
        health::Finding finding;
    };
    struct Watched {
        std::map<std::string, Look> looks; ///< by the lookout's key
        std::string trouble;               ///< why it cannot be looked at
        bool settling = false;             ///< `watch` tells once, at its end
    };

    void take(const std::string& key, const health::Finding& finding) {
        const auto member = key.substr(0, key.find('|'));
        const auto found = watched.find(member);
        if (found == watched.end()) return;
        const auto look = found->second.looks.find(key);
        if (look == found->second.looks.end()) return;
        look->second.finding = finding;
        if (!found->second.settling) tell(member, found->second);
    }

    void tell(const std::string& member, const Watched& of) {
        Signal signal;
        signal.monitored = true;
        signal.standing = Health::up;
        json::array evidence;
        if (!of.trouble.empty()) {
            signal.standing = Health::unknown;
            signal.words = of.trouble;
        }
        for (const auto& [key, look] : of.looks) {
            const auto& finding = look.finding;
            const auto health = health_of(finding.standing);
            if (trouble_of(health) > trouble_of(signal.standing)) signal.standing = health;
            signal.stale = signal.stale || finding.stale;
            if (health != Health::unknown)
                signal.until_change =
                    signal.until_change ? std::min(*signal.until_change, finding.until_change) : finding.until_change;
            if (!signal.doubt && health != Health::down) signal.doubt = doubt_of(look.monitor, finding.decision);
            for (const auto& [vantage, ms] : finding.rtt) signal.rtt[vantage] = std::max(signal.rtt[vantage], ms);
            if (health == Health::up && !finding.decision.withheld) continue;
            const auto what = class_of(finding.decision.evidence);
            if (what.empty()) continue;
            signal.words +=
                fmt::format("{}{}: {}, {}", signal.words.empty() ? "" : "; ", look.monitor, what, finding.decision.words);
            for (const auto& one : finding.decision.evidence) {
                auto line = one.get_object();
                line.erase("ms"); // every look takes another time: it is no other evidence
                line["monitor"] = look.monitor;
                evidence.emplace_back(std::move(line));
            }
        }
        if (!evidence.empty()) signal.evidence = std::move(evidence);
        if (on_signal) on_signal(member, std::move(signal));
    }

    OnSignal on_signal;
    std::map<std::string, Watched> watched;
    health::Programs programs;
    health::Lookout lookout;
};

HealthWatcher::HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage,
                             std::shared_ptr<net::TlsContext> tls)
    : state_(std::make_unique<State>(std::move(executor), clock, std::move(vantage), std::move(tls))) {}
HealthWatcher::~HealthWatcher() = default;

void HealthWatcher::report_to(OnSignal on_signal) { state_->on_signal = std::move(on_signal); }

void HealthWatcher::watch(const std::string& member, Target target) {
    auto& of = state_->watched[member];
    of.trouble.clear();
    of.settling = true;
    std::map<std::string, bool> wanted;
    // Both addresses of a member are one machine: it is good if both are.
    for (const auto& address : target.addresses.texts())
        for (const auto& check : target.checks) {
            const auto key = fmt::format("{}|{}|{}", member, check.monitor, address);
            const auto times = MonitorSpec::from(check.monitor, check.spec);
            const auto added = of.looks.try_emplace(key);
            added.first->second.monitor = check.monitor;
            if (added.second) {
                added.first->second.finding.standing = standing_of(target.remembered);
                added.first->second.finding.stale = target.remembered != Health::unknown;
                added.first->second.finding.until_change =
                    times.interval * (target.remembered == Health::down ? times.rise : times.fall);
            }
            const auto set = state_->lookout.set(
                key,
                {.look = look_of(check.spec),
                 .address = address,
                 .port = target.port,
                 .interval = times.interval,
                 .timeout = times.timeout,
                 .thresholds = {times.rise, times.fall, static_cast<int>(count_at(check.spec, "forgive", 1, 100))}},
                {.need = static_cast<int>(count_at(check.spec, "quorum", 0, 1000))}, standing_of(target.remembered));
            if (set.ok()) {
                wanted[key] = true;
                continue;
            }
            of.trouble = fmt::format("{}: {}{}{}", check.monitor, set.error().message, set.error().remedy.empty() ? "" : "; ",
                                     set.error().remedy);
        }
    for (auto look = of.looks.begin(); look != of.looks.end();) {
        if (wanted.contains(look->first)) {
            ++look;
            continue;
        }
        state_->lookout.remove(look->first);
        look = of.looks.erase(look);
    }
    of.settling = false;
    state_->tell(member, of);
}

void HealthWatcher::forget(const std::string& member) {
    const auto found = state_->watched.find(member);
    if (found == state_->watched.end()) return;
    for (const auto& [key, look] : found->second.looks) state_->lookout.remove(key);
    state_->watched.erase(found);
}

asio::awaitable<void> HealthWatcher::run(Context ctx) { return state_->lookout.run(std::move(ctx)); }
health::Prober::Counts HealthWatcher::counts() const { return state_->lookout.counts(); }
health::Lookout& HealthWatcher::lookout() { return state_->lookout; }

} // namespace orrery::gslb
