#pragma once

#include "core/task.h"
#include "health/observation.h"
#include "health/plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace orrery::health {

/// Makes the looks that are made most: TCP, TLS, HTTP(S). Threads of its own, each with one epoll set, a timer wheel for deadlines
/// and non-blocking sockets; no coroutine, no allocation and few system calls a look. What is ordered together is started together.
///
/// Connections to HTTP targets are kept for the next look, within what the limit of open files allows; every sixteenth look makes a
/// new one all the same, so that a server that takes no new connections is found out. TLS sessions are resumed on the same terms.
/// Plain connections are reset, not closed: nothing is left waiting on either side.
///
/// What this machine lacks (files, ports, memory, a route, time of its own) is `local_error`, after idle connections were given up
/// for it. Orders are given from one thread, that of the loop.
class Engine {
public:
    struct Options {
        int threads = 1;
        std::size_t handshakes_at_once = 64; ///< a thread; more only make each of them take longer
        std::size_t kept_connections = 0;    ///< in all; 0: half of the files that may be open
        std::size_t kept_sessions = 16'384;  ///< TLS sessions, in all
        std::uint32_t fresh_every = 16;      ///< looks on one connection or session
    };
    Engine();
    explicit Engine(Options options);
    ~Engine(); ///< ends all looks, without a word

    struct Done {
        std::uint64_t tag = 0;
        Observation seen; ///< `text` is empty where it would be the same as after the look before, which was good too
    };
    /// Where results go: `take` runs on the executor with all that came since it last ran. Destroying it ends that.
    class Inbox;
    using InboxPtr = std::shared_ptr<Inbox>;
    InboxPtr inbox(asio::any_io_executor executor, std::function<void(std::vector<Done>)> take);

    /// A target with what is kept for it. Give it back with `remove`; its last look, if it runs, is still told.
    class Spot;
    using SpotPtr = std::shared_ptr<Spot>;
    SpotPtr add(PlanPtr plan, InboxPtr inbox);
    void remove(const SpotPtr& spot);

    struct Order {
        SpotPtr spot;
        SteadyTime deadline{}; ///< of the whole look, on the real clock
        std::uint64_t tag = 0; ///< comes back with the result
    };
    /// Starts looks. At most one at a time at each spot; each comes to an end by its deadline, give or take a tick of 10 ms.
    void look(std::vector<Order> orders);

    struct Counts {
        std::size_t looking = 0, kept = 0, sessions = 0;
        std::uint64_t connections = 0, handshakes = 0, resumed = 0, reused = 0;
    };
    Counts counts() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// One look, now, within the context's deadline (10 s where there is none).
asio::awaitable<Observation> look_once(Engine& engine, PlanPtr plan, Context ctx);

} // namespace orrery::health
