#include "catalog/checker_state.h"
#include "catalog/json_read.h"

#include <boost/asio/this_coro.hpp>

namespace orrery::catalog {

void Checker::State::begin_term() {
    if (in_term) return;
    in_term = true;
    term_began = clock.steady();
    catalog.suspect_all();
}

void Checker::State::end_term() {
    in_term = false;
    prober.clear();
    watched.clear();
    pending.clear();
    stored.clear();
    timers.clear();
    due.clear();
    service_specs.clear();
}

asio::awaitable<void> Checker::State::follow_terms(Context ctx) {
    for (;;) {
        const auto elected = co_await leadership.elected(ctx);
        if (!elected.ok()) co_return;
        begin_term();
        const auto deposed = co_await leadership.deposed(ctx);
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

health::Prober::Counts Checker::counts() const { return state_->prober.counts(); }

} // namespace orrery::catalog
