#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "store/store.h"

#include <functional>
#include <string>
#include <vector>

namespace orrery::store {

/// Callbacks of `list_and_watch`. `list` reads all keys below the prefix; it is called first, and again whenever the watch fell
/// behind the history. `on_changes` receives the changes after that list, in order; the next call starts when it has returned.
struct ListWatchHandler {
    std::function<void()> list;
    std::function<asio::awaitable<void>(std::vector<Event> changes)> on_changes;
    Duration retry_delay = std::chrono::seconds(1); ///< while the store is unavailable
};

/// Follows all changes below `prefix` (as in Store::watch) without a gap, until it is cancelled.
asio::awaitable<void> list_and_watch(Context ctx, Store& store, Clock& clock, std::string prefix, ListWatchHandler handler);

} // namespace orrery::store
