#include "gslb/health_watcher.h"

#include "gslb/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

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

/// So many looks in a row without an answer are worth a word.
constexpr int silent_looks = 3;

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

/// A look at what a source says. Whoever keeps the look is told with each how it went: where a load balancer is, whether it drains,
/// and that the source could not be asked.
class InformedProbe final : public health::Probe {
public:
    /// `trouble`: why the source could not be asked.
    using Told = std::function<void(const std::string& look, const std::optional<health::StatusSource::Reading>& last,
                                    const std::string& trouble)>;
    InformedProbe(std::shared_ptr<health::SourceReader> reader, std::string id, std::string look, Told told)
        : reader_(std::move(reader)), id_(std::move(id)), look_(std::move(look)), told_(std::move(told)) {}
    std::string identity() const override { return fmt::format("{} {} for {}", reader_->source().name(), id_, look_); }
    asio::awaitable<health::Observation> look(Context ctx) const override {
        auto seen = co_await reader_->look(std::move(ctx), id_);
        auto trouble = reader_->trouble(id_);
        if (!trouble.empty()) trouble = fmt::format("{} cannot be asked: {}", reader_->source().name(), trouble);
        told_(look_, reader_->last(id_), trouble);
        co_return seen;
    }

private:
    std::shared_ptr<health::SourceReader> reader_;
    std::string id_, look_;
    Told told_;
};

Health worse(Health left, Health right) { return trouble_of(right) > trouble_of(left) ? right : left; }

Health health_from(health::Outcome outcome) {
    if (outcome == health::Outcome::ok) return Health::up;
    if (outcome == health::Outcome::warning) return Health::degraded;
    return health::is_evidence(outcome) ? Health::down : Health::unknown;
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

/// What a look of that kind is found out by, for the records.
std::string_view cause_of(const json::object& spec) {
    const auto kind = text_at(spec, "kind");
    return kind == "push" ? "push" : kind == "octavia" || kind == "prometheus" ? "driver" : "probe";
}

} // namespace

struct HealthWatcher::State : health::InformedLooks {
    State(asio::any_io_executor executor, Clock& clock, std::string vantage, std::shared_ptr<net::TlsContext> tls,
          Sources* sources_)
        : sources(sources_),
          board(clock),
          programs(executor),
          lookout(executor, clock,
                  {.name = std::move(vantage),
                   .tools = {.tls = std::move(tls), .programs = &programs, .informed = this},
                   .rule = {},
                   .prober = {}},
                  [this](const std::string& key, const health::Finding& finding) { take(key, finding); }) {}

    struct Look {
        std::string monitor;
        std::string cause;
        bool counts = false;   ///< by itself, and not only as a part of a calculated one
        bool balancer = false; ///< of the load balancer that the member is
        health::Finding finding;
        std::optional<health::StatusSource::Reading> reading; ///< what the source that is asked last said
        int unanswered = 0;                                   ///< times in a row that it could not be asked
        std::string silence;                                  ///< why, where they are too many
    };
    struct Watched {
        std::map<std::string, Look> looks; ///< by the lookout's key
        std::vector<Target::Check> calculated;
        std::string trouble;   ///< why it cannot be looked at
        bool settling = false; ///< `watch` tells once, at its end
    };

    // --- Those who know

    Result<health::ProbePtr> probe(const json::object& look, const std::string& address, std::uint16_t port) override {
        const auto kind = text_at(look, "kind");
        if (kind == "push") return health::push_probe(board, text_at(look, "for"));
        if (sources == nullptr) return Error{Code::unsupported, "nobody can be asked here"};
        auto id = text_at(look, "id");
        if (kind == "prometheus") {
            const bool v6 = address.find(':') != std::string::npos;
            id = port == 0 ? address : fmt::format("{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", port);
        }
        return std::make_shared<InformedProbe>(sources->reader(look), std::move(id), text_at(look, "for"),
                                               [this](const std::string& key,
                                                      const std::optional<health::StatusSource::Reading>& last,
                                                      const std::string& trouble) { told(key, last, trouble); });
    }

    void told(const std::string& key, const std::optional<health::StatusSource::Reading>& last, const std::string& trouble) {
        const auto [found, at] = look_at(key);
        if (at == nullptr) return;
        auto& look = *at;
        const auto before = std::exchange(look.reading, last ? last : look.reading);
        bool same = !look.balancer || !last ||
                    (before && before->drains == last->drains && before->share == last->share &&
                     health::is_evidence(before->outcome) == health::is_evidence(last->outcome));
        look.unanswered = trouble.empty() ? 0 : std::min(look.unanswered + 1, silent_looks);
        if (look.unanswered == 0 && !look.silence.empty()) {
            look.silence.clear();
            same = false;
        } else if (look.unanswered == silent_looks && look.silence != trouble) {
            look.silence = trouble;
            same = false;
        }
        const auto member = found->first; // NOLINT: who is told may have it forgotten, and the look with it
        const bool told_where = last && look.balancer;
        if (!same) tell(member, found->second);
        if (!told_where) return;
        Addresses addresses;
        for (const auto& text : last->addresses) std::ignore = addresses.add(text); // one of each family is enough
        if (!addresses.empty() && on_place) on_place(member, addresses);
    }

    /// The look that the lookout knows by that key, with the member whose it is; null where it is kept no more.
    std::pair<std::map<std::string, Watched>::iterator, Look*> look_at(const std::string& key) {
        const auto found = watched.find(key.substr(0, key.find('|')));
        if (found == watched.end()) return {found, nullptr};
        const auto look = found->second.looks.find(key);
        return {found, look == found->second.looks.end() ? nullptr : &look->second};
    }

    void take(const std::string& key, const health::Finding& finding) {
        const auto [found, look] = look_at(key);
        if (look == nullptr) return;
        look->finding = finding;
        if (!found->second.settling) tell(found->first, found->second);
    }

    // --- From many to one

    /// Adds what one look says.
    static void add(Signal& signal, json::array& evidence, const Look& look) {
        const auto& finding = look.finding;
        const auto health = health_of(finding.standing);
        if (trouble_of(health) > trouble_of(signal.standing)) {
            signal.standing = health;
            signal.cause = look.cause;
        }
        signal.stale = signal.stale || finding.stale;
        if (health != Health::unknown)
            signal.until_change = signal.until_change ? std::min(*signal.until_change, finding.until_change) : finding.until_change;
        if (!signal.doubt && health != Health::down) signal.doubt = doubt_of(look.monitor, finding.decision);
        for (const auto& [vantage, ms] : finding.rtt) signal.rtt[vantage] = std::max(signal.rtt[vantage], ms);
        if (health == Health::up && !finding.decision.withheld) return;
        const auto what = class_of(finding.decision.evidence);
        if (what.empty()) return;
        signal.words += fmt::format("{}{}: {}, {}", signal.words.empty() ? "" : "; ", look.monitor, what, finding.decision.words);
        for (const auto& one : finding.decision.evidence) {
            auto line = one.get_object();
            line.erase("ms"); // every look takes another time: it is no other evidence
            line["monitor"] = look.monitor;
            evidence.emplace_back(std::move(line));
        }
    }

    /// Adds what follows from others.
    static void add(Signal& signal, json::array& evidence, const Watched& of, const Target::Check& check) {
        std::vector<health::Standing> parts;
        std::string cause = "probe";
        json::object says;
        for (const auto& part : check.parts) {
            std::optional<Health> health;
            for (const auto& [key, look] : of.looks)
                if (look.monitor == part.monitor) {
                    health = worse(health.value_or(Health::up), health_of(look.finding.standing));
                    signal.stale = signal.stale || look.finding.stale;
                    if (look.finding.standing != health::Standing::unknown)
                        signal.until_change = signal.until_change ? std::min(*signal.until_change, look.finding.until_change)
                                                                  : look.finding.until_change;
                    if (look.cause != "probe") cause = look.cause;
                }
            parts.push_back(standing_of(health.value_or(Health::unknown)));
            says[part.monitor] = name_of(health.value_or(Health::unknown));
        }
        const auto seen = health::calculate(formula_of(check.spec), parts);
        const auto health = health_from(seen.outcome);
        if (trouble_of(health) > trouble_of(signal.standing)) {
            signal.standing = health;
            signal.cause = cause;
        }
        if (health == Health::up) return;
        signal.words += fmt::format("{}{}: {}", signal.words.empty() ? "" : "; ", check.monitor, seen.text);
        evidence.push_back(
            json::object{{"monitor", check.monitor}, {"says", name_of(health)}, {"text", seen.text}, {"parts", std::move(says)}});
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
        const auto counting = std::count_if(of.looks.begin(), of.looks.end(), [](const auto& one) { return one.second.counts; }) +
                              static_cast<std::ptrdiff_t>(of.calculated.size());
        for (const auto& [key, look] : of.looks) {
            if (!look.counts) continue;
            // Where nothing there watches its members, whoever looks at it from here has the word.
            if (look.balancer && look.reading && !health::is_evidence(look.reading->outcome)) {
                if (counting > 1) continue;
                auto unknown = look;
                unknown.finding.standing = health::Standing::unknown;
                add(signal, evidence, unknown);
                signal.words = look.reading->text;
                continue;
            }
            add(signal, evidence, look);
            const auto health = health_of(look.finding.standing);
            if (!look.silence.empty()) {
                const auto words = look.silence + (health == Health::unknown ? "" : "; what it last said stands");
                signal.words += fmt::format("{}{}", signal.words.empty() ? "" : "; ", words);
                if (!signal.doubt && (health == Health::up || health == Health::degraded)) signal.doubt = {"source_silent", words};
            }
            if (!look.balancer || !look.reading) continue;
            signal.drains = look.reading->drains;
            signal.share = look.reading->share;
            if (health != Health::up || signal.drains)
                signal.words += fmt::format("{}{}", signal.words.empty() ? "" : "; ", look.reading->text);
        }
        for (const auto& check : of.calculated) add(signal, evidence, of, check);
        if (!evidence.empty()) signal.evidence = std::move(evidence);
        if (on_signal) on_signal(member, std::move(signal));
    }

    Sources* sources;
    OnSignal on_signal;
    OnPlace on_place;
    std::map<std::string, Watched> watched;
    health::PushBoard board;
    health::Programs programs;
    health::Lookout lookout;
};

HealthWatcher::HealthWatcher(asio::any_io_executor executor, Clock& clock, std::string vantage,
                             std::shared_ptr<net::TlsContext> tls, Sources* sources)
    : state_(std::make_unique<State>(std::move(executor), clock, std::move(vantage), std::move(tls), sources)) {}
HealthWatcher::~HealthWatcher() = default;

void HealthWatcher::report_to(OnSignal on_signal) { state_->on_signal = std::move(on_signal); }
void HealthWatcher::report_places_to(OnPlace on_place) { state_->on_place = std::move(on_place); }

void HealthWatcher::watch(const std::string& member, Target target) {
    auto& of = state_->watched[member];
    of.trouble.clear();
    of.calculated.clear();
    of.settling = true;
    std::set<std::string> wanted;
    const auto look_at = [&](const Target::Check& check, const std::string& address, bool counts) {
        const auto key = fmt::format("{}|{}|{}", member, check.monitor, address);
        const auto times = MonitorSpec::from(check.monitor, check.spec);
        const auto added = of.looks.try_emplace(key);
        auto& look = added.first->second;
        look.monitor = check.monitor;
        look.cause = cause_of(check.spec);
        look.counts = (wanted.contains(key) && look.counts) || counts;
        look.balancer = text_at(check.spec, "kind") == "octavia" && check.monitor == "octavia";
        if (added.second) {
            look.finding.standing = standing_of(target.remembered);
            look.finding.stale = target.remembered != Health::unknown;
            look.finding.until_change = times.interval * (target.remembered == Health::down ? times.rise : times.fall);
        }
        auto how = look_of(check.spec);
        const auto kind = text_at(how, "kind");
        if (health::is_informed(how)) how["for"] = kind == "push" ? board_key(member, check.monitor) : key;
        const auto set = state_->lookout.set(
            key,
            {.look = std::move(how),
             .address = address,
             .port = target.port,
             .interval = times.interval,
             .timeout = std::min(times.timeout, times.interval),
             .thresholds = {times.rise, times.fall, static_cast<int>(count_at(check.spec, "forgive", 1, 100))},
             .fast = times.fast,
             .slow = times.slow},
            {.need = static_cast<int>(count_at(check.spec, "quorum", 0, 1000))}, standing_of(target.remembered));
        if (set.ok()) {
            wanted.insert(key);
            return;
        }
        of.trouble = fmt::format("{}: {}{}{}", check.monitor, set.error().message, set.error().remedy.empty() ? "" : "; ",
                                 set.error().remedy);
    };
    const auto look_everywhere = [&](const Target::Check& check, bool counts) {
        const auto kind = text_at(check.spec, "kind");
        if (kind == "octavia" || kind == "push") return look_at(check, "", counts); // told of it as a whole
        // Both addresses of a member are one machine: it is good if both are.
        for (const auto& address : target.addresses.texts()) look_at(check, address, counts);
    };
    for (const auto& check : target.checks) {
        if (text_at(check.spec, "kind") != "calculated") {
            look_everywhere(check, true);
            continue;
        }
        of.calculated.push_back(check);
        for (const auto& part : check.parts)
            if (text_at(part.spec, "kind") != "calculated") look_everywhere(part, false);
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
health::PushBoard& HealthWatcher::board() { return state_->board; }

} // namespace orrery::gslb
