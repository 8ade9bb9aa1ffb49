#include "catalog/checker_state.h"
#include "core/ascii.h"

#include <boost/asio/this_coro.hpp>

namespace orrery::catalog {

void Checker::State::begin_term() {
    if (in_term) return;
    in_term = true;
    term_began = clock.steady();
    catalog.suspect_all();
    group.spawn(end_first_round(term_began));
}

/// How long members are awaited; without evidence their stored state is unconfirmed afterwards.
asio::awaitable<void> Checker::State::end_first_round(SteadyTime term) {
    constexpr auto first_round = std::chrono::minutes(1);
    const auto slept = co_await clock.sleep_until(term + first_round);
    if (slept.ok() && in_term && term_began == term) catalog.end_first_round();
}

void Checker::State::end_term() {
    in_term = false;
    prober.clear();
    probed_checks.clear();
    secret_users.clear();
    pending.clear();
    stored.clear();
    timers.clear();
    due.clear();
    service_specs.clear();
}

asio::awaitable<void> Checker::State::follow_terms(Context ctx) {
    for (;;) {
        const auto elected = co_await leadership.wait_until_elected(ctx);
        if (!elected.ok()) co_return;
        begin_term();
        const auto deposed = co_await leadership.wait_until_deposed(ctx);
        end_term();
        if (!deposed.ok()) co_return;
    }
}

Checker::Checker(asio::any_io_executor executor, resource::Resources& resources, Catalog& catalog, store::Leadership& leadership,
                 Clock& clock, Options options)
    : state_(std::make_shared<State>(std::move(executor), resources, catalog, leadership, clock, std::move(options))) {}
Checker::~Checker() = default;

asio::awaitable<void> Checker::run(Context ctx) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto state = state_;
    const auto& services = *state->resources.registry().find("Service");
    state->group.reopen();
    state->catalog.close_while([raw = state.get()] { return raw->leadership.leads() && !raw->in_term; });
    state->subscription = state->catalog.subscribe([raw = state.get(), &services](const std::string& service) {
        const auto name = ascii_lower(service);
        if (raw->in_term && raw->resources.exists(services, name)) raw->controller.enqueue("services/" + name);
    });
    state->group.spawn(state->prober.run(ctx));
    state->group.spawn(state->controller.run(ctx));
    state->group.spawn(state->run_timers(ctx));
    state->group.spawn(state->follow_terms(ctx));
    // Until it is cancelled.
    Notifier never(co_await asio::this_coro::executor);
    std::ignore = co_await never.wait(ctx.without_deadline());
    state->subscription.reset();
    state->catalog.close_while({});
    co_await state->group.stop();
    state->end_term(); // also after a failed task, so that a later run starts clean
}

health::Prober::Counts Checker::counts() const { return state_->prober.counts(); }

} // namespace orrery::catalog
