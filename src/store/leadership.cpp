#include "store/leadership.h"

#include "core/log.h"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace orrery::store {

using namespace std::chrono_literals;

struct Leadership::State {
    State(asio::any_io_executor executor, Store& store_, Options options_)
        : store(store_), options(std::move(options_)), key("sys/leader/" + options.role), changed(executor) {}

    Store& store;
    Options options;
    std::string key;
    Notifier changed;
    std::shared_ptr<void> observer;

    LeaseId lease = 0;
    Revision created = 0;     ///< of the key we won; 0: not ours
    SteadyTime valid_until{}; ///< our lease cannot have expired before
    std::uint64_t term = 0;

    SteadyTime now() const { return options.clock->steady(); }
    bool leads() const { return created != 0 && now() < valid_until; }
    /// A fifth of the lease is left for clocks that do not run alike and for what is under way when it ends.
    void renewed(SteadyTime asked_at) { valid_until = asked_at + options.ttl * 4 / 5; }
    bool is_ours(const RecordPtr& record) const { return record && lease != 0 && record->lease == lease; }
    void step_down(const Context& ctx, std::string_view why) {
        if (created == 0) return;
        log::info(ctx, "this server no longer leads {}: {}", options.role, why);
        created = 0;
        changed.notify_all();
    }

    Task<Unit> campaign(Context ctx);
    Task<Unit> hold(Context ctx);
    Task<Unit> wait_for_change(Context ctx, Duration at_most);
};

Leadership::Leadership(asio::any_io_executor executor, Store& store, Options options)
    : state_(std::make_shared<State>(std::move(executor), store, std::move(options))) {}
Leadership::~Leadership() = default;

std::optional<Fence> Leadership::fence() const {
    if (!state_->leads()) return std::nullopt;
    return Fence(state_->key, state_->created);
}

std::string Leadership::leader() const {
    const auto record = state_->store.find(state_->key);
    return record ? record->value : std::string();
}

Task<Fence> Leadership::elected(Context ctx) {
    auto state = state_;
    while (!state->leads()) {
        CO_TRY(std::ignore, co_await state->changed.wait(ctx));
    }
    co_return Fence(state->key, state->created);
}

Task<Unit> Leadership::deposed(Context ctx) {
    auto state = state_;
    const auto term = state->term;
    while (state->term == term && state->leads()) {
        CO_TRY(std::ignore, co_await state->changed.wait(ctx));
    }
    co_return Unit{};
}

asio::awaitable<void> Leadership::each_term(Context ctx, BeginTerm begin, EndTerm end) {
    const auto executor = co_await asio::this_coro::executor;
    for (;;) {
        auto fence = co_await elected(ctx);
        if (!fence.ok()) co_return;
        TaskGroup term(executor);
        begin(term, *fence);
        bool ends = false;
        try {
            auto over = co_await deposed(ctx);
            ends = !over.ok();
        } catch (const boost::system::system_error&) { // what a cancelled coroutine gets from its next co_await
            ends = true;
        }
        // The term's work is stopped and waited for, also when this is cancelled.
        const auto before = co_await asio::this_coro::cancellation_state;
        ends = ends || before.cancelled() != asio::cancellation_type::none;
        co_await asio::this_coro::throw_if_cancelled(false);
        co_await term.stop();
        co_await end();
        const auto after = co_await asio::this_coro::cancellation_state;
        ends = ends || after.cancelled() != asio::cancellation_type::none;
        co_await asio::this_coro::throw_if_cancelled(true);
        if (ends) co_return;
    }
}

namespace {

asio::awaitable<bool> is_cancelled() {
    const auto state = co_await asio::this_coro::cancellation_state;
    co_return state.cancelled() != asio::cancellation_type::none;
}

} // namespace

asio::awaitable<void> Leadership::run(Context ctx) {
    auto state = state_;
    // The lease is given back at the end, so a cancellation may not throw from the first await after it.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    // Held weakly: the store keeps the observer, and may outlive us.
    state->observer = state->store.observe(state->key, [weak = std::weak_ptr(state)](const Event& event) {
        if (auto self = weak.lock(); self && event.key == self->key) self->changed.notify_all();
    });
    while (!co_await is_cancelled()) {
        auto ended = state->created == 0 ? co_await state->campaign(ctx) : co_await state->hold(ctx);
        if (ended.ok() || co_await is_cancelled()) continue;
        log::debug(ctx, "leadership of {}: {}", state->options.role, ended.error().text());
        std::ignore = co_await state->options.clock->sleep(std::max<Duration>(state->options.ttl / 20, 50ms));
    }
    state->observer.reset();
    state->step_down(ctx, "it is shutting down");
    co_await asio::this_coro::reset_cancellation_state();
    if (state->lease != 0) std::ignore = co_await state->store.revoke(ctx.with_timeout(2s), state->lease);
    co_await asio::this_coro::throw_if_cancelled(throwing);
}

/// Waits until the leader's key may have changed.
Task<Unit> Leadership::State::wait_for_change(Context ctx, Duration at_most) {
    auto waited = co_await within_deadline(ctx.with_deadline(now() + at_most), changed.wait(Context::make(ctx.actor(), ctx.id())),
                                           *options.clock);
    if (!waited.ok() && waited.error().code == Code::timeout) co_return Unit{};
    co_return waited;
}

Task<Unit> Leadership::State::campaign(Context ctx) {
    const auto record = store.find(key);
    const auto asked_at = now();
    if (record && !is_ours(record) && std::exchange(options.alone, false)) co_return co_await store.revoke(ctx, record->lease);
    if (record && !is_ours(record)) co_return co_await wait_for_change(ctx, 1h);
    if (record) {
        // Ours, and lost sight of while the store was away. The same key is the same term's fence.
        CO_TRY(std::ignore, co_await store.keep_alive(ctx, lease));
        created = record->created;
    } else {
        if (lease != 0) {
            auto kept = co_await store.keep_alive(ctx, lease);
            if (!kept.ok() && kept.error().code != Code::not_found) co_return kept.error();
            if (!kept.ok()) lease = 0;
        }
        if (lease == 0) {
            CO_TRY(lease, co_await store.grant(ctx, options.ttl));
        }
        Transaction transaction;
        transaction.expect(key, 0).put(key, options.server, lease);
        auto won = co_await store.apply(ctx, std::move(transaction));
        if (!won.ok() && won.error().code == Code::conflict) co_return Unit{}; // another was quicker
        if (!won.ok()) {
            if (won.error().code == Code::not_found) lease = 0;
            co_return won.error();
        }
        created = *won;
    }
    options.alone = false;
    ++term;
    renewed(asked_at);
    log::info(ctx, "this server ({}) leads {}, term of revision {}", options.server, options.role, created);
    changed.notify_all();
    co_return Unit{};
}

Task<Unit> Leadership::State::hold(Context ctx) {
    const auto record = store.find(key);
    if (!record || record->created != created) {
        step_down(ctx, record ? fmt::format("{} leads", record->value) : "its key was removed");
        co_return Unit{};
    }
    if (now() >= valid_until) {
        step_down(ctx, "it could not renew its lease in time");
        co_return Unit{};
    }
    // Renewed when two thirds of the time is left; a failure is tried again until there is none.
    const auto renew_at = valid_until - options.ttl * 4 / 5 + options.ttl / 3;
    if (now() < renew_at) co_return co_await wait_for_change(ctx, renew_at - now());
    const auto asked_at = now();
    auto kept = co_await within_deadline(ctx.with_deadline(valid_until),
                                         store.keep_alive(Context::make(ctx.actor(), ctx.id()), lease), *options.clock);
    if (kept.ok()) {
        renewed(asked_at);
        co_return Unit{};
    }
    if (kept.error().code == Code::not_found) {
        lease = 0;
        step_down(ctx, "its lease has expired");
        co_return Unit{};
    }
    co_return kept.error();
}

} // namespace orrery::store
