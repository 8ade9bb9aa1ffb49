#include "catalog/checker.h"

#include "catalog/json_read.h"
#include "core/log.h"
#include "resource/controller.h"

#include <boost/asio/this_coro.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace orrery::catalog {

namespace {

using namespace std::chrono_literals;
using Results = std::map<std::string, CheckResult>;

health::Standing standing_of(CheckStatus status) {
    switch (status) {
    case CheckStatus::passing: return health::Standing::up;
    case CheckStatus::warning: return health::Standing::degraded;
    case CheckStatus::critical: return health::Standing::down;
    }
    return health::Standing::down;
}

CheckStatus status_of(health::Standing standing) {
    switch (standing) {
    case health::Standing::up: return CheckStatus::passing;
    case health::Standing::degraded: return CheckStatus::warning;
    case health::Standing::unknown:
    case health::Standing::down: return CheckStatus::critical;
    }
    return CheckStatus::critical;
}

bool is_run_here(const Check& check) {
    return check.kind == Check::Kind::tcp || check.kind == Check::Kind::http || check.kind == Check::Kind::command;
}

json::object to_json(const Results& results) {
    json::object out;
    for (const auto& [id, result] : results) out[id] = result.to_json();
    return out;
}

/// A check of an instance or of a node, with where it stands.
struct Place {
    std::string node, address; ///< where it is looked at, unless the check says otherwise
    std::uint16_t port = 0;
    const std::vector<CheckView>* checks = nullptr;
};

} // namespace

struct Checker::State {
    State(asio::any_io_executor executor, resource::Resources& resources_, Catalog& catalog_, store::Leadership& leadership_,
          Clock& clock_, Options options_)
        : resources(resources_),
          catalog(catalog_),
          leadership(leadership_),
          clock(clock_),
          options(std::move(options_)),
          group(executor),
          timers_changed(executor),
          prober(executor, clock_, {.at_once = options.at_once},
                 [this](const std::string& key, const health::Verdict& verdict, const health::Observation& seen, bool) {
                     found(key, verdict, seen);
                 }),
          controller(
              resources_.store(), leadership_, clock_, {"instances/", "catalognodes/", "services/", "nodes/"},
              [this](Context ctx, std::string key, store::Fence fence) { return look_at(std::move(ctx), std::move(key), fence); },
              {.at_once = 64}) {}

    // --- What probes find -------------------------------------------------------------------------------------------

    static std::string probe_key(std::string_view resource_key, std::string_view check) {
        return fmt::format("{}\n{}", resource_key, check);
    }

    void found(const std::string& key, const health::Verdict& verdict, const health::Observation& seen) {
        if (!health::is_evidence(seen.outcome)) return;
        const auto line = key.find('\n');
        const auto resource_key = key.substr(0, line), check = key.substr(line + 1);
        catalog.confirm(resource_key, check);
        const auto status = status_of(verdict.standing());
        const auto* known = known_result(resource_key, check);
        auto& waiting = pending[resource_key];
        if (known != nullptr && known->status == status) {
            waiting.erase(check);
            if (waiting.empty()) pending.erase(resource_key);
            return;
        }
        waiting[check] = CheckResult{status, seen.text, seen.at, {}};
        controller.poke(resource_key);
    }

    const CheckResult* known_result(const std::string& resource_key, std::string_view check) const {
        const auto at = stored.find(resource_key);
        if (at == stored.end()) return nullptr;
        const auto result = at->second.find(std::string(check));
        return result == at->second.end() ? nullptr : &result->second;
    }

    // --- One look at one key ----------------------------------------------------------------------------------------

    void begin_term() {
        if (in_term) return;
        in_term = true;
        term_began = clock.steady();
        catalog.suspect_all();
    }

    void end_term() {
        in_term = false;
        prober.clear();
        watched.clear();
        pending.clear();
        stored.clear();
        timers.clear();
        due.clear();
        service_specs.clear();
    }

    Task<Unit> look_at(Context ctx, std::string key, store::Fence fence) {
        begin_term();
        if (key.starts_with("instances/")) co_return co_await look_at_instance(std::move(ctx), std::move(key), fence);
        if (key.starts_with("catalognodes/")) co_return co_await look_at_node(std::move(ctx), std::move(key), fence);
        if (key.starts_with("nodes/")) {
            for (const auto& instance : catalog.instances_on(key.substr(6))) controller.poke("instances/" + instance->resource);
            co_return Unit{};
        }
        co_return co_await look_at_service(std::move(ctx), std::move(key), fence);
    }

    Task<Unit> look_at_instance(Context ctx, std::string key, store::Fence fence) {
        const auto name = key.substr(key.find('/') + 1);
        const auto view = catalog.find_resource(name);
        if (!view) {
            forget(key);
            co_return Unit{};
        }
        const auto& kind = *resources.registry().find("Instance");
        CO_TRY(auto object, resources.get(kind, name));
        auto results = settle(key, {view->node, view->address, view->port, &view->checks}, object.status);
        if (should_be_removed(*view, results)) {
            log::info(ctx, "instance {} of {} on {} was critical for longer than it may: it is removed", view->id, view->service,
                      view->node);
            CO_TRY(std::ignore, co_await resources.remove(ctx, kind, name,
                                                          {.because = "critical for longer than remove_after", .fence = &fence}));
            co_return Unit{};
        }
        InstanceView judged = *view;
        for (auto& check : judged.checks)
            if (const auto at = results.find(check.check.id); at != results.end()) check.result = at->second;
        judge(judged);
        json::object status{{"state", name_of(judged.state)}, {"why", judged.why}};
        const bool same_state = text_at(object.status, "state") == name_of(judged.state) && object.status.contains("since");
        status["since"] = same_state ? object.status.at("since") : json::value(to_rfc3339(clock.wall()));
        status["checks"] = to_json(results);
        CO_TRY(std::ignore, co_await write(ctx, kind, name, object, std::move(status), fence));
        written(key, std::move(results));
        co_return Unit{};
    }

    Task<Unit> look_at_node(Context ctx, std::string key, store::Fence fence) {
        const auto name = key.substr(key.find('/') + 1);
        const auto& kind = *resources.registry().find("CatalogNode");
        const auto view = catalog.find_node_resource(name);
        if (!view || !resources.exists(kind, name)) {
            forget(key);
            co_return Unit{};
        }
        for (const auto& instance : catalog.instances_on(view->name)) controller.poke("instances/" + instance->resource);
        CO_TRY(auto object, resources.get(kind, name));
        auto results = settle(key, {view->name, view->address, 0, &view->checks}, object.status);
        CO_TRY(std::ignore, co_await write(ctx, kind, name, object, json::object{{"checks", to_json(results)}}, fence));
        written(key, std::move(results));
        co_return Unit{};
    }

    Task<Unit> look_at_service(Context ctx, std::string key, store::Fence fence) {
        const auto name = key.substr(key.find('/') + 1);
        const auto& kind = *resources.registry().find("Service");
        const auto record = resources.find(kind, name);
        const auto object = record ? resources.get(kind, name) : Result<resource::Object>();
        auto& seen = service_specs[name];
        const auto spec = object.ok() ? json::serialize(object->spec) : std::string();
        if (seen != spec) { // its checks may be others now
            seen = spec;
            for (const auto& instance : catalog.instances(name)) controller.poke("instances/" + instance->resource);
        }
        if (!object.ok()) {
            service_specs.erase(name);
            co_return Unit{};
        }
        CO_TRY(const auto members, catalog.members(name, ""));
        const auto registered = members.all.size(), usable = members.count(catalog::State::usable),
                   passing = members.count(catalog::State::passing);
        const auto wanted = catalog.wanted(name);
        json::object status{{"registered", registered}, {"usable", usable}, {"passing", passing}};
        if (wanted) status["wanted"] = *wanted;
        const auto need = wanted.value_or(0);
        std::string_view state = "complete";
        std::string why =
            wanted ? fmt::format("{} of {} wanted pass", passing, need) : fmt::format("{} pass; no number is wanted", passing);
        if (registered == 0 && need == 0) {
            state = "idle";
            why = "nobody registered it";
        } else if (passing == 0) {
            state = "empty";
        } else if (static_cast<std::int64_t>(passing) < need) {
            state = "short";
        }
        for (const auto& member : members.all)
            if (member.state != catalog::State::passing) {
                why += fmt::format("; on {} {}", member.node, member.why);
                break;
            }
        status["state"] = state;
        status["why"] = why;
        co_return co_await write(ctx, kind, name, *object, std::move(status), fence);
    }

    /// Sees to it that what should be looked at is, and what should expire will; returns all results there are now.
    Results settle(const std::string& key, const Place& place, const json::object& status) {
        Results results;
        for (const auto& [id, value] : object_at(status, "checks"))
            if (value.is_object()) results[std::string(id)] = CheckResult::from(value.get_object());
        stored[key] = results;
        const auto waiting = pending.find(key);
        std::set<std::string> here, known;
        for (const auto& view : *place.checks) {
            const auto& check = view.check;
            known.insert(check.id);
            if (waiting != pending.end())
                if (const auto news = waiting->second.find(check.id); news != waiting->second.end()) {
                    const auto before = results.find(check.id);
                    auto result = news->second;
                    if (before != results.end() && before->second.status == result.status) result.since = before->second.since;
                    results[check.id] = result;
                }
            const auto at = results.find(check.id);
            if (is_run_here(check)) {
                if (watch(key, place, check, at == results.end() ? nullptr : &at->second)) here.insert(check.id);
            } else if (check.kind == Check::Kind::ttl) {
                if (at == results.end()) heard.try_emplace(probe_key(key, check.id), clock.steady()); // its time begins now
                const auto stands = at == results.end() ? check.initial : at->second.status;
                set_timer(key, check.id, Timer::expiry,
                          stands == CheckStatus::critical
                              ? std::nullopt
                              : std::optional(expiry(key, check, at == results.end() ? CheckResult{} : at->second)));
            }
            if (check.remove_after && at != results.end() && at->second.status == CheckStatus::critical)
                set_timer(key, check.id, Timer::removal, clock.steady() + (at->second.since - clock.wall()) + *check.remove_after);
            else
                set_timer(key, check.id, Timer::removal, std::nullopt);
        }
        std::erase_if(results, [&](const auto& entry) { return !known.contains(entry.first); });
        for (const auto& gone : watched[key])
            if (!here.contains(gone)) prober.remove(probe_key(key, gone));
        if (here.empty())
            watched.erase(key);
        else
            watched[key] = std::move(here);
        drop_timers(key, [&](const std::string& check) { return !known.contains(check); });
        return results;
    }

    void written(const std::string& key, Results results) {
        if (const auto at = pending.find(key); at != pending.end()) {
            // What came in meanwhile, and says something else, stays for the next look.
            std::erase_if(at->second, [&](const auto& entry) {
                const auto now = results.find(entry.first);
                return now == results.end() || now->second.status == entry.second.status;
            });
            if (at->second.empty())
                pending.erase(at);
            else
                controller.poke(key);
        }
        stored[key] = std::move(results);
    }

    void forget(const std::string& key) {
        if (const auto at = watched.find(key); at != watched.end())
            for (const auto& check : at->second) prober.remove(probe_key(key, check));
        watched.erase(key);
        pending.erase(key);
        stored.erase(key);
        drop_timers(key, [](const std::string&) { return true; });
        const auto mine = key + "\n";
        for (auto at = heard.lower_bound(mine); at != heard.end() && at->first.starts_with(mine);) at = heard.erase(at);
    }

    Task<Unit> write(Context ctx, const resource::Kind& kind, std::string name, const resource::Object& object, json::object status,
                     store::Fence fence) {
        if (object.status == status) co_return Unit{};
        auto outcome = co_await resources.set_status(ctx, kind, std::move(name), std::move(status),
                                                     {.if_revision = object.revision, .fence = &fence});
        // Somebody wrote meanwhile: the change of the store brings us here again.
        if (!outcome.ok() && outcome.error().code != Code::conflict && outcome.error().code != Code::not_found)
            co_return std::move(outcome).error();
        co_return Unit{};
    }

    /// False for a check that cannot be made into a probe: there is nowhere to look yet.
    bool watch(const std::string& key, const Place& place, const Check& check, const CheckResult* known) {
        health::ProbePtr probe;
        const auto address = check.address.empty() ? place.address : check.address;
        const auto port = check.port == 0 ? place.port : check.port;
        switch (check.kind) {
        case Check::Kind::tcp:
            if (address.empty() || port == 0) return false;
            probe = health::tcp_probe({address, port});
            break;
        case Check::Kind::http: {
            health::HttpLook look;
            look.url = check.url;
            if (look.url.empty()) {
                if (address.empty() || port == 0) return false;
                const bool v6 = address.find(':') != std::string::npos;
                look.url = fmt::format("http://{}{}{}:{}{}", v6 ? "[" : "", address, v6 ? "]" : "", port, check.path);
            }
            look.method = check.method;
            look.headers = check.headers;
            look.body = check.body;
            look.contains = check.contains;
            if (!check.expect.empty())
                if (auto codes = parse_codes(check.expect); codes.ok()) look.codes = std::move(*codes);
            auto made = health::http_probe(std::move(look), options.tls);
            if (!made.ok()) {
                log::warn(Context::background(), "check {} of {} cannot be run: {}", check.id, key, made.error().message);
                return false;
            }
            probe = std::move(*made);
            break;
        }
        case Check::Kind::command:
            if (options.commands == nullptr) return false;
            probe = health::command_probe(*options.commands, place.node, check.command);
            break;
        default: return false;
        }
        prober.set(probe_key(key, check.id),
                   {.probe = std::move(probe),
                    .interval = check.interval,
                    .timeout = check.timeout,
                    .thresholds = {.rise = check.rise, .fall = check.fall, .forgive = 1},
                    .remembered = known == nullptr ? health::Standing::unknown : standing_of(known->status)});
        return true;
    }

    static bool should_be_removed(const InstanceView& view, const Results& results, WallTime now) {
        return std::any_of(view.checks.begin(), view.checks.end(), [&](const CheckView& check) {
            const auto at = results.find(check.check.id);
            return check.check.remove_after && at != results.end() && at->second.status == CheckStatus::critical &&
                   now - at->second.since >= *check.check.remove_after;
        });
    }
    bool should_be_removed(const InstanceView& view, const Results& results) const {
        return should_be_removed(view, results, clock.wall());
    }

    // --- Time -------------------------------------------------------------------------------------------------------

    enum class Timer { expiry, removal };
    using TimerKey = std::tuple<std::string, std::string, Timer>;

    /// When a ttl is over: exactly, where we heard the word ourselves; with a quarter more where another server did and only wrote
    /// down now and then; and never before a whole ttl of our own leading is over, because we could not hear before.
    SteadyTime expiry(const std::string& key, const Check& check, const CheckResult& result) const {
        auto when = term_began + check.ttl;
        if (const auto at = heard.find(probe_key(key, check.id)); at != heard.end())
            when = std::max(when, at->second + check.ttl);
        else if (result.renewed != WallTime{})
            when = std::max(when, clock.steady() + (result.renewed - clock.wall()) + check.ttl * 5 / 4);
        return when;
    }

    void set_timer(const std::string& key, const std::string& check, Timer what, std::optional<SteadyTime> when) {
        const TimerKey timer{key, check, what};
        const auto known = timers.find(timer);
        if (known != timers.end()) {
            if (when && known->second == *when) return;
            due.erase({known->second, timer});
            timers.erase(known);
        }
        if (!when) return;
        timers.emplace(timer, *when);
        due.emplace(*when, timer);
        if (due.begin()->first == *when) timers_changed.notify_all();
    }

    /// Of one resource, those whose check is `gone`.
    template <class Gone> void drop_timers(const std::string& key, Gone gone) {
        for (auto at = timers.lower_bound({key, "", Timer::expiry}); at != timers.end() && std::get<0>(at->first) == key;) {
            if (!gone(std::get<1>(at->first))) {
                ++at;
                continue;
            }
            due.erase({at->second, at->first});
            at = timers.erase(at);
        }
    }

    asio::awaitable<void> run_timers(Context ctx) {
        co_await asio::this_coro::throw_if_cancelled(false);
        TaskGroup sleepers(co_await asio::this_coro::executor);
        auto sleeping_until = std::make_shared<SteadyTime>(SteadyTime::max());
        for (;;) {
            const auto now = clock.steady();
            while (!due.empty() && due.begin()->first <= now) {
                const auto timer = due.begin()->second;
                due.erase(due.begin());
                timers.erase(timer);
                const auto& [key, check, what] = timer;
                if (what == Timer::expiry) {
                    const auto* known = known_result(key, check);
                    pending[key][check] =
                        CheckResult{CheckStatus::critical, expired_words(known == nullptr ? "" : known->output), clock.wall(), {}};
                }
                controller.poke(key);
            }
            const auto next = due.empty() ? SteadyTime::max() : due.begin()->first;
            if (next < *sleeping_until) {
                *sleeping_until = next;
                sleepers.spawn(sleep_towards(clock, timers_changed, next, sleeping_until));
            }
            const auto woken = co_await timers_changed.wait(ctx);
            if (!woken.ok()) break;
        }
        co_await sleepers.stop();
    }

    static asio::awaitable<void> sleep_towards(Clock& clock, Notifier& changed, SteadyTime until,
                                               std::shared_ptr<SteadyTime> sleeping_until) {
        const auto slept = co_await clock.sleep_until(until);
        if (!slept.ok()) co_return;
        if (*sleeping_until == until) *sleeping_until = SteadyTime::max();
        changed.notify_all();
    }

    static std::string expired_words(const std::string& last) {
        constexpr std::string_view words = "TTL expired";
        if (last.empty() || last.starts_with(words)) return std::string(words);
        return fmt::format("{} (last output before timeout follows): {}", words, last);
    }

    asio::awaitable<void> follow_terms(Context ctx) {
        for (;;) {
            const auto elected = co_await leadership.elected(ctx);
            if (!elected.ok()) co_return;
            begin_term();
            const auto deposed = co_await leadership.deposed(ctx);
            end_term();
            if (!deposed.ok()) co_return;
        }
    }

    resource::Resources& resources;
    Catalog& catalog;
    store::Leadership& leadership;
    Clock& clock;
    Options options;
    TaskGroup group;
    Notifier timers_changed;
    bool in_term = false;
    SteadyTime term_began{};
    std::map<std::string, std::set<std::string>> watched; ///< resource key → checks that the prober has
    std::map<std::string, Results> pending;               ///< what was found and is not written yet
    std::map<std::string, Results> stored;                ///< what is written, by resource key
    std::map<TimerKey, SteadyTime> timers;
    std::set<std::pair<SteadyTime, TimerKey>> due; ///< the same, by time
    std::map<std::string, SteadyTime> heard;       ///< ttl checks: when somebody told this server
    std::map<std::string, std::string> service_specs;
    std::shared_ptr<void> subscription;
    health::Prober prober;
    resource::Controller controller;
};

Checker::Checker(asio::any_io_executor executor, resource::Resources& resources, Catalog& catalog, store::Leadership& leadership,
                 Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), resources, catalog, leadership, clock, std::move(options))) {}
Checker::~Checker() = default;

asio::awaitable<void> Checker::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    const auto& services = *state->resources.registry().find("Service");
    state->subscription = state->catalog.subscribe([raw = state.get(), &services](const std::string& service) {
        const auto name = lowered(service);
        if (raw->in_term && raw->resources.exists(services, name)) raw->controller.poke("services/" + name);
    });
    state->group.spawn(state->prober.run(ctx));
    state->group.spawn(state->controller.run(ctx));
    state->group.spawn(state->run_timers(ctx));
    state->group.spawn(state->follow_terms(ctx));
    // Until somebody cancels this.
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    state->subscription.reset();
    co_await state->group.stop();
}

Task<Unit> Checker::report(Context ctx, std::string resource_key, std::string check, CheckStatus status, std::string output) {
    std::map<std::string, std::pair<CheckStatus, std::string>> said;
    said.emplace(std::move(check), std::pair{status, std::move(output)});
    return report(std::move(ctx), std::move(resource_key), std::move(said));
}

Task<Unit> Checker::report(Context ctx, std::string resource_key, std::map<std::string, std::pair<CheckStatus, std::string>> said) {
    auto& state = *state_;
    const auto slash = resource_key.find('/');
    const auto name = resource_key.substr(slash + 1);
    const bool is_instance = resource_key.starts_with("instances/");
    const auto& kind = *state.resources.registry().find(is_instance ? "Instance" : "CatalogNode");
    for (int attempt = 0; attempt < 8; ++attempt) {
        std::map<std::string, Check> checks;
        if (is_instance) {
            if (const auto view = state.catalog.find_resource(name))
                for (const auto& check : view->checks) checks[check.check.id] = check.check;
        } else if (const auto view = state.catalog.find_node_resource(name)) {
            for (const auto& check : view->checks) checks[check.check.id] = check.check;
        }
        CO_TRY(auto object, state.resources.get(kind, name));
        auto status = object.status;
        auto results = object_at(status, "checks");
        bool changed = false;
        for (const auto& [id, word] : said) {
            const auto at = checks.find(id);
            if (at == checks.end()) co_return Error{Code::not_found, fmt::format("{} has no check \"{}\"", resource_key, id)};
            const auto& check = at->second;
            if (is_run_here(check))
                co_return Error{Code::invalid,
                                fmt::format("check \"{}\" is a {} check: the server runs it itself", id, name_of(check.kind)),
                                "only ttl and external checks are told their state"};
            const auto now = state.clock.wall();
            const auto before = results.contains(id) ? std::optional(CheckResult::from(object_at(results, id))) : std::nullopt;
            CheckResult after{word.first, word.second, now, {}};
            if (before && before->status == after.status) after.since = before->since;
            bool renew = false;
            if (check.kind == Check::Kind::ttl) {
                state.heard[State::probe_key(resource_key, id)] = state.clock.steady();
                // An expiry that is not written yet is overtaken by this word.
                if (const auto waiting = state.pending.find(resource_key); waiting != state.pending.end())
                    waiting->second.erase(id);
                after.renewed = now;
                renew = before && now - before->renewed > check.ttl / 4;
                if (state.in_term && after.status != CheckStatus::critical)
                    state.set_timer(resource_key, id, State::Timer::expiry, state.clock.steady() + check.ttl);
            }
            if (before && before->status == after.status && before->output == after.output && !renew) continue;
            results[id] = after.to_json();
            changed = true;
        }
        if (!changed) co_return Unit{};
        status["checks"] = std::move(results);
        auto outcome = co_await state.resources.set_status(ctx, kind, name, std::move(status), {.if_revision = object.revision});
        if (outcome.ok()) co_return Unit{};
        if (outcome.error().code != Code::conflict) co_return std::move(outcome).error();
    }
    co_return Error{Code::conflict, fmt::format("{} changes too often to be written to", resource_key), "try again"};
}

health::Prober::Counts Checker::counts() const { return state_->prober.counts(); }

} // namespace orrery::catalog
