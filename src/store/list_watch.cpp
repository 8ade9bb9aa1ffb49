#include "store/list_watch.h"

namespace orrery::store {

asio::awaitable<void> list_and_watch(Context ctx, Store& store, Clock& clock, std::string prefix, ListWatchHandler handler) {
    for (;;) {
        auto watch = store.watch(prefix, store.revision());
        handler.list(); // after the watch has its start revision, so that no change is missed
        for (;;) {
            auto changes = co_await watch->next(ctx);
            if (!changes.ok() && changes.error().code == Code::cancelled) co_return;
            if (!changes.ok() && changes.error().code == Code::unavailable) {
                auto slept = co_await clock.sleep(handler.retry_delay);
                if (!slept.ok()) co_return;
                continue;
            }
            if (!changes.ok()) break; // compacted: list again
            co_await handler.on_changes(std::move(*changes));
        }
    }
}

} // namespace orrery::store
