#include "app/housekeeping.h"

#include "core/log.h"

namespace orrery::app {

namespace {

Task<Unit> sweep(Context ctx, resource::Resources& resources, identity::Identity& identity, store::Fence fence, Clock& clock,
                 HousekeepingOptions options) {
    const auto oldest = clock.wall() - std::chrono::duration_cast<std::chrono::milliseconds>(options.events_kept);
    CO_TRY(const int events, co_await resources.remove_old_events(ctx, oldest, options.most_events, &fence));
    CO_TRY(const int tokens, co_await identity.remove_expired(ctx, fence));
    if (events > 0)
        log::info(ctx, "removed {} events that were older than {} or more than {}", events, to_text(options.events_kept),
                  options.most_events);
    if (tokens > 0) log::info(ctx, "removed {} tokens that had expired", tokens);
    co_return Unit{};
}

} // namespace

asio::awaitable<void> keep_house(Context ctx, resource::Resources& resources, identity::Identity& identity,
                                 store::Leadership& leadership, Clock& clock, HousekeepingOptions options) {
    for (;;) {
        auto fence = co_await leadership.elected(ctx);
        if (!fence.ok()) co_return; // cancelled
        auto swept = co_await sweep(ctx, resources, identity, *fence, clock, options);
        if (!swept.ok() && swept.error().code != Code::cancelled)
            log::warn(ctx, "housekeeping goes on in {}: {}", to_text(options.period), swept.error().text());
        if (!(co_await clock.sleep(options.period)).ok()) co_return;
    }
}

} // namespace orrery::app
