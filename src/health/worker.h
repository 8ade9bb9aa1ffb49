#pragma once

#include "health/engine.h"
#include "health/http_answer.h"
#include "health/names.h"
#include "health/tls_client.h"
#include "health/wheel.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <poll.h>
#include <sys/epoll.h>
#include <thread>
#include <vector>

/// One thread of the engine. For the engine's .cpp files only.
namespace orrery::health {

class Worker;
struct Look;

/// A socket and what rides on it.
struct Connection {
    int fd = -1;
    SslPtr ssl;
    Look* look = nullptr;        ///< null: it rests
    Engine::SpotPtr rests_for;   ///< whose it is while it rests
    std::uint32_t uses = 0;      ///< looks that it has served
    bool registered = false;     ///< in the epoll set
    bool handshaking = false;    ///< it holds one of the places for handshakes
    bool waits_to_write = false; ///< the epoll set asks for room to write, too
    int family = 0;
    Connection *newer = nullptr, *older = nullptr; ///< among those that rest
};

/// A look under way.
struct Look : Wheel::Waiting {
    enum class Phase : std::uint8_t { resolving, connecting, queueing, handshaking, writing, reading };
    Engine::SpotPtr spot;
    const Plan* plan = nullptr; ///< the spot's, or that of where it was redirected to
    PlanPtr elsewhere;          ///< where it was redirected to
    std::uint64_t tag = 0, serial = 0;
    std::size_t place = 0; ///< among those under way
    SteadyTime begin{}, deadline{};
    Phase phase = Phase::connecting;
    Connection* connection = nullptr;
    bool on_kept = false; ///< the connection served before: its end before the first byte says nothing about the target
    Addresses addresses;
    std::size_t next_address = 0, written = 0;
    HttpAnswer answer;
    std::string received; ///< tcp
    Observation seen;
};

class Engine::Inbox : public std::enable_shared_from_this<Engine::Inbox> {
public:
    Inbox(asio::any_io_executor executor, std::function<void(std::vector<Done>)> take);
    /// From any thread.
    void put(std::vector<Done>& done);
    void close();

private:
    void hand_over();
    std::mutex mutex_;
    std::vector<Done> waiting_;
    bool posted_ = false, open_ = true;
    asio::any_io_executor executor_;
    std::function<void(std::vector<Done>)> take_;
};

class Engine::Spot final : public SessionKeeper {
public:
    Spot(PlanPtr plan_, InboxPtr inbox_, Worker& worker_, Addresses literal);
    ~Spot();
    void keep(SessionPtr session) override;

    const PlanPtr plan;
    const InboxPtr inbox;
    Worker& worker;
    const Addresses literal; ///< null: the host is a name
    // The worker's own.
    Look* look = nullptr;
    Connection* kept = nullptr;
    SessionPtr session;
    std::uint32_t session_uses = 0;
    int last_status = 0;
    Outcome last = Outcome::local_error;
    bool removed = false;
};

class Worker {
public:
    Worker(const Engine::Options& options, std::size_t kept_connections, Names& names);
    ~Worker();

    /// From the loop's thread.
    void order(std::vector<Engine::Order> orders);
    void remove(Engine::SpotPtr spot);

    struct Counts {
        std::atomic<std::size_t> looking{0}, kept{0}, sessions{0};
        std::atomic<std::uint64_t> connections{0}, handshakes{0}, resumed{0}, reused{0};
    };
    Counts counts;
    const Engine::Options options;

private:
    struct Resolved {
        Engine::SpotPtr spot;
        std::uint64_t serial = 0;
        Names::Answer answer;
    };
    struct Errands {
        std::vector<Engine::Order> orders;
        std::vector<Engine::SpotPtr> removed;
        std::vector<Resolved> resolved;
        bool stop = false;
    };

    // The loop (worker.cpp)
    void run();
    void wake();
    void take_errands(Errands errands);
    void begin(Engine::Order order);
    void find_and_connect(Look& look);
    void resolved(Resolved resolved);
    void expire(Look& look);
    void deliver();
    Wheel::Tick tick_of(SteadyTime time) const;
    int time_to_sleep() const;

    // Connections (connections.cpp)
    void connect_next(Look& look);
    Connection* open_socket(int family, bool connect_only, int& error);
    void settle_fresh();
    void on_event(Connection& connection, std::uint32_t events);
    void connected(Look& look);
    void not_connected(Look& look, int error, bool at_once);
    void watch(Connection& connection, std::uint32_t events);
    void drop(Connection& connection);
    void pool(Connection& connection);
    void rest(Connection& connection, const Engine::SpotPtr& spot);
    void unrest(Connection& connection);
    bool still_rests(Connection& connection);
    bool give_up_idle(std::size_t many);
    Connection* new_connection();
    void bury();

    // What is said on them (exchange.cpp)
    void start_exchange(Look& look);
    void shake(Look& look);
    void end_handshake(Connection& connection);
    void start_waiting_handshakes();
    void write(Look& look);
    void read(Look& look, bool to_the_end);
    void ended(Look& look, int error);
    bool took(Look& look, std::string_view bytes);
    void judge_http(Look& look);
    void redirect(Look& look);
    void judge_certificate(Look& look);
    void finish(Look& look, Outcome outcome, std::string_view words, bool keep_connection = false);
    bool worth_words(const Look& look, Outcome outcome) const;

    friend class Engine::Spot;

    Names& names_;
    const std::size_t most_kept_;
    int epoll_ = -1, bell_ = -1;
    std::mutex mutex_;
    Errands errands_;
    bool rung_ = false;

    // The thread's own.
    SteadyTime now_{}, epoch_{}, stalled_until_{};
    Duration stalled_{};
    Wheel deadlines_;
    std::uint64_t serials_ = 0;
    std::vector<Look*> active_;
    std::vector<std::unique_ptr<Look>> spare_looks_;
    std::vector<std::unique_ptr<Connection>> spare_connections_;
    std::vector<Connection*> graves_;     ///< ended in this round: events of this round may still name them
    std::vector<Connection*> sockets_[2]; ///< plain sockets to connect with again, by family
    std::vector<Look*> fresh_;            ///< connections that were begun in this round
    std::deque<Connection*> handshake_queue_;
    std::size_t handshakes_ = 0, resting_ = 0;
    Connection *newest_ = nullptr, *oldest_ = nullptr;
    std::vector<std::pair<Engine::InboxPtr, Engine::Done>> outbox_;
    std::vector<pollfd> polled_;
    std::vector<char> buffer_;
    bool stopping_ = false;
    std::thread thread_; ///< last: it uses all of the above
};

} // namespace orrery::health
