#pragma once

#include "core/task.h"
#include "health/engine/probe_program.h"
#include "health/observation.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace orrery::health {

/// Executes the most frequent probes: TCP, TLS and HTTP(S). It has its own threads, each with one epoll set, a timing wheel for
/// deadlines and non-blocking sockets. A probe needs no coroutine, no allocation and few system calls. Requests that arrive
/// together start together.
///
/// Connections to HTTP targets are kept for the next probe, within the limit of open files. Every sixteenth probe makes a new
/// connection anyway, to detect a server that accepts no new ones. The same applies to TLS sessions. Plain connections are reset,
/// not closed, so that neither side keeps a socket in TIME_WAIT.
///
/// A lack of local resources (files, ports, memory, a route, processor time) is a local error, after idle connections were given
/// up. All functions must be called from one thread, the loop's.
class Engine {
public:
    struct Options {
        int threads = 1;
        std::size_t handshakes_at_once = 64;  ///< per thread; more would only make each of them slower
        std::size_t max_idle_connections = 0; ///< over all threads; 0: half of the limit of open files
        std::size_t max_sessions = 16'384;    ///< TLS sessions over all threads
        std::uint32_t fresh_every = 16;       ///< probes of one connection or session before a new one is made
    };
    Engine();
    explicit Engine(Options options);
    ~Engine(); ///< drops all running probes without a result

    struct ProbeResult {
        std::uint64_t tag = 0;
        Observation seen; ///< `text` is empty if it is the same as after the previous probe, which was good too
    };
    /// Delivers results: `on_results` runs on the executor with all results since its last run. The destruction ends the delivery.
    class ResultQueue;
    using ResultQueuePtr = std::shared_ptr<ResultQueue>;
    ResultQueuePtr result_queue(asio::any_io_executor executor, std::function<void(std::vector<ProbeResult>)> on_results);

    /// A target with its idle connection and TLS session. Return it with `remove`; the result of a running probe is still
    /// delivered.
    class ProbeTarget;
    using ProbeTargetPtr = std::shared_ptr<ProbeTarget>;
    ProbeTargetPtr add(ProbeProgramPtr program, ResultQueuePtr results);
    void remove(const ProbeTargetPtr& target);

    struct ProbeRequest {
        ProbeTargetPtr target;
        SteadyTime deadline{}; ///< of the whole probe, on the real clock
        std::uint64_t tag = 0; ///< returned with the result
    };
    /// Starts probes. Each target has at most one running probe. Every probe ends by its deadline, with a precision of 10 ms.
    void start(std::vector<ProbeRequest> requests);

    struct Counts {
        std::size_t running = 0, idle = 0, sessions = 0;
        std::uint64_t connections = 0, handshakes = 0, resumed = 0, reused = 0;
    };
    Counts counts() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Executes a program once, within the context's deadline (10 s without one).
asio::awaitable<Observation> probe_once(Engine& engine, ProbeProgramPtr program, Context ctx);

} // namespace orrery::health
