#pragma once

#include "core/result.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery::dns {

/// Who asks, and how.
struct Asker {
    enum class Transport { udp, tcp };
    Transport transport = Transport::udp;
    std::array<std::uint8_t, 16> address{}; ///< IPv4 in its first four bytes
    bool v6 = false;
};

/// An answer of several messages, over TCP.
class Transfer {
public:
    virtual ~Transfer() = default;
    /// Writes the next message into `out` and returns its size; 0: there was none left.
    virtual std::size_t next(std::span<std::uint8_t> out) = 0;
};

/// Makes answers. Called from the server's threads, several at once: whatever it reads is immutable or replaced whole.
class Responder {
public:
    virtual ~Responder() = default;
    /// Writes the answer to `query` into `out` and returns its size; 0: no answer. Never throws, never waits.
    virtual std::size_t respond(Bytes query, const Asker& asker, std::span<std::uint8_t> out) const noexcept = 0;
    /// What it will be asked next, in that order: a hint, to have memory fetched meanwhile.
    virtual void expect(std::span<const Bytes> queries) const noexcept {}
    /// What is asked over TCP is offered here first. Nothing: `respond` answers.
    virtual std::unique_ptr<Transfer> transfer(Bytes query, const Asker& asker) const noexcept { return nullptr; }
};

/// Serves DNS over UDP and TCP at one address, on threads of its own: for UDP one a socket (SO_REUSEPORT), with batched receive and
/// send, and one for all TCP connections. Nothing a client sends can grow it: TCP clients, their time and their messages are
/// bounded.
class Server {
public:
    struct Options {
        std::string address = "127.0.0.1";  ///< "0.0.0.0" and "::" answer from the address that was asked
        std::uint16_t port = 0;             ///< 0: any free one, the same for UDP and TCP
        int threads = 1;                    ///< for UDP
        std::size_t max_tcp_clients = 1000; ///< a further one takes the place of the longest idle
        std::size_t max_tcp_of_one = 100;   ///< clients at one address (IPv6: in one /64); a further one takes its own's place
        int tcp_idle_seconds = 30;
    };
    Server(Options options, std::shared_ptr<const Responder> responder);
    ~Server(); ///< stops
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// `unavailable` with the reason where it cannot listen.
    Result<Unit> start();
    std::uint16_t port() const;
    void stop();

    struct Counts {
        std::uint64_t udp_queries = 0, tcp_queries = 0, answers = 0, dropped = 0;
        std::size_t tcp_clients = 0;
    };
    Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::dns
