#include "health/prober.h"

#include "core/log.h"
#include "health/engine/wheel.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <unordered_map>

namespace orrery::health {

struct Prober::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor_, Clock& clock_, Options options_, OnResult on_result_)
        : executor(executor_),
          clock(clock_),
          options(std::move(options_)),
          on_result(std::move(on_result_)),
          group(executor_),
          changed(executor_),
          epoch(clock_.steady()) {}

    /// Counts the concurrent probes of one host.
    struct Host {
        std::string name;
        std::size_t running = 0, targets = 0;
    };
    struct ProbeState;
    using Entry = std::pair<const std::string, ProbeState>; ///< of `checks`, which never moves its elements
    /// A probe that is made once for all checks with the same identity.
    struct Target : Wheel::Waiting, std::enable_shared_from_this<Target> {
        std::string identity;
        ProbePtr probe;
        Engine::ProbeTargetPtr engine_target; ///< null: the probe is a coroutine
        Intervals intervals;
        Duration timeout{};
        Duration interval{}; ///< that applies now
        SteadyTime due{};    ///< of the next probe; the wheel may have a later tick
        std::uint64_t hash = 0, number = 0;
        bool running = false, removed = false;
        Host* host = nullptr;
        std::vector<Entry*> watchers;
        std::string text; ///< of the last observation
    };
    using TargetPtr = std::shared_ptr<Target>;
    struct ProbeState {
        TargetPtr target;
        HealthStateMachine verdict;
        SteadyTime down_since{};
    };

    // --- Schedule

    Wheel::Tick tick_of(SteadyTime when) const {
        return when <= epoch ? 0 : static_cast<Wheel::Tick>((when - epoch + tick - Duration(1)) / tick);
    }

    void schedule_at(Target& target, SteadyTime due) {
        target.due = due;
        wheel.add(target, tick_of(due));
        changed.notify_all();
    }

    SteadyTime next_due(const Target& target, SteadyTime after) {
        const auto now_wall = clock.wall() + std::chrono::duration_cast<std::chrono::milliseconds>(after - clock.steady());
        const auto wait =
            until_phase(target.hash, target.interval, now_wall) + jitter(target.interval, options.jitter_percent, random());
        return after + std::max<Duration>(wait, std::chrono::milliseconds(1));
    }

    /// The next due time after a probe that started on time: one interval later, in phase.
    SteadyTime following(const Target& target) {
        const auto half = target.interval / 2;
        return next_due(target, std::max(target.due, clock.steady() - half) + half);
    }

    /// The interval for all checks of the target: the fast one while one of them is in transition, the long one only if all are
    /// long down.
    Duration interval_of(const Target& target) const {
        Trend trend{.in_transition = false, .down_for = Duration::max()};
        for (const auto* watcher : target.watchers) {
            const auto& one = watcher->second;
            trend.in_transition = trend.in_transition || one.verdict.in_transition();
            const bool down = one.verdict.state() == HealthState::down;
            trend.down_for = std::min(trend.down_for, down ? clock.steady() - one.down_since : Duration{});
        }
        return interval_now(target.intervals, trend);
    }

    // --- Probes

    bool has_capacity(const Target& target) const {
        if (target.host != nullptr && target.host->running >= options.at_once_per_host) return false;
        return target.engine_target ? engine_running < options.connections_at_once : running - engine_running < options.at_once;
    }

    void came_due(const TargetPtr& target) {
        if (!target->running && !has_capacity(*target)) {
            const auto later = clock.steady() + target->interval / 16;
            if (later < target->due + target->interval / 2) {
                wheel.add(*target, tick_of(later));
                return;
            }
        }
        if (target->running || !has_capacity(*target)) {
            ++skipped;
            schedule_at(*target, following(*target));
            return;
        }
        target->running = true;
        ++running;
        ++probes;
        if (target->host != nullptr) ++target->host->running;
        if (target->engine_target) {
            ++engine_running;
            requests.push_back({target->engine_target, real_clock().steady() + target->timeout, target->number});
        } else {
            group.spawn(run_probe(shared_from_this(), target));
        }
        schedule_at(*target, following(*target));
    }

    static asio::awaitable<void> run_probe(std::shared_ptr<State> self, TargetPtr target) {
        const auto begin = self->clock.steady();
        const auto ctx = self->ctx.with_deadline(real_clock().steady() + target->timeout);
        Observation seen;
        try {
            seen = co_await target->probe->run(ctx);
        } catch (...) {
            self->leave(target); // otherwise the target would count as running for ever
            throw;
        }
        seen.total = std::chrono::duration_cast<std::chrono::microseconds>(self->clock.steady() - begin);
        self->on_observation(target, std::move(seen));
    }

    void on_engine_results(std::vector<Engine::ProbeResult> done) {
        for (auto& one : done) {
            const auto at = by_number.find(one.tag);
            if (at == by_number.end()) continue;
            const auto target = at->second;
            --engine_running;
            if (target->removed) by_number.erase(at);
            on_observation(target, std::move(one.seen));
        }
    }

    void leave(const TargetPtr& target) {
        target->running = false;
        --running;
        if (target->host != nullptr) --target->host->running;
        if (target->removed) leave_host(*target);
    }

    void on_observation(const TargetPtr& target, Observation seen) {
        leave(target);
        if (target->removed) return;
        if (stopped) return; // results of the shutdown are no evidence
        seen.at = clock.wall();
        if (const auto* masker = target->probe->masker()) seen.text = masker->mask_cut(seen.text);
        if (seen.text.empty()) seen.text.swap(target->text); // swapped back below, to avoid a copy
        if (seen.outcome == Outcome::local_error) {
            ++local_errors;
            log::debug(ctx, "probe was a local error host={} message=\"{}\"", target->probe->host(),
                       seen.text); // the identity may contain a secret
        }
        if (target->watchers.size() == 1) {
            deliver(*target->watchers.front(), seen);
        } else { // the callback may change the checks
            std::vector<std::string> keys;
            for (const auto* watcher : target->watchers) keys.push_back(watcher->first);
            for (const auto& key : keys)
                if (const auto at = checks.find(key); at != checks.end() && at->second.target == target) deliver(*at, seen);
        }
        target->text = std::move(seen.text);
        if (target->removed || !target->intervals.varies()) return;
        if (const auto wanted = interval_of(*target); wanted != target->interval) {
            target->interval = wanted;
            schedule_at(*target, next_due(*target, clock.steady() + wanted / 2));
        }
    }

    void deliver(Entry& watcher, const Observation& seen) {
        auto& [key, check] = watcher;
        const bool change = check.verdict.update(seen);
        if (change && check.verdict.state() == HealthState::down) check.down_since = clock.steady();
        const auto name = key; // NOLINT: the callback may remove the check
        const auto verdict = check.verdict;
        on_result(name, verdict, seen, change);
    }

    // --- Checks and targets

    void leave_host(Target& target) {
        if (target.host == nullptr) return;
        if (--target.host->targets == 0) hosts.erase(target.host->name);
        target.host = nullptr;
    }

    void end(const TargetPtr& target) {
        target->removed = true;
        wheel.remove(*target);
        if (target->engine_target) {
            engine->remove(target->engine_target);
            if (!target->running) by_number.erase(target->number);
        }
        if (!target->running) leave_host(*target);
        targets.erase(target->identity); // the key is part of the target, which the caller holds
    }

    void drop(const std::string& key) {
        const auto at = checks.find(key);
        if (at == checks.end()) return;
        const auto target = at->second.target;
        std::erase(target->watchers, &*at);
        if (target->watchers.empty()) end(target);
        checks.erase(at);
    }

    TargetPtr make_target(const std::string& identity, const ProbeSchedule& schedule, Duration timeout) {
        auto target = std::make_shared<Target>();
        target->identity = identity;
        target->probe = schedule.probe;
        target->intervals = {schedule.interval, schedule.fast_interval, schedule.down_interval, schedule.down_after};
        target->timeout = timeout;
        target->interval = interval_now(target->intervals, {});
        target->hash = stable_hash(identity);
        target->number = ++numbers;
        if (auto name = schedule.probe->host(); !name.empty()) {
            auto& host = hosts[name];
            host.name = std::move(name);
            ++host.targets;
            target->host = &host;
        }
        if (auto program = schedule.probe->program()) {
            if (!engine) engine = options.engine ? options.engine : std::make_shared<Engine>();
            if (!results)
                results = engine->result_queue(executor, [weak = weak_from_this()](std::vector<Engine::ProbeResult> done) {
                    if (const auto self = weak.lock()) self->on_engine_results(std::move(done));
                });
            target->engine_target = engine->add(std::move(program), results);
            by_number.emplace(target->number, target);
        }
        const auto now = clock.steady();
        auto due = next_due(*target, now);
        // Without a remembered state the first result is needed soon.
        if (schedule.remembered == HealthState::unknown)
            due = std::min(due, now + std::min<Duration>(target->interval, std::chrono::seconds(1)) *
                                          static_cast<std::int64_t>(target->hash % 1000) / 1000);
        schedule_at(*target, due);
        targets.emplace(target->identity, target);
        return target;
    }

    static asio::awaitable<void> sleep_towards(std::shared_ptr<State> self, SteadyTime until) {
        std::ignore = co_await self->clock.sleep_until(until);
        if (self->sleeping_until == until) self->sleeping_until = SteadyTime::max();
        self->changed.notify_all();
    }

    asio::any_io_executor executor;
    Clock& clock;
    Options options;
    OnResult on_result;
    TaskGroup group;
    Notifier changed;
    const SteadyTime epoch;
    Context ctx = Context::make("health");
    std::mt19937_64 random{std::random_device{}()};
    std::unordered_map<std::string, ProbeState> checks;
    std::unordered_map<std::string_view, TargetPtr> targets; ///< by their own identity
    std::unordered_map<std::string, Host> hosts;
    std::unordered_map<std::uint64_t, TargetPtr> by_number; ///< targets of the engine, until their last result is delivered
    Wheel wheel;
    std::vector<Engine::ProbeRequest> requests; ///< of this tick
    std::shared_ptr<Engine> engine;
    Engine::ResultQueuePtr results;
    SteadyTime sleeping_until = SteadyTime::max();
    std::size_t running = 0, engine_running = 0;
    std::uint64_t probes = 0, skipped = 0, local_errors = 0, numbers = 0;
    bool stopped = false;
};

Prober::Prober(asio::any_io_executor executor, Clock& clock, Options options, OnResult on_result)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options), std::move(on_result))) {}
Prober::~Prober() { clear(); }

void Prober::set(const std::string& key, ProbeSchedule schedule) {
    auto& state = *state_;
    schedule.interval = std::max<Duration>(schedule.interval, std::chrono::milliseconds(100));
    auto timeout = std::min(schedule.timeout, schedule.interval);
    if (schedule.fast_interval > Duration{}) timeout = std::min(timeout, schedule.fast_interval);
    auto identity = fmt::format("{} {} {}", to_text(schedule.interval), to_text(timeout), schedule.probe->identity());
    if (schedule.fast_interval > Duration{} || schedule.down_interval > Duration{})
        identity = fmt::format("fast {} slow {} after {} {}", to_text(schedule.fast_interval), to_text(schedule.down_interval),
                               to_text(schedule.down_after), identity);
    auto verdict = HealthStateMachine::remembered(schedule.thresholds, schedule.remembered);
    if (const auto at = state.checks.find(key); at != state.checks.end()) {
        if (at->second.target->identity == identity) {
            at->second.verdict.set_thresholds(schedule.thresholds);
            return;
        }
        state.drop(key);
    }
    const auto known = state.targets.find(identity);
    const auto target = known != state.targets.end() ? known->second : state.make_target(identity, schedule, timeout);
    const auto at = state.checks.emplace(key, State::ProbeState{target, verdict, state.clock.steady()}).first;
    target->watchers.push_back(&*at);
}

void Prober::remove(std::string_view key) { state_->drop(std::string(key)); }

void Prober::clear() {
    while (!state_->checks.empty()) state_->drop(std::string(state_->checks.begin()->first));
}

const HealthStateMachine* Prober::verdict(std::string_view key) const {
    const auto at = state_->checks.find(std::string(key));
    return at == state_->checks.end() ? nullptr : &at->second.verdict;
}

Duration Prober::until_change(std::string_view key) const {
    const auto at = state_->checks.find(std::string(key));
    if (at == state_->checks.end()) return {};
    return at->second.target->interval * at->second.verdict.until_change();
}

asio::awaitable<void> Prober::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_; // may outlive the prober while probes end
    state->ctx = ctx;
    state->stopped = false;
    state->group.reopen();
    state->sleeping_until = SteadyTime::max();
    for (;;) {
        const auto now = state->clock.steady();
        state->wheel.advance(static_cast<Wheel::Tick>((now - state->epoch) / tick), [&state](Wheel::Waiting& due) {
            state->came_due(static_cast<State::Target&>(due).shared_from_this());
        });
        if (!state->requests.empty()) state->engine->start(std::exchange(state->requests, {}));
        const auto next_tick = state->wheel.next_event();
        const auto next =
            next_tick == Wheel::never ? SteadyTime::max() : state->epoch + tick * static_cast<std::int64_t>(next_tick);
        if (next < state->sleeping_until) {
            state->sleeping_until = next;
            state->group.spawn(State::sleep_towards(state, next));
        }
        auto woken = co_await state->changed.wait(ctx.without_deadline());
        if (!woken.ok()) break;
    }
    state->stopped = true;
    co_await state->group.stop();
}

Prober::Counts Prober::counts() const {
    return {state_->checks.size(), state_->targets.size(), state_->running, state_->probes, state_->skipped, state_->local_errors};
}

const Engine* Prober::engine() const { return state_->engine.get(); }

} // namespace orrery::health
