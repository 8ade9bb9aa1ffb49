#pragma once

#include "health/engine/engine.h"
#include "health/engine/http_answer.h"
#include "health/engine/resolver.h"
#include "health/engine/tls_client.h"
#include "health/engine/wheel.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <poll.h>
#include <sys/epoll.h>
#include <thread>
#include <vector>

/// One thread of the engine. Private to the engine's .cpp files.
namespace orrery::health {

class Worker;
struct ActiveProbe;

/// A socket and the protocol state on it.
struct Connection {
    int fd = -1;
    SslPtr ssl;
    ActiveProbe* probe = nullptr;      ///< null: the connection is idle
    Engine::ProbeTargetPtr parked_for; ///< the target of an idle connection
    std::uint32_t uses = 0;            ///< probes that used it
    bool registered = false;           ///< in the epoll set
    bool handshaking = false;          ///< counts towards the limit of concurrent handshakes
    bool waits_to_write = false;       ///< the epoll set also waits for EPOLLOUT
    int family = 0;
    Connection *newer = nullptr, *older = nullptr; ///< list of idle connections
};

/// A running probe.
struct ActiveProbe : Wheel::Waiting {
    enum class Phase : std::uint8_t { resolving, connecting, queueing, handshaking, writing, reading };
    Engine::ProbeTargetPtr target;
    const ProbeProgram* program = nullptr; ///< of the target, or of the location that it redirected to
    ProbeProgramPtr redirect_target;       ///< the program of that location; null: not redirected
    std::uint64_t tag = 0, serial = 0;
    std::size_t index = 0; ///< in `active_`
    SteadyTime begin{}, deadline{};
    Phase phase = Phase::connecting;
    Connection* connection = nullptr;
    bool on_reused = false; ///< the connection was idle before: its end before the first byte is no evidence
    Addresses addresses;
    std::size_t next_address = 0, written = 0;
    HttpAnswer answer;
    std::string received; ///< tcp
    Observation seen;
};

class Engine::ResultQueue : public std::enable_shared_from_this<Engine::ResultQueue> {
public:
    ResultQueue(asio::any_io_executor executor, std::function<void(std::vector<ProbeResult>)> on_results);
    /// Thread-safe.
    void put(std::vector<ProbeResult>& done);
    void close();

private:
    void deliver();
    std::mutex mutex_;
    std::vector<ProbeResult> waiting_;
    bool posted_ = false, open_ = true;
    asio::any_io_executor executor_;
    std::function<void(std::vector<ProbeResult>)> on_results_;
};

class Engine::ProbeTarget final : public SessionKeeper {
public:
    ProbeTarget(ProbeProgramPtr program_, ResultQueuePtr results_, Worker& worker_, Addresses literal, std::string denial);
    ~ProbeTarget();
    void keep(SessionPtr session) override;

    const ProbeProgramPtr program;
    const ResultQueuePtr results;
    Worker& worker;
    const Addresses literal;  ///< null: the host is a name
    const std::string denial; ///< why the outbound rules deny the literal address; empty: they permit it
    // Only for the worker's thread.
    ActiveProbe* probe = nullptr;
    Connection* idle_connection = nullptr;
    SessionPtr session;
    std::uint32_t session_uses = 0;
    int last_status = 0;
    Outcome last = Outcome::local_error;
    bool removed = false;
};

class Worker {
public:
    Worker(const Engine::Options& options, std::size_t max_idle_connections, Resolver& resolver);
    ~Worker();

    /// From the thread of the loop.
    void start(std::vector<Engine::ProbeRequest> requests);
    void remove(Engine::ProbeTargetPtr target);

    struct Counts {
        std::atomic<std::size_t> running{0}, idle{0}, sessions{0};
        std::atomic<std::uint64_t> connections{0}, handshakes{0}, resumed{0}, reused{0};
    };
    Counts counts;
    const Engine::Options options;

private:
    struct Resolved {
        Engine::ProbeTargetPtr target;
        std::uint64_t serial = 0;
        Resolver::Answer answer;
    };
    struct Commands {
        std::vector<Engine::ProbeRequest> requests;
        std::vector<Engine::ProbeTargetPtr> removed;
        std::vector<Resolved> resolved;
        bool stop = false;
    };

    // The loop (worker.cpp)
    void run();
    void shut_down();
    Commands fetch_commands();
    void wake();
    void run_commands(Commands commands);
    void begin(Engine::ProbeRequest request);
    void find_and_connect(ActiveProbe& probe);
    void connect_to_permitted(ActiveProbe& probe);
    void deny(ActiveProbe& probe, std::string_view denial);
    void resolved(Resolved resolved);
    void expire(ActiveProbe& probe);
    void deliver();
    Wheel::Tick tick_of(SteadyTime time) const;
    int time_to_sleep() const;

    // Connections (connections.cpp)
    void connect_next(ActiveProbe& probe);
    Connection* open_socket(int family, bool connect_only, int& error);
    void poll_fresh();
    void on_event(Connection& connection, std::uint32_t events);
    void connected(ActiveProbe& probe);
    void not_connected(ActiveProbe& probe, int error, bool at_once);
    void watch(Connection& connection, std::uint32_t events);
    void drop(Connection& connection);
    void pool(Connection& connection);
    void park(Connection& connection, const Engine::ProbeTargetPtr& target);
    void unpark(Connection& connection);
    bool is_idle_alive(Connection& connection);
    bool give_up_idle(std::size_t many);
    Connection* new_connection();
    void reap();

    // Handshake, request and response (exchange.cpp)
    void start_exchange(ActiveProbe& probe);
    bool begin_handshake(ActiveProbe& probe);
    void handshake(ActiveProbe& probe);
    void end_handshake(Connection& connection);
    void start_waiting_handshakes();
    void write(ActiveProbe& probe);
    void read(ActiveProbe& probe, bool to_the_end);
    void ended(ActiveProbe& probe, int error);
    bool consume(ActiveProbe& probe, std::string_view bytes);
    void judge_http(ActiveProbe& probe);
    void redirect(ActiveProbe& probe);
    void judge_certificate(ActiveProbe& probe);
    void finish(ActiveProbe& probe, Outcome outcome, std::string_view text, bool keep_connection = false);
    bool needs_text(const ActiveProbe& probe, Outcome outcome) const;

    friend class Engine::ProbeTarget;

    Resolver& resolver_;
    const std::size_t max_idle_;
    int epoll_ = -1, wake_fd_ = -1;
    std::mutex mutex_;
    Commands commands_;
    bool wake_pending_ = false;

    // Only for this thread.
    SteadyTime now_{}, epoch_{}, stalled_until_{};
    Duration stalled_{};
    Wheel deadlines_;
    std::uint64_t serials_ = 0;
    std::vector<ActiveProbe*> active_;
    std::vector<std::unique_ptr<ActiveProbe>> spare_probes_;
    std::vector<std::unique_ptr<Connection>> spare_connections_;
    std::vector<Connection*> closed_;     ///< closed in this round: events of this round may still refer to them
    std::vector<Connection*> sockets_[2]; ///< reusable plain sockets, by family
    std::vector<ActiveProbe*> fresh_;     ///< probes whose connection was started in this round
    std::deque<Connection*> handshake_queue_;
    std::size_t handshakes_ = 0, parked_count_ = 0;
    Connection *newest_ = nullptr, *oldest_ = nullptr;
    std::vector<std::pair<Engine::ResultQueuePtr, Engine::ProbeResult>> finished_;
    std::vector<pollfd> polled_;
    std::vector<char> buffer_;
    bool stopping_ = false;
    std::thread thread_; ///< last member: the thread uses all of the above
};

} // namespace orrery::health
