#include "app/garbage_collection.h"

#include "core/log.h"

namespace orrery::app {

namespace {

Task<Unit> collect_garbage(Context ctx, resource::Resources& resources, identity::Identity& identity, store::Fence fence,
                           Clock& clock, GarbageCollectionOptions options) {
    const auto oldest = clock.wall() - std::chrono::duration_cast<std::chrono::milliseconds>(options.max_event_age);
    CO_TRY(const int events, co_await resources.remove_old_events(ctx, oldest, options.max_events, &fence));
    CO_TRY(const int tokens, co_await identity.remove_expired(ctx, fence));
    if (events > 0)
        log::info(ctx, "old events removed: count={} max_age={} max_events={}", events, to_text(options.max_event_age),
                  options.max_events);
    if (tokens > 0) log::info(ctx, "expired tokens removed: count={}", tokens);
    co_return Unit{};
}

} // namespace

asio::awaitable<void> run_garbage_collection(Context ctx, resource::Resources& resources, identity::Identity& identity,
                                             store::Leadership& leadership, Clock& clock, GarbageCollectionOptions options) {
    for (;;) {
        auto fence = co_await leadership.wait_until_elected(ctx);
        if (!fence.ok()) co_return; // cancelled
        auto collected = co_await collect_garbage(ctx, resources, identity, *fence, clock, options);
        if (!collected.ok() && collected.error().code != Code::cancelled)
            log::warn(ctx, "garbage collection failed; retry_in={} error={}", to_text(options.period), collected.error().text());
        if (!(co_await clock.sleep(options.period)).ok()) co_return;
    }
}

} // namespace orrery::app
