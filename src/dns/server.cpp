#include "dns/server.h"

#include "dns/udp_batch_sender.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace orrery::dns {

namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
constexpr auto dns_token = asio::as_tuple(asio::use_awaitable);
// The buffers of a batch should stay in the processor's cache: a query is limited to one packet, and responses are written
// contiguously.
constexpr std::size_t udp_batch = UdpBatchSender::max_batch, max_udp_query = 1500, max_udp_response = 4096;
// Number of queries to prefetch memory for while earlier ones are answered.
constexpr std::size_t prefetch_distance = 8;

/// Owns a file descriptor.
class Descriptor {
public:
    Descriptor() = default;
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        if (this != &other) {
            close();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Descriptor() { close(); }
    int get() const { return fd_; }

private:
    void close() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    int fd_ = -1;
};

Error cannot_listen(const std::string& address, std::uint16_t port, std::string_view transport, int error) {
    return Error{Code::unavailable,
                 fmt::format("cannot listen for DNS at {}:{} ({}): {}", address, port, transport, std::strerror(error)),
                 error == EACCES ? "ports below 1024 need CAP_NET_BIND_SERVICE" : "choose another address or port"};
}

Client client_of(const sockaddr_storage& from) {
    Client out;
    if (from.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            std::memcpy(out.address.data(), &v6.sin6_addr.s6_addr[12], 4);
        } else {
            out.v6 = true;
            std::memcpy(out.address.data(), &v6.sin6_addr, 16);
        }
    } else {
        std::memcpy(out.address.data(), &reinterpret_cast<const sockaddr_in&>(from).sin_addr, 4);
    }
    return out;
}

Client client_of(const Tcp::endpoint& from) {
    sockaddr_storage storage{};
    std::memcpy(&storage, from.data(), from.size());
    auto out = client_of(storage);
    out.transport = Client::Transport::tcp;
    return out;
}

bool has_port(const sockaddr_storage& from) {
    return from.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(from).sin6_port != 0
                                      : reinterpret_cast<const sockaddr_in&>(from).sin_port != 0;
}

} // namespace

struct Server::State : std::enable_shared_from_this<State> {
    Options options;
    std::shared_ptr<const Responder> responder;
    std::uint16_t port = 0;
    std::vector<Descriptor> sockets;
    std::vector<std::thread> threads;
    std::atomic<bool> stopping{false};
    std::atomic<std::uint64_t> udp_queries{0}, tcp_queries{0}, responses{0}, dropped{0};
    std::atomic<std::size_t> tcp_clients{0};

    // The following members belong to the TCP thread.
    asio::io_context loop{1};
    std::unique_ptr<Tcp::acceptor> acceptor;
    struct Connection {
        explicit Connection(Tcp::socket socket_) : socket(std::move(socket_)), idle(socket.get_executor()) {}
        Tcp::socket socket;
        asio::steady_timer idle;
        Client client{.transport = Client::Transport::tcp};
        bool is_same_network(const Connection& other) const {
            return client.v6 == other.client.v6 &&
                   std::equal(client.address.begin(), client.address.begin() + (client.v6 ? 8 : 4), other.client.address.begin());
        }
    };
    std::list<std::shared_ptr<Connection>> connections; ///< ordered by last use, oldest first

    Result<Descriptor> udp_socket(const asio::ip::address& address, std::uint16_t at) const {
        const bool v6 = address.is_v6();
        Descriptor socket(::socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        if (socket.get() < 0) return cannot_listen(options.address, at, "UDP", errno);
        const int on = 1, off = 0;
        if (options.threads > 1) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        // The thread polls `stopping` once a second, in case `shutdown` does not wake it.
        const timeval timeout{1, 0};
        ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
        // Buffers queries while the thread does not run. Without CAP_NET_ADMIN, the size is limited by net.core.rmem_max.
        const int buffer = 4 << 20;
        if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
            ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
        if (v6) {
            ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
            if (address.is_unspecified()) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
        } else {
            if (address.is_unspecified()) ::setsockopt(socket.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
            // No path MTU discovery: otherwise a forged "fragmentation needed" message could block responses.
            const int dont = IP_PMTUDISC_DONT;
            ::setsockopt(socket.get(), IPPROTO_IP, IP_MTU_DISCOVER, &dont, sizeof dont);
        }
        sockaddr_storage storage{};
        socklen_t size = 0;
        if (v6) {
            auto& to = reinterpret_cast<sockaddr_in6&>(storage);
            to.sin6_family = AF_INET6;
            to.sin6_port = htons(at);
            const auto bytes = address.to_v6().to_bytes();
            std::memcpy(&to.sin6_addr, bytes.data(), bytes.size());
            to.sin6_scope_id = static_cast<std::uint32_t>(address.to_v6().scope_id());
            size = sizeof to;
        } else {
            auto& to = reinterpret_cast<sockaddr_in&>(storage);
            to.sin_family = AF_INET;
            to.sin_port = htons(at);
            const auto bytes = address.to_v4().to_bytes();
            std::memcpy(&to.sin_addr, bytes.data(), bytes.size());
            size = sizeof to;
        }
        if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0)
            return cannot_listen(options.address, at, "UDP", errno);
        return socket;
    }

    static std::uint16_t port_of(int fd) {
        sockaddr_storage storage{};
        socklen_t size = sizeof storage;
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
        return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                                   : reinterpret_cast<sockaddr_in&>(storage).sin_port);
    }

    Result<Unit> listen_tcp(const asio::ip::address& address, std::uint16_t at) {
        boost::system::error_code error;
        acceptor = std::make_unique<Tcp::acceptor>(loop);
        const Tcp::endpoint endpoint(address, at);
        acceptor->open(endpoint.protocol(), error);
        if (!error) acceptor->set_option(Tcp::acceptor::reuse_address(true), error);
        if (!error && address.is_v6()) acceptor->set_option(asio::ip::v6_only(false), error);
        if (!error) acceptor->bind(endpoint, error);
        if (!error) acceptor->listen(128, error);
        if (error) return cannot_listen(options.address, at, "TCP", error.value());
        return Unit{};
    }

    void prefetch(std::span<const Bytes> batch, std::size_t from) const {
        if (from < batch.size()) responder->prefetch(batch.subspan(from, std::min(prefetch_distance, batch.size() - from)));
    }

    /// Receives and answers datagrams in batches. Each response leaves from the address that the query was sent to.
    void serve_udp(int fd) {
        std::vector<std::array<std::uint8_t, max_udp_query>> in(udp_batch);
        std::vector<std::uint8_t> out(udp_batch * max_udp_response);
        std::vector<std::array<std::uint8_t, 128>> control(udp_batch);
        std::vector<sockaddr_storage> from(udp_batch);
        std::vector<Bytes> queries(udp_batch);
        std::vector<iovec> in_pieces(udp_batch);
        std::vector<mmsghdr> received(udp_batch);
        UdpBatchSender sender(fd);
        const auto prepare = [&](std::size_t i) {
            auto& head = received[i].msg_hdr;
            head.msg_namelen = sizeof from[i];
            head.msg_controllen = control[i].size();
            head.msg_flags = 0;
        };
        for (std::size_t i = 0; i < udp_batch; ++i) {
            in_pieces[i] = {in[i].data(), in[i].size()};
            auto& head = received[i].msg_hdr;
            head.msg_name = &from[i];
            head.msg_iov = &in_pieces[i];
            head.msg_iovlen = 1;
            head.msg_control = control[i].data();
            prepare(i);
        }
        for (int count = 0; !stopping;) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(count, 0)); ++i) prepare(i);
            // Blocks for the first datagram, then takes all that are queued.
            count = ::recvmmsg(fd, received.data(), udp_batch, MSG_WAITFORONE, nullptr);
            if (count <= 0) continue;
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) queries[i] = Bytes(in[i].data(), received[i].msg_len);
            const auto batch = std::span(queries).first(static_cast<std::size_t>(count));
            std::size_t out_at = 0;
            prefetch(batch, 0);
            for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
                if (i % prefetch_distance == 0) prefetch(batch, i + prefetch_distance);
                const auto& head = received[i].msg_hdr;
                const auto room = std::span(out).subspan(out_at, max_udp_response);
                std::size_t size = 0;
                if (has_port(from[i]) && (head.msg_flags & MSG_TRUNC) == 0)
                    size = responder->respond(queries[i], client_of(from[i]), room);
                if (size == 0) {
                    dropped.fetch_add(1, std::memory_order_relaxed);
                    continue;
                }
                sender.add(head, room.first(size));
                out_at += size;
            }
            udp_queries.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
            responses.fetch_add(sender.send(), std::memory_order_relaxed);
        }
    }

    void close_connection(std::list<std::shared_ptr<Connection>>::iterator which) {
        boost::system::error_code ignored;
        (*which)->socket.close(ignored);
        (*which)->idle.cancel();
        connections.erase(which);
    }

    static asio::awaitable<void> accept(std::shared_ptr<State> self) {
        for (;;) {
            auto [error, socket] = co_await self->acceptor->async_accept(dns_token);
            if (self->stopping) co_return;
            if (error) {
                asio::steady_timer pause(self->loop, std::chrono::milliseconds(100)); // most likely out of file descriptors
                co_await pause.async_wait(dns_token);
                continue;
            }
            const auto peer = socket.remote_endpoint(error);
            if (error) continue; // already closed
            auto connection = std::make_shared<Connection>(std::move(socket));
            connection->client = client_of(peer);
            const auto is_same_network = [&](const auto& other) { return other->is_same_network(*connection); };
            const auto oldest = std::find_if(self->connections.begin(), self->connections.end(), is_same_network);
            if (oldest != self->connections.end() &&
                static_cast<std::size_t>(std::count_if(oldest, self->connections.end(), is_same_network)) >=
                    self->options.max_tcp_clients_per_network)
                self->close_connection(oldest);
            else if (self->connections.size() >= self->options.max_tcp_clients)
                self->close_connection(self->connections.begin());
            connection->idle.expires_after(std::chrono::seconds(self->options.tcp_idle_seconds));
            const auto position = self->connections.insert(self->connections.end(), connection);
            self->tcp_clients = self->connections.size();
            asio::co_spawn(self->loop, serve_connection(self, connection, position), asio::detached);
            asio::co_spawn(self->loop, close_when_idle(self, connection), asio::detached);
        }
    }

    /// Closes a connection when its idle timer expires: the client neither sends nor reads.
    static asio::awaitable<void> close_when_idle(std::shared_ptr<State> self, std::shared_ptr<Connection> connection) {
        while (connection->socket.is_open()) {
            auto [error] = co_await connection->idle.async_wait(dns_token);
            if (error) continue; // the timer was restarted, or the connection closed
            boost::system::error_code ignored;
            connection->socket.close(ignored);
        }
    }

    static asio::awaitable<void> serve_connection(std::shared_ptr<State> self, std::shared_ptr<Connection> connection,
                                                  std::list<std::shared_ptr<Connection>>::iterator position) {
        boost::system::error_code failed;
        connection->socket.set_option(Tcp::no_delay(true), failed);
        const auto& client = connection->client;
        std::vector<std::uint8_t> in, out(2 + 0xFFFF);
        while (!failed && !self->stopping) {
            connection->idle.expires_after(std::chrono::seconds(self->options.tcp_idle_seconds));
            std::array<std::uint8_t, 2> length_bytes{};
            auto [error, got] = co_await asio::async_read(connection->socket, asio::buffer(length_bytes), dns_token);
            if (error) break;
            const std::size_t length = static_cast<std::size_t>(length_bytes[0]) << 8 | length_bytes[1];
            if (length < 12) break;
            in.resize(length);
            auto [error2, got2] = co_await asio::async_read(connection->socket, asio::buffer(in), dns_token);
            if (error2) break;
            self->tcp_queries.fetch_add(1, std::memory_order_relaxed);
            const auto transfer = self->responder->transfer(in, client);
            const auto next = [&] {
                const auto rest = std::span(out).subspan(2);
                return transfer ? transfer->next(rest) : self->responder->respond(in, client, rest);
            };
            auto size = next();
            if (size == 0) {
                self->dropped.fetch_add(1, std::memory_order_relaxed);
                break;
            }
            while (size > 0 && !failed) {
                out[0] = static_cast<std::uint8_t>(size >> 8);
                out[1] = static_cast<std::uint8_t>(size);
                connection->idle.expires_after(std::chrono::seconds(self->options.tcp_idle_seconds));
                auto [error3, put] = co_await asio::async_write(connection->socket, asio::buffer(out.data(), size + 2), dns_token);
                failed = error3;
                size = transfer && !failed ? next() : 0;
            }
            if (failed) break;
            self->responses.fetch_add(1, std::memory_order_relaxed);
            // Now the least idle.
            if (connection->socket.is_open()) self->connections.splice(self->connections.end(), self->connections, position);
        }
        // `close_connection` has already removed a connection that was closed for a new one.
        if (connection->socket.is_open() ||
            std::find(self->connections.begin(), self->connections.end(), connection) != self->connections.end())
            self->connections.erase(position);
        self->tcp_clients = self->connections.size();
        connection->socket.close(failed);
        connection->idle.cancel();
    }
};

Server::Server(Options options, std::shared_ptr<const Responder> responder) : state_(std::make_shared<State>()) {
    state_->options = std::move(options);
    state_->responder = std::move(responder);
}

Server::~Server() { stop(); }

Result<Unit> Server::start() {
    auto& state = *state_;
    boost::system::error_code bad;
    const auto address = asio::ip::make_address(state.options.address, bad);
    if (bad) return Error{Code::invalid, fmt::format("\"{}\" is no address to listen at", state.options.address)};
    // With port 0, the port that UDP got may be in use for TCP: try another one.
    for (int attempt = 0;; ++attempt) {
        state.sockets.clear();
        TRY(auto first, state.udp_socket(address, state.options.port));
        state.port = State::port_of(first.get());
        state.sockets.push_back(std::move(first));
        auto tcp = state.listen_tcp(address, state.port);
        if (tcp.ok()) break;
        if (state.options.port != 0 || attempt == 20) return std::move(tcp).error();
    }
    for (int i = 1; i < state.options.threads; ++i) {
        TRY(auto more, state.udp_socket(address, state.port));
        state.sockets.push_back(std::move(more));
    }
    for (const auto& socket : state.sockets)
        state.threads.emplace_back([shared = state_, fd = socket.get()] { shared->serve_udp(fd); });
    asio::co_spawn(state.loop, State::accept(state_), asio::detached);
    state.threads.emplace_back([shared = state_] { shared->loop.run(); });
    return Unit{};
}

std::uint16_t Server::port() const { return state_->port; }

void Server::stop() {
    auto& state = *state_;
    if (state.threads.empty()) return;
    state.stopping = true;
    // Fails with ENOTCONN, but still wakes a thread that is blocked in recvmmsg.
    for (const auto& socket : state.sockets) ::shutdown(socket.get(), SHUT_RDWR);
    asio::post(state.loop, [shared = state_] {
        boost::system::error_code ignored;
        shared->acceptor->close(ignored);
        for (const auto& connection : shared->connections) {
            connection->socket.close(ignored);
            connection->idle.cancel();
        }
    });
    for (auto& thread : state.threads) thread.join();
    state.threads.clear();
    state.sockets.clear();
}

Server::Counts Server::counts() const {
    return {state_->udp_queries, state_->tcp_queries, state_->responses, state_->dropped, state_->tcp_clients};
}

} // namespace orrery::dns
