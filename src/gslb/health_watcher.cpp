#include "gslb/health_watcher.h"

#include "catalog/check.h"
#include "gslb/read.h"

#include <fmt/format.h>

#include <cmath>
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

Result<health::ProbePtr> probe_for(const std::string& address, std::uint16_t member_port, const json::object& spec,
                                   const std::shared_ptr<net::TlsContext>& tls) {
    const bool http = text_at(spec, "kind") == "http";
    const auto port = static_cast<std::uint16_t>(count_at(spec, "port", member_port == 0 && http ? 80 : member_port, 65535));
    if (port == 0) return Error{Code::invalid, "there is no port to look at", "set spec.port of the Monitor or of the Member"};
    if (!http) return health::tcp_probe({address, port});
    health::HttpLook look;
    const bool v6 = address.find(':') != std::string::npos;
    const auto path = text_at(spec, "path");
    look.url = fmt::format("http://{}{}{}:{}{}", v6 ? "[" : "", address, v6 ? "]" : "", port, path.empty() ? "/" : path);
    if (const auto method = text_at(spec, "method"); !method.empty()) look.method = method;
    for (const auto& [key, value] : object_at(spec, "headers"))
        if (value.is_string()) look.headers.emplace(std::string_view(key), std::string_view(value.get_string()));
    if (const auto host = text_at(spec, "host"); !host.empty()) look.headers["Host"] = host;
    look.body = text_at(spec, "body");
    look.contains = text_at(spec, "contains");
    if (const auto expect = text_at(spec, "expect"); !expect.empty()) {
        TRY(look.codes, catalog::parse_codes(expect));
    }
    return health::http_probe(std::move(look), tls);
}

} // namespace

struct HealthWatcher::State {
    State(asio::any_io_executor executor, Clock& clock, std::string vantage_, std::shared_ptr<net::TlsContext> tls_)
        : vantage(std::move(vantage_)),
          tls(std::move(tls_)),
          prober(std::move(executor), clock, {},
                 [this](const std::string& key, const health::Verdict& verdict, const health::Observation& seen, bool) {
                     take(key, verdict, seen);
                 }) {}

    struct Look {
        std::string monitor;
        Duration interval{};
        Health health = Health::unknown;
        bool stale = false;
        int until_change = 0;
        std::string words; ///< where it is not good
        std::string outcome;
        double ms = 0;
    };
    struct Watched {
        std::map<std::string, Look> looks; ///< by the prober's key
        std::string trouble;               ///< why it cannot be looked at
        double rtt = 0, told_rtt = 0;      ///< smoothed; as last told
    };

    void take(const std::string& key, const health::Verdict& verdict, const health::Observation& seen) {
        const auto member = key.substr(0, key.find('|'));
        const auto found = watched.find(member);
        if (found == watched.end()) return;
        const auto look = found->second.looks.find(key);
        if (look == found->second.looks.end()) return;
        auto& one = look->second;
        one.health = health_of(verdict.standing());
        one.stale = verdict.stale();
        one.until_change = verdict.until_change();
        one.ms = std::chrono::duration<double, std::milli>(seen.total).count();
        if (health::is_evidence(seen.outcome)) {
            one.outcome = health::name_of(seen.outcome);
            one.words = seen.outcome == health::Outcome::ok ? std::string() : seen.text.substr(0, 256);
        }
        if (health::is_good(seen.outcome)) {
            auto& rtt = found->second.rtt;
            rtt = rtt == 0 ? one.ms : 0.8 * rtt + 0.2 * one.ms;
        }
        tell(member, found->second);
    }

    void tell(const std::string& member, Watched& of) {
        Signal signal;
        signal.monitored = true;
        signal.standing = Health::up;
        json::array evidence;
        if (!of.trouble.empty()) {
            signal.standing = Health::unknown;
            signal.words = of.trouble;
        }
        for (const auto& [key, look] : of.looks) {
            if (trouble_of(look.health) > trouble_of(signal.standing)) signal.standing = look.health;
            signal.stale = signal.stale || look.stale;
            const Duration until = look.interval * look.until_change;
            signal.until_change = signal.until_change ? std::min(*signal.until_change, until) : until;
            if (look.health != Health::up && !look.words.empty()) {
                signal.words += fmt::format("{}{}: {}", signal.words.empty() ? "" : "; ", look.monitor, look.words);
                evidence.emplace_back(json::object{{"vantage", vantage}, {"monitor", look.monitor}, {"class", look.outcome}});
            }
        }
        if (!evidence.empty()) signal.evidence = std::move(evidence);
        // Every look takes a little longer or shorter than the last: only what matters is told.
        if (of.rtt > 0 && std::abs(of.rtt - of.told_rtt) > std::max(1.0, of.told_rtt / 10)) of.told_rtt = of.rtt;
        if (of.told_rtt > 0) signal.rtt[vantage] = std::round(of.told_rtt * 10) / 10;
        if (on_signal) on_signal(member, std::move(signal));
    }

    std::string vantage;
    std::shared_ptr<net::TlsContext> tls;
    OnSignal on_signal;
    std::map<std::string, Watched> watched;
    health::Prober prober;
};

HealthWatcher::HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage,
                             std::shared_ptr<net::TlsContext> tls)
    : state_(std::make_unique<State>(std::move(executor), clock, std::move(vantage), std::move(tls))) {}
HealthWatcher::~HealthWatcher() = default;

void HealthWatcher::report_to(OnSignal on_signal) { state_->on_signal = std::move(on_signal); }

void HealthWatcher::watch(const std::string& member, Target target) {
    auto& of = state_->watched[member];
    std::map<std::string, State::Look> looks;
    of.trouble.clear();
    // Both addresses of a member are one machine: it is good if both are.
    for (const auto& address : target.addresses.texts())
        for (const auto& check : target.checks) {
            const auto key = fmt::format("{}|{}|{}", member, check.monitor, address);
            auto probe = probe_for(address, target.port, check.spec, state_->tls);
            if (!probe.ok()) {
                of.trouble = fmt::format("{}: {}; {}", check.monitor, probe.error().message, probe.error().remedy);
                continue;
            }
            const auto times = MonitorSpec::from(check.monitor, check.spec);
            health::Watching how;
            how.probe = std::move(*probe);
            how.interval = times.interval;
            how.timeout = times.timeout;
            how.thresholds = {times.rise, times.fall, static_cast<int>(count_at(check.spec, "forgive", 1, 100))};
            how.remembered = standing_of(target.remembered);
            State::Look look{.monitor = check.monitor, .interval = times.interval};
            if (const auto before = of.looks.find(key); before != of.looks.end()) {
                look = before->second;
                look.interval = times.interval;
            } else {
                look.health = target.remembered;
                look.stale = target.remembered != Health::unknown;
                look.until_change = target.remembered == Health::down ? times.rise : times.fall;
            }
            looks.emplace(key, std::move(look));
            state_->prober.set(key, std::move(how));
        }
    for (const auto& [key, look] : of.looks)
        if (!looks.contains(key)) state_->prober.remove(key);
    of.looks = std::move(looks);
    state_->tell(member, of);
}

void HealthWatcher::forget(const std::string& member) {
    const auto found = state_->watched.find(member);
    if (found == state_->watched.end()) return;
    for (const auto& [key, look] : found->second.looks) state_->prober.remove(key);
    state_->watched.erase(found);
}

asio::awaitable<void> HealthWatcher::run(Context ctx) { return state_->prober.run(std::move(ctx)); }
health::Prober::Counts HealthWatcher::counts() const { return state_->prober.counts(); }

} // namespace orrery::gslb
