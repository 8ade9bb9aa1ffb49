#include "store/follow.h"

namespace orrery::store {

asio::awaitable<void> follow(Context ctx, Store& store, Clock& clock, std::string prefix, Follower follower) {
    for (;;) {
        auto watch = store.watch(prefix, store.revision());
        follower.list(); // after the watch has its place, so that nothing falls between
        for (;;) {
            auto changes = co_await watch->next(ctx);
            if (!changes.ok() && changes.error().code == Code::cancelled) co_return;
            if (!changes.ok() && changes.error().code == Code::unavailable) {
                auto rested = co_await clock.sleep(follower.rest);
                if (!rested.ok()) co_return;
                continue;
            }
            if (!changes.ok()) break; // fell behind
            co_await follower.took(std::move(*changes));
        }
    }
}

} // namespace orrery::store
