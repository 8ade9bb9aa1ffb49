#include "health/prober.h"

#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

namespace orrery::health {

namespace {

/// FNV-1a: the same over restarts and builds.
std::uint64_t stable_hash(std::string_view text) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash ^ (hash >> 29);
}

} // namespace

struct Prober::State : std::enable_shared_from_this<State> {
    State(asio::any_io_executor executor, Clock& clock_, Options options_, OnResult on_result_)
        : clock(clock_), options(options_), on_result(std::move(on_result_)), group(executor), changed(executor) {}

    /// One look in the world, for all who want it.
    struct Target {
        std::string identity;
        ProbePtr probe;
        Duration interval{}, timeout{};
        SteadyTime due{};
        bool looking = false;
        std::set<std::string> keys;
    };
    struct Watched {
        std::shared_ptr<Target> target;
        Verdict verdict;
    };

    void schedule(const std::shared_ptr<Target>& target, SteadyTime due) {
        queue.erase({target->due, target.get()});
        target->due = due;
        queue.emplace(std::pair{due, target.get()}, target);
        changed.notify_all();
    }

    /// The next moment of its phase after `after`, counted from a fixed point of the wall clock so that it is the same after a
    /// restart, and a little jitter.
    SteadyTime next_due(const Target& target, SteadyTime after) {
        const auto interval = std::chrono::duration_cast<std::chrono::milliseconds>(target.interval).count();
        const auto phase = static_cast<std::int64_t>(stable_hash(target.identity) % static_cast<std::uint64_t>(interval));
        const auto now_wall = clock.wall().time_since_epoch().count() +
                              std::chrono::duration_cast<std::chrono::milliseconds>(after - clock.steady()).count();
        const auto into = ((now_wall - phase) % interval + interval) % interval;
        const auto wait = interval - into;
        const auto spread = interval * options.jitter_percent / 100;
        std::int64_t jitter = 0;
        if (spread > 0) jitter = std::uniform_int_distribution<std::int64_t>(-spread, spread)(random);
        return after + std::chrono::milliseconds(std::max<std::int64_t>(1, wait + jitter));
    }

    /// After a look: one interval on, in phase.
    SteadyTime following(const Target& target) {
        const auto half = target.interval / 2;
        return next_due(target, std::max(target.due, clock.steady() - half) + half);
    }

    void begin_look(const std::shared_ptr<Target>& target) {
        if (target->looking || looking >= options.at_once) {
            ++late;
            schedule(target, following(*target));
            return;
        }
        target->looking = true;
        ++looking;
        ++looks;
        group.spawn(look(shared_from_this(), target));
        schedule(target, following(*target));
    }

    static asio::awaitable<void> look(std::shared_ptr<State> self, std::shared_ptr<Target> target) {
        const auto begin = self->clock.steady();
        const auto ctx = self->ctx.with_deadline(real_clock().steady() + target->timeout);
        auto seen = co_await target->probe->look(ctx);
        seen.at = self->clock.wall();
        seen.total = std::chrono::duration_cast<std::chrono::microseconds>(self->clock.steady() - begin);
        target->looking = false;
        --self->looking;
        if (self->stopped) co_return; // what ended because we end is no evidence
        if (seen.outcome == Outcome::local_error) {
            ++self->local_errors;
            log::debug(self->ctx, "no evidence of {}: {}", target->identity.substr(0, 80), seen.text);
        }
        const auto keys = target->keys; // the listener may change who watches
        for (const auto& key : keys) {
            const auto at = self->watched.find(key);
            if (at == self->watched.end() || at->second.target != target) continue;
            const bool change = at->second.verdict.take(seen);
            const auto verdict = at->second.verdict;
            self->on_result(key, verdict, seen, change);
        }
    }

    static asio::awaitable<void> sleep_towards(std::shared_ptr<State> self, SteadyTime until) {
        std::ignore = co_await self->clock.sleep_until(until);
        if (self->sleeping_until == until) self->sleeping_until = SteadyTime::max();
        self->changed.notify_all();
    }

    void drop(const std::string& key) {
        const auto at = watched.find(key);
        if (at == watched.end()) return;
        const auto target = at->second.target;
        target->keys.erase(key);
        if (target->keys.empty()) {
            queue.erase({target->due, target.get()});
            targets.erase(target->identity);
        }
        watched.erase(at);
    }

    Clock& clock;
    Options options;
    OnResult on_result;
    TaskGroup group;
    Notifier changed;
    Context ctx = Context::make("health");
    std::mt19937_64 random{std::random_device{}()};
    std::unordered_map<std::string, Watched> watched;
    std::unordered_map<std::string, std::shared_ptr<Target>> targets;
    std::map<std::pair<SteadyTime, Target*>, std::shared_ptr<Target>> queue;
    SteadyTime sleeping_until = SteadyTime::max();
    std::size_t looking = 0;
    std::uint64_t looks = 0, late = 0, local_errors = 0;
    bool stopped = false;
};

Prober::Prober(asio::any_io_executor executor, Clock& clock, Options options, OnResult on_result)
    : state_(std::make_shared<State>(std::move(executor), clock, options, std::move(on_result))) {}
Prober::~Prober() = default;

void Prober::set(const std::string& key, Watching watching) {
    auto& state = *state_;
    const auto interval = std::max<Duration>(watching.interval, std::chrono::milliseconds(100));
    const auto timeout = std::min(watching.timeout, interval);
    const auto identity = fmt::format("{} {} {}", to_text(interval), to_text(timeout), watching.probe->identity());
    auto verdict = Verdict::remembered(watching.thresholds, watching.remembered);
    if (const auto at = state.watched.find(key); at != state.watched.end()) {
        if (at->second.target->identity == identity) {
            at->second.verdict.set_thresholds(watching.thresholds);
            return;
        }
        state.drop(key);
    }
    auto& target = state.targets[identity];
    if (!target) {
        target = std::make_shared<State::Target>();
        target->identity = identity;
        target->probe = std::move(watching.probe);
        target->interval = interval;
        target->timeout = timeout;
        const auto now = state.clock.steady();
        auto due = state.next_due(*target, now);
        // Where nothing is known yet, somebody waits for the first word.
        if (watching.remembered == Standing::unknown)
            due = std::min(due, now + std::chrono::milliseconds(
                                          stable_hash(identity) %
                                          std::min<std::uint64_t>(
                                              1000, static_cast<std::uint64_t>(
                                                        std::chrono::duration_cast<std::chrono::milliseconds>(interval).count()))));
        target->due = due;
        state.queue.emplace(std::pair{due, target.get()}, target);
        state.changed.notify_all();
    }
    target->keys.insert(key);
    state.watched.emplace(key, State::Watched{target, verdict});
}

void Prober::remove(std::string_view key) { state_->drop(std::string(key)); }

void Prober::clear() {
    state_->watched.clear();
    state_->targets.clear();
    state_->queue.clear();
}

const Verdict* Prober::verdict(std::string_view key) const {
    const auto at = state_->watched.find(std::string(key));
    return at == state_->watched.end() ? nullptr : &at->second.verdict;
}

asio::awaitable<void> Prober::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_; // may outlive us by the looks that end
    state->ctx = ctx;
    state->stopped = false;
    for (;;) {
        const auto now = state->clock.steady();
        while (!state->queue.empty() && state->queue.begin()->first.first <= now) {
            const auto target = state->queue.begin()->second;
            state->begin_look(target);
        }
        const auto next = state->queue.empty() ? SteadyTime::max() : state->queue.begin()->first.first;
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

} // namespace orrery::health
