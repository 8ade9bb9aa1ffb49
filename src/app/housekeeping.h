#pragma once

#include "core/task.h"
#include "identity/identity.h"
#include "resource/resources.h"
#include "store/leadership.h"

namespace orrery::app {

struct HousekeepingOptions {
    Duration events_kept{};
    std::size_t most_events = 0;
    Duration period = std::chrono::minutes(1);
};

/// What keeps the store small: removes old events and tokens that have expired. Runs until cancelled, and works while this server
/// leads.
asio::awaitable<void> keep_house(Context ctx, resource::Resources& resources, identity::Identity& identity,
                                 store::Leadership& leadership, Clock& clock, HousekeepingOptions options);

} // namespace orrery::app
