#include "store/leadership.h"

#include "core/log.h"

#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
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
    Revision created = 0;     ///< create revision of the leader key of this term; 0: this server does not lead
    SteadyTime valid_until{}; ///< the lease cannot expire before this time
    std::uint64_t term = 0;
    std::optional<std::string> yielding;    ///< the reason for which the lease is to be revoked
    bool last_resort = false;               ///< leads only if no other server does
    std::optional<SteadyTime> vacant_since; ///< while `last_resort`: the time since which no server leads

    SteadyTime now() const { return options.clock->steady(); }
    bool leads() const { return created != 0 && now() < valid_until; }
    /// Keeps a fifth of the lease in reserve for clock drift and for work that is in progress when the term ends.
    void set_validity(SteadyTime requested_at) { valid_until = requested_at + options.ttl * 4 / 5; }
    bool is_ours(const RecordPtr& record) const { return record && lease != 0 && record->lease == lease; }
    void step_down(const Context& ctx, std::string_view reason) {
        if (created == 0) return;
        log::info(ctx, "leadership lost: role={} reason={}", options.role, reason);
        created = 0;
        changed.notify_all();
    }

    Task<Unit> campaign(Context ctx);
    Task<Unit> maintain(Context ctx);
    Task<Unit> revoke_lease(Context ctx);
    Task<Unit> wait_for_change(Context ctx, Duration max_wait);
};

Leadership::Leadership(asio::any_io_executor executor, Store& store, Options options)
    : state_(std::make_shared<State>(std::move(executor), store, std::move(options))) {}
Leadership::~Leadership() = default;

void Leadership::yield(std::string reason) {
    state_->yielding = std::move(reason);
    state_->last_resort = true;
    state_->changed.notify_all();
}

std::optional<Fence> Leadership::fence() const {
    if (!state_->leads()) return std::nullopt;
    return Fence(state_->key, state_->created);
}

std::string Leadership::leader() const {
    const auto record = state_->store.find(state_->key);
    return record ? record->value : std::string();
}

Task<Fence> Leadership::wait_until_elected(Context ctx) {
    auto state = state_;
    while (!state->leads()) {
        CO_TRY(std::ignore, co_await state->changed.wait(ctx));
    }
    co_return Fence(state->key, state->created);
}

Task<Unit> Leadership::wait_until_deposed(Context ctx) {
    auto state = state_;
    const auto term = state->term;
    while (state->term == term && state->leads()) {
        CO_TRY(std::ignore, co_await state->changed.wait(ctx));
    }
    co_return Unit{};
}

asio::awaitable<void> Leadership::for_each_term(Context ctx, BeginTerm begin, EndTerm end) {
    const auto executor = co_await asio::this_coro::executor;
    for (;;) {
        auto fence = co_await wait_until_elected(ctx);
        if (!fence.ok()) co_return;
        TaskGroup term(executor);
        bool ends = false;
        std::exception_ptr failure;
        try {
            begin(term, *fence);
            auto over = co_await wait_until_deposed(ctx);
            ends = !over.ok();
        } catch (const boost::system::system_error& error) { // thrown by the next co_await of a cancelled coroutine
            if (error.code() != asio::error::operation_aborted) failure = std::current_exception();
            ends = true;
        } catch (...) {
            failure = std::current_exception();
        }
        // Stop and join the term's tasks, also on cancellation.
        const auto before = co_await asio::this_coro::cancellation_state;
        ends = ends || before.cancelled() != asio::cancellation_type::none;
        co_await asio::this_coro::throw_if_cancelled(false);
        co_await term.stop();
        co_await end();
        const auto after = co_await asio::this_coro::cancellation_state;
        ends = ends || after.cancelled() != asio::cancellation_type::none;
        co_await asio::this_coro::throw_if_cancelled(true);
        if (failure) std::rethrow_exception(failure);
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
    // The lease is revoked at the end, so a cancellation must not throw from the next await.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    // A weak reference: the store keeps the observer and may outlive this object.
    state->observer = state->store.observe(state->key, [weak = std::weak_ptr(state)](const Event& event) {
        if (auto self = weak.lock(); self && event.key == self->key) self->changed.notify_all();
    });
    while (!co_await is_cancelled()) {
        auto ended = state->created == 0 ? co_await state->campaign(ctx) : co_await state->maintain(ctx);
        if (ended.ok() || co_await is_cancelled()) continue;
        log::debug(ctx, "leadership of {}: {}", state->options.role, ended.error().text());
        std::ignore = co_await state->options.clock->sleep(std::max<Duration>(state->options.ttl / 20, 50ms));
    }
    state->observer.reset();
    state->step_down(ctx, "shutdown");
    co_await asio::this_coro::reset_cancellation_state();
    if (state->lease != 0) std::ignore = co_await state->store.revoke(ctx.with_timeout(2s), state->lease);
    co_await asio::this_coro::throw_if_cancelled(throwing);
}

/// Waits until the leader's key may have changed.
Task<Unit> Leadership::State::wait_for_change(Context ctx, Duration max_wait) {
    auto waited = co_await within_deadline(ctx.with_deadline(now() + max_wait), changed.wait(Context::make(ctx.actor(), ctx.id())),
                                           *options.clock);
    if (!waited.ok() && waited.error().code == Code::timeout) co_return Unit{};
    co_return waited;
}

Task<Unit> Leadership::State::campaign(Context ctx) {
    const auto record = store.find(key);
    const auto requested_at = now();
    if (record && !is_ours(record) && std::exchange(options.exclusive, false)) co_return co_await store.revoke(ctx, record->lease);
    if (record) vacant_since.reset();
    if (record && !is_ours(record)) co_return co_await wait_for_change(ctx, 1h);
    if (!record && last_resort) {
        if (!vacant_since) vacant_since = now();
        const auto until = *vacant_since + 2 * options.ttl;
        if (now() < until) co_return co_await wait_for_change(ctx, until - now());
        vacant_since.reset();
        log::warn(ctx, "no other server leads; campaigning again after a yield: role={}", options.role);
    }
    yielding.reset();
    if (record) {
        // The key is still ours after an outage of the store. The same key means the same fence.
        CO_TRY(std::ignore, co_await store.keep_alive(ctx, lease));
        created = record->created;
    } else {
        if (lease != 0) {
            auto renewal = co_await store.keep_alive(ctx, lease);
            if (!renewal.ok() && renewal.error().code != Code::not_found) co_return renewal.error();
            if (!renewal.ok()) lease = 0;
        }
        if (lease == 0) {
            CO_TRY(lease, co_await store.grant(ctx, options.ttl));
        }
        Transaction transaction;
        transaction.expect(key, 0).put(key, options.server, lease);
        auto won = co_await store.apply(ctx, std::move(transaction));
        if (!won.ok() && won.error().code == Code::conflict) co_return Unit{}; // another server won
        if (!won.ok()) {
            if (won.error().code == Code::not_found) lease = 0;
            co_return won.error();
        }
        created = *won;
    }
    options.exclusive = false;
    ++term;
    set_validity(requested_at);
    log::info(ctx, "leadership acquired: server={} role={} term_revision={}", options.server, options.role, created);
    changed.notify_all();
    co_return Unit{};
}

Task<Unit> Leadership::State::revoke_lease(Context ctx) {
    step_down(ctx, *yielding);
    yielding.reset();
    const auto old_lease = std::exchange(lease, 0);
    auto revoked = co_await store.revoke(ctx.with_timeout(2s), old_lease);
    if (!revoked.ok() && revoked.error().code != Code::not_found) co_return revoked.error(); // the lease expires anyway
    co_return Unit{};
}

Task<Unit> Leadership::State::maintain(Context ctx) {
    if (yielding) co_return co_await revoke_lease(std::move(ctx));
    const auto record = store.find(key);
    if (!record || record->created != created) {
        step_down(ctx, record ? fmt::format("{} is the leader", record->value) : "the leader key was removed");
        co_return Unit{};
    }
    if (now() >= valid_until) {
        step_down(ctx, "the lease was not renewed in time");
        co_return Unit{};
    }
    // Renew when two thirds of the lease remain; retry a failed renewal until the lease ends.
    const auto renew_at = valid_until - options.ttl * 4 / 5 + options.ttl / 3;
    if (now() < renew_at) co_return co_await wait_for_change(ctx, renew_at - now());
    const auto requested_at = now();
    auto renewal = co_await within_deadline(ctx.with_deadline(valid_until),
                                            store.keep_alive(Context::make(ctx.actor(), ctx.id()), lease), *options.clock);
    if (renewal.ok()) {
        set_validity(requested_at);
        co_return Unit{};
    }
    if (renewal.error().code == Code::not_found) {
        lease = 0;
        step_down(ctx, "the lease expired");
        co_return Unit{};
    }
    co_return renewal.error();
}

} // namespace orrery::store
