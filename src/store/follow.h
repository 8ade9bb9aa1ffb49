#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "store/store.h"

#include <functional>
#include <string>
#include <vector>

namespace orrery::store {

/// How a prefix is followed without a gap. `list` looks at all there is; it is called first, and again whenever the watch fell
/// behind. `took` is given the changes after that, in order; the next come when it has returned.
struct Follower {
    std::function<void()> list;
    std::function<asio::awaitable<void>(std::vector<Event> changes)> took;
    Duration rest = std::chrono::seconds(1); ///< while the store is away
};

/// Follows the changes below `prefix` (as in Store::watch) until it is cancelled.
asio::awaitable<void> follow(Context ctx, Store& store, Clock& clock, std::string prefix, Follower follower);

} // namespace orrery::store
