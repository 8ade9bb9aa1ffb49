#pragma once

#include "core/result.h"
#include "dns/name.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery::dns {

/// The source of a query: a resolver or a stub.
struct Client {
    enum class Transport { udp, tcp };
    Transport transport = Transport::udp;
    std::array<std::uint8_t, 16> address{}; ///< an IPv4 address occupies the first four bytes
    bool v6 = false;
};

/// A response of several messages over TCP: a zone transfer.
class Transfer {
public:
    virtual ~Transfer() = default;
    /// Writes the next message to `out` and returns its size; 0: there are no more.
    virtual std::size_t next(std::span<std::uint8_t> out) = 0;
};

/// Port: makes the responses of a Server. The server's threads call it concurrently.
class Responder {
public:
    virtual ~Responder() = default;
    /// Writes the response to `out` and returns its size; 0: no response. Must not throw or block.
    virtual std::size_t respond(Bytes query, const Client& client, std::span<std::uint8_t> out) const noexcept = 0;
    /// A hint: the next calls of `respond`, in order. The responder may prefetch memory for them.
    virtual void prefetch(std::span<const Bytes> queries) const noexcept {}
    /// Called first for every query over TCP. Null: `respond` answers the query.
    virtual std::unique_ptr<Transfer> transfer(Bytes query, const Client& client) const noexcept { return nullptr; }
};

/// Serves DNS over UDP and TCP at one address, on its own threads: one per UDP socket (SO_REUSEPORT, batched receive and send) and
/// one for all TCP connections. Memory is bounded: connections, their lifetime and their messages are limited.
class Server {
public:
    struct Options {
        std::string address = "127.0.0.1";             ///< "0.0.0.0" and "::" reply from the address that the query was sent to
        std::uint16_t port = 0;                        ///< 0: any free port, the same for UDP and TCP
        int threads = 1;                               ///< for UDP
        std::size_t max_tcp_clients = 1000;            ///< a new connection beyond it closes the one that is idle for longest
        std::size_t max_tcp_clients_per_network = 100; ///< connections of one IPv4 address or IPv6 /64, as above
        int tcp_idle_seconds = 30;
    };
    Server(Options options, std::shared_ptr<const Responder> responder);
    ~Server(); ///< stops the server
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// `unavailable` if it cannot bind to the address.
    Result<Unit> start();
    std::uint16_t port() const;
    void stop();

    struct Counts {
        std::uint64_t udp_queries = 0, tcp_queries = 0, responses = 0, dropped = 0;
        std::size_t tcp_clients = 0;
    };
    Counts counts() const;

private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace orrery::dns
