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

/// Makes reality match what the store says, one key at a time. Level driven: it is told which key to look at, never what changed,
/// and a key that changed ten times meanwhile is looked at once. While this server leads, every key below the prefixes is looked at
/// when the term begins, after each change, after a failure (again and again, ever more slowly), and every `resync`. It keeps
/// nothing that matters: it can be ended at any instant and started again. Loop thread only.
///
///     Controller controller(store, leadership, clock, {"nodes/"}, [&](Context ctx, std::string key, store::Fence fence) { return
///     look_at(ctx, key, fence); }, {}); group.spawn(controller.run(Context::make("node-controller")));
class Controller {
public:
    struct Options {
        Duration resync = std::chrono::minutes(10);
        Duration first_backoff = std::chrono::seconds(1); ///< after a failure; doubles with each that follows
        Duration longest_backoff = std::chrono::minutes(5);
        std::size_t at_once = 1; ///< keys looked at side by side; one key never twice
    };
    /// Looks at what stands at `key` (perhaps nothing, when it was removed) and does what is needed. Writes carry the fence. An
    /// error means: try again later; it is logged here. It is cancelled when the term ends.
    using Reconcile = std::function<Task<Unit>(Context ctx, std::string key, store::Fence fence)>;

    Controller(store::Store& store, store::Leadership& leadership, Clock& clock, std::vector<std::string> prefixes,
               Reconcile reconcile, Options options);
    ~Controller();

    /// Works until it is cancelled.
    asio::awaitable<void> run(Context ctx);
    /// Looks at a key soon, though nothing in the store changed: an observation did.
    void poke(std::string key);
    /// Keys that wait to be looked at, and keys whose last look failed.
    std::size_t waiting() const;
    std::size_t failing() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::resource
