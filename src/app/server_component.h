#pragma once

#include "core/config.h"
#include "core/supervisor.h"
#include "core/task.h"
#include "net/tls.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::app {

/// The objects that all components of the server use. They outlive the components.
struct ServerEnvironment {
    const Config& config;
    std::string version;
    std::string server_name;
    asio::any_io_executor executor; ///< of the loop, for the failure domain "server"
    Clock& clock;
    Supervisor& supervisor;               ///< runs the tasks of components, and restarts them after a failure
    Pool& pool;                           ///< threads for blocking work
    TaskGroup& tasks;                     ///< tasks of the server itself; they end after those of the supervisor
    std::shared_ptr<net::TlsContext> tls; ///< of all listeners; null: plain HTTP
    bool runs_api = true;                 ///< server.run has "api"
    bool runs_controllers = true;         ///< server.run has "controllers"
};

/// A component of the server: a group of objects with one life cycle. The server starts its components in the order of one table
/// (server.cpp). It stops them in reverse order, in two passes with the end of all tasks in between: `drain` of all components,
/// then the tasks, then `stop` of all components. Loop thread only.
class ServerComponent {
public:
    virtual ~ServerComponent() = default;
    virtual std::string_view name() const = 0;
    /// Creates the objects of the component and starts its tasks. All components before it in the table have started.
    virtual Task<Unit> start(Context ctx) = 0;
    /// Accepts no more work: closes listeners, and waits up to `grace` for requests in progress. Also called after a failed start.
    virtual asio::awaitable<void> drain(Duration grace) { co_return; }
    /// Destroys the objects. No task runs any more. Also called after a failed start.
    virtual asio::awaitable<void> stop() { co_return; }
};

/// Components in their order of start. `drain` and `stop` have the reverse order, and skip components whose start was not called.
class ComponentSequence {
public:
    /// The components must outlive the sequence.
    explicit ComponentSequence(std::vector<ServerComponent*> components) : components_(std::move(components)) {}

    /// Starts one component after the other; ends with the first error.
    Task<Unit> start(Context ctx);
    asio::awaitable<void> drain(Duration grace);
    asio::awaitable<void> stop();

private:
    std::vector<ServerComponent*> components_;
    std::size_t started_ = 0; ///< components whose start was called
};

} // namespace orrery::app
