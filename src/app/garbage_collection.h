#pragma once

#include "core/task.h"
#include "identity/identity.h"
#include "resource/resources.h"
#include "store/leadership.h"

namespace orrery::app {

struct GarbageCollectionOptions {
    Duration max_event_age{};
    std::size_t max_events = 0;
    Duration period = std::chrono::minutes(1);
};

/// Removes old events and expired tokens while this server is the leader. Runs until cancelled.
asio::awaitable<void> run_garbage_collection(Context ctx, resource::Resources& resources, identity::Identity& identity,
                                             store::Leadership& leadership, Clock& clock, GarbageCollectionOptions options);

} // namespace orrery::app
