#include "health/prober.h"

#include "core/log.h"
#include "health/wheel.h"

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

    /// How many looks one host has at a time, whatever is looked at there.
    struct Host {
        std::string name;
        std::size_t looking = 0, targets = 0;
    };
    struct Watched;
    using Entry = std::pair<const std::string, Watched>; ///< of `watched`, which never moves them
    /// One look in the world, for all who want it.
    struct Target : Wheel::Waiting, std::enable_shared_from_this<Target> {
        std::string identity;
        ProbePtr probe;
        Engine::SpotPtr spot; ///< null: looked at by a coroutine
        Pace pace;
        Duration timeout{};
        Duration interval{}; ///< that it goes by now
        SteadyTime due{};    ///< when the next look should begin; the wheel may hold it for a little later
        std::uint64_t hash = 0, number = 0;
        bool looking = false, gone = false;
        Host* host = nullptr;
        std::vector<Entry*> watchers;
        std::string text; ///< what was last said of it
    };
    using TargetPtr = std::shared_ptr<Target>;
    struct Watched {
        TargetPtr target;
        Verdict verdict;
        SteadyTime down_since{};
    };

    // --- When -------------------------------------------------------------------------------------------------------

    Wheel::Tick tick_of(SteadyTime when) const {
        return when <= epoch ? 0 : static_cast<Wheel::Tick>((when - epoch + tick - Duration(1)) / tick);
    }

    void schedule(Target& target, SteadyTime due) {
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

    /// After a look that began when it was due: one interval on, in phase.
    SteadyTime following(const Target& target) {
        const auto half = target.interval / 2;
        return next_due(target, std::max(target.due, clock.steady() - half) + half);
    }

    /// What its verdicts ask for now: close looks as long as one of them may change, wide ones only when all are long down.
    Duration interval_of(const Target& target) const {
        Course course{.in_transition = false, .down_for = Duration::max()};
        for (const auto* watcher : target.watchers) {
            const auto& one = watcher->second;
            course.in_transition = course.in_transition || one.verdict.in_transition();
            const bool down = one.verdict.standing() == Standing::down;
            course.down_for = std::min(course.down_for, down ? clock.steady() - one.down_since : Duration{});
        }
        return interval_now(target.pace, course);
    }

    // --- Looks ------------------------------------------------------------------------------------------------------

    bool has_place(const Target& target) const {
        if (target.host != nullptr && target.host->looking >= options.at_once_per_host) return false;
        return target.spot ? engine_looks < options.connections_at_once : looking - engine_looks < options.at_once;
    }

    void came_due(const TargetPtr& target) {
        if (!target->looking && !has_place(*target)) {
            const auto later = clock.steady() + target->interval / 16;
            if (later < target->due + target->interval / 2) {
                wheel.add(*target, tick_of(later));
                return;
            }
        }
        if (target->looking || !has_place(*target)) {
            ++late;
            schedule(*target, following(*target));
            return;
        }
        target->looking = true;
        ++looking;
        ++looks;
        if (target->host != nullptr) ++target->host->looking;
        if (target->spot) {
            ++engine_looks;
            orders.push_back({target->spot, real_clock().steady() + target->timeout, target->number});
        } else {
            group.spawn(look(shared_from_this(), target));
        }
        schedule(*target, following(*target));
    }

    static asio::awaitable<void> look(std::shared_ptr<State> self, TargetPtr target) {
        const auto begin = self->clock.steady();
        const auto ctx = self->ctx.with_deadline(real_clock().steady() + target->timeout);
        auto seen = co_await target->probe->look(ctx);
        seen.total = std::chrono::duration_cast<std::chrono::microseconds>(self->clock.steady() - begin);
        self->looked(target, std::move(seen));
    }

    void engine_looked(std::vector<Engine::Done> done) {
        for (auto& one : done) {
            const auto at = by_number.find(one.tag);
            if (at == by_number.end()) continue;
            const auto target = at->second;
            --engine_looks;
            if (target->gone) by_number.erase(at);
            looked(target, std::move(one.seen));
        }
    }

    void looked(const TargetPtr& target, Observation seen) {
        target->looking = false;
        --looking;
        if (target->host != nullptr) --target->host->looking;
        if (target->gone) {
            leave_host(*target);
            return;
        }
        if (stopped) return; // what ended because we end is no evidence
        seen.at = clock.wall();
        if (seen.text.empty()) seen.text.swap(target->text); // lent, and taken back below: nothing is copied
        if (seen.outcome == Outcome::local_error) {
            ++local_errors;
            log::debug(ctx, "no evidence of {}: {}", target->identity.substr(0, 80), seen.text);
        }
        if (target->watchers.size() == 1) {
            tell(*target->watchers.front(), seen);
        } else { // the listener may change who watches
            std::vector<std::string> keys;
            for (const auto* watcher : target->watchers) keys.push_back(watcher->first);
            for (const auto& key : keys)
                if (const auto at = watched.find(key); at != watched.end() && at->second.target == target) tell(*at, seen);
        }
        target->text = std::move(seen.text);
        if (target->gone || !target->pace.varies()) return;
        if (const auto wanted = interval_of(*target); wanted != target->interval) {
            target->interval = wanted;
            schedule(*target, next_due(*target, clock.steady() + wanted / 2));
        }
    }

    void tell(Entry& watcher, const Observation& seen) {
        auto& [key, of] = watcher;
        const bool change = of.verdict.take(seen);
        if (change && of.verdict.standing() == Standing::down) of.down_since = clock.steady();
        const auto name = key; // NOLINT: the listener may remove it
        const auto verdict = of.verdict;
        on_result(name, verdict, seen, change);
    }

    // --- Who is watched ---------------------------------------------------------------------------------------------

    void leave_host(Target& target) {
        if (target.host == nullptr) return;
        if (--target.host->targets == 0) hosts.erase(target.host->name);
        target.host = nullptr;
    }

    void end(const TargetPtr& target) {
        target->gone = true;
        wheel.remove(*target);
        if (target->spot) {
            engine->remove(target->spot);
            if (!target->looking) by_number.erase(target->number);
        }
        if (!target->looking) leave_host(*target);
        targets.erase(target->identity); // the name goes with the target, which the caller holds
    }

    void drop(const std::string& key) {
        const auto at = watched.find(key);
        if (at == watched.end()) return;
        const auto target = at->second.target;
        std::erase(target->watchers, &*at);
        if (target->watchers.empty()) end(target);
        watched.erase(at);
    }

    TargetPtr make_target(const std::string& identity, const Watching& watching, Duration timeout) {
        auto target = std::make_shared<Target>();
        target->identity = identity;
        target->probe = watching.probe;
        target->pace = {watching.interval, watching.fast, watching.slow, watching.slow_after};
        target->timeout = timeout;
        target->interval = interval_now(target->pace, {});
        target->hash = stable_hash(identity);
        target->number = ++numbers;
        if (auto name = watching.probe->host(); !name.empty()) {
            auto& host = hosts[name];
            host.name = std::move(name);
            ++host.targets;
            target->host = &host;
        }
        if (auto plan = watching.probe->plan()) {
            if (!engine) engine = options.engine ? options.engine : std::make_shared<Engine>();
            if (!inbox)
                inbox = engine->inbox(executor, [weak = weak_from_this()](std::vector<Engine::Done> done) {
                    if (const auto self = weak.lock()) self->engine_looked(std::move(done));
                });
            target->spot = engine->add(std::move(plan), inbox);
            by_number.emplace(target->number, target);
        }
        const auto now = clock.steady();
        auto due = next_due(*target, now);
        // Where nothing is known yet, somebody waits for the first word.
        if (watching.remembered == Standing::unknown)
            due = std::min(due, now + std::min<Duration>(target->interval, std::chrono::seconds(1)) *
                                          static_cast<std::int64_t>(target->hash % 1000) / 1000);
        schedule(*target, due);
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
    std::unordered_map<std::string, Watched> watched;
    std::unordered_map<std::string_view, TargetPtr> targets; ///< by their own identity
    std::unordered_map<std::string, Host> hosts;
    std::unordered_map<std::uint64_t, TargetPtr> by_number; ///< those of the engine, until their last look is told
    Wheel wheel;
    std::vector<Engine::Order> orders; ///< of this tick
    std::shared_ptr<Engine> engine;
    Engine::InboxPtr inbox;
    SteadyTime sleeping_until = SteadyTime::max();
    std::size_t looking = 0, engine_looks = 0;
    std::uint64_t looks = 0, late = 0, local_errors = 0, numbers = 0;
    bool stopped = false;
};

Prober::Prober(asio::any_io_executor executor, Clock& clock, Options options, OnResult on_result)
    : state_(std::make_shared<State>(std::move(executor), clock, std::move(options), std::move(on_result))) {}
Prober::~Prober() { clear(); }

void Prober::set(const std::string& key, Watching watching) {
    auto& state = *state_;
    watching.interval = std::max<Duration>(watching.interval, std::chrono::milliseconds(100));
    auto timeout = std::min(watching.timeout, watching.interval);
    if (watching.fast > Duration{}) timeout = std::min(timeout, watching.fast);
    auto identity = fmt::format("{} {} {}", to_text(watching.interval), to_text(timeout), watching.probe->identity());
    if (watching.fast > Duration{} || watching.slow > Duration{})
        identity = fmt::format("fast {} slow {} after {} {}", to_text(watching.fast), to_text(watching.slow),
                               to_text(watching.slow_after), identity);
    auto verdict = Verdict::remembered(watching.thresholds, watching.remembered);
    if (const auto at = state.watched.find(key); at != state.watched.end()) {
        if (at->second.target->identity == identity) {
            at->second.verdict.set_thresholds(watching.thresholds);
            return;
        }
        state.drop(key);
    }
    const auto known = state.targets.find(identity);
    const auto target = known != state.targets.end() ? known->second : state.make_target(identity, watching, timeout);
    const auto at = state.watched.emplace(key, State::Watched{target, verdict, state.clock.steady()}).first;
    target->watchers.push_back(&*at);
}

void Prober::remove(std::string_view key) { state_->drop(std::string(key)); }

void Prober::clear() {
    while (!state_->watched.empty()) state_->drop(std::string(state_->watched.begin()->first));
}

const Verdict* Prober::verdict(std::string_view key) const {
    const auto at = state_->watched.find(std::string(key));
    return at == state_->watched.end() ? nullptr : &at->second.verdict;
}

Duration Prober::until_change(std::string_view key) const {
    const auto at = state_->watched.find(std::string(key));
    if (at == state_->watched.end()) return {};
    return at->second.target->interval * at->second.verdict.until_change();
}

asio::awaitable<void> Prober::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_; // may outlive us by the looks that end
    state->ctx = ctx;
    state->stopped = false;
    for (;;) {
        const auto now = state->clock.steady();
        state->wheel.advance(static_cast<Wheel::Tick>((now - state->epoch) / tick), [&state](Wheel::Waiting& due) {
            state->came_due(static_cast<State::Target&>(due).shared_from_this());
        });
        if (!state->orders.empty()) state->engine->look(std::exchange(state->orders, {}));
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
    return {state_->watched.size(), state_->targets.size(), state_->looking, state_->looks, state_->late, state_->local_errors};
}

const Engine* Prober::engine() const { return state_->engine.get(); }

} // namespace orrery::health
