#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "store/leadership.h"
#include "store/store.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace orrery::resource {

/// A level-driven reconcile loop over keys of the store. The reconcile function gets a key, not a change; a key that changed
/// several times in the queue is reconciled once. While this server is the leader, each key below the prefixes is reconciled at the
/// start of the term, after each change, after a failure (with exponential back-off), and every `resync`. The controller keeps no
/// state that matters: it can be stopped at any time and started again. Loop thread only.
///
///     Controller controller(store, leadership, clock, {"nodes/"}, reconcile_node, {});
///     group.spawn(controller.run(Context::make("node-controller")));
class Controller {
public:
    struct Options {
        Duration resync = std::chrono::minutes(10);
        Duration first_backoff = std::chrono::seconds(1); ///< after a failure; doubles with each further failure
        Duration max_backoff = std::chrono::minutes(5);
        std::size_t max_concurrent = 1; ///< keys reconciled concurrently; one key never twice at a time
    };
    /// Reconciles `key`, which may have been removed. Writes must use the fence. An error is logged and causes a retry. Cancelled
    /// at the end of the term.
    using Reconcile = std::function<Task<Unit>(Context ctx, std::string key, store::Fence fence)>;

    Controller(store::Store& store, store::Leadership& leadership, Clock& clock, std::vector<std::string> prefixes,
               Reconcile reconcile, Options options);
    ~Controller();

    /// Runs until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    /// Queues a key for reconciliation after a change outside of the store, such as an observation.
    void enqueue(std::string key);
    /// The number of queued keys, and of keys whose last reconciliation failed.
    std::size_t waiting() const;
    std::size_t failing() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::resource
