#include "health/engine/worker.h"

#include <openssl/err.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace orrery::health {

namespace {

constexpr std::size_t max_spare = 1024;

/// What a failed connection means: a fault of the target, or a local error. `at_once`: the system failed without sending a packet.
Outcome outcome_of(int error, bool at_once) {
    switch (error) {
    case ECONNREFUSED: return Outcome::refused;
    case ETIMEDOUT: return Outcome::timeout_connect;
    case ENETUNREACH: return at_once ? Outcome::local_error : Outcome::unreachable; // at once: this host has no route
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EAGAIN:        // no source port left, on some kernels
    case EADDRNOTAVAIL: // the same
    case EADDRINUSE:
    case EAFNOSUPPORT:
    case EACCES:
    case EPERM: return Outcome::local_error;
    default: return Outcome::unreachable;
    }
}

std::string error_text(int error) {
    std::string out = std::strerror(error);
    if (!out.empty() && out[0] >= 'A' && out[0] <= 'Z' && (out.size() < 2 || out[1] < 'A' || out[1] > 'Z'))
        out[0] = static_cast<char>(out[0] + 32);
    return out;
}

} // namespace

Connection* Worker::new_connection() {
    if (spare_connections_.empty()) return new Connection;
    auto* out = spare_connections_.back().release();
    spare_connections_.pop_back();
    return out;
}

/// A socket to connect with; a reused one if the probe only connects.
Connection* Worker::open_socket(int family, bool connect_only, int& error) {
    auto& ready = sockets_[family == AF_INET6];
    if (connect_only && !ready.empty()) {
        auto* out = ready.back();
        ready.pop_back();
        return out;
    }
    int fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) && give_up_idle(32))
        fd = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
        error = errno;
        return nullptr;
    }
    // The last ACK of the TCP handshake is not sent on its own: it is sent with the request, or not at all if a reset follows.
    // TCP_QUICKACK ends with the connection; TCP_DEFER_ACCEPT stays with a socket that is reused.
    const int second = 1, off = 0;
    if (connect_only)
        ::setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &second, sizeof second);
    else
        ::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
    auto* out = new_connection();
    out->fd = fd;
    out->family = family;
    return out;
}

void Worker::connect_next(ActiveProbe& probe) {
    probe.phase = ActiveProbe::Phase::connecting;
    const auto& program = *probe.program;
    const auto& address = (*probe.addresses)[probe.next_address++];
    int error = 0;
    auto* connection = open_socket(address.family(), program.is_connect_only(), error);
    if (connection == nullptr) {
        not_connected(probe, error, true);
        return;
    }
    connection->probe = &probe;
    probe.connection = connection;
    ++counts.connections;
    if (::connect(connection->fd, address.get(), address.size) == 0) {
        connected(probe);
    } else if (errno == EINPROGRESS) {
        fresh_.push_back(&probe);
    } else {
        not_connected(probe, errno, true);
    }
}

/// Connections to near targets that were started in this round are established by now. One call of poll finds them, and keeps them
/// out of the epoll set.
void Worker::poll_fresh() {
    while (!fresh_.empty()) {
        std::vector<ActiveProbe*> begun;
        begun.swap(fresh_);
        polled_.clear();
        for (const auto* probe : begun) polled_.push_back({.fd = probe->connection->fd, .events = POLLOUT, .revents = 0});
        if (::poll(polled_.data(), polled_.size(), 0) < 0)
            for (auto& one : polled_) one.revents = 0;
        now_ = real_clock().steady();
        for (std::size_t i = 0; i < begun.size(); ++i) {
            auto& probe = *begun[i];
            const auto seen = polled_[i].revents;
            if (seen == 0) {
                const bool only = probe.program->is_connect_only();
                watch(*probe.connection, only ? EPOLLOUT | EPOLLONESHOT : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
                probe.connection->waits_to_write = !only;
            } else {
                on_event(*probe.connection, (seen & (POLLERR | POLLHUP) ? EPOLLERR : 0U) | EPOLLOUT);
            }
        }
    }
}

void Worker::watch(Connection& connection, std::uint32_t events) {
    epoll_event event{.events = events, .data = {.ptr = &connection}};
    ::epoll_ctl(epoll_, connection.registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, connection.fd, &event);
    connection.registered = true;
}

void Worker::on_event(Connection& connection, std::uint32_t events) {
    if (connection.fd < 0) return; // closed in this round
    if (connection.probe == nullptr) {
        if (connection.parked_for && !is_idle_alive(connection)) {
            unpark(connection);
            drop(connection);
        }
        return;
    }
    auto& probe = *connection.probe;
    switch (probe.phase) {
    case ActiveProbe::Phase::connecting:
        if (events & (EPOLLERR | EPOLLHUP)) {
            int error = 0;
            socklen_t size = sizeof error;
            ::getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &error, &size);
            not_connected(probe, error == 0 ? ECONNRESET : error, false);
        } else if (events & EPOLLOUT) {
            connected(probe);
        }
        return;
    case ActiveProbe::Phase::resolving:
    case ActiveProbe::Phase::queueing: return;
    case ActiveProbe::Phase::handshaking: handshake(probe); return;
    case ActiveProbe::Phase::writing: write(probe); return;
    case ActiveProbe::Phase::reading: read(probe, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0); return;
    }
}

/// An idle connection with an event was closed, or received bytes without a request. Only TLS may send records (session tickets)
/// that are no fault.
bool Worker::is_idle_alive(Connection& connection) {
    if (!connection.ssl) return false;
    ERR_clear_error();
    const int count = SSL_read(connection.ssl.get(), buffer_.data(), static_cast<int>(buffer_.size()));
    return count <= 0 && SSL_get_error(connection.ssl.get(), count) == SSL_ERROR_WANT_READ;
}

void Worker::connected(ActiveProbe& probe) {
    if (!probe.redirect_target) probe.seen.connect = std::chrono::duration_cast<std::chrono::microseconds>(now_ - probe.begin);
    if (probe.program->is_connect_only()) {
        auto& connection = *probe.connection;
        probe.connection = nullptr;
        connection.probe = nullptr;
        pool(connection);
        finish(probe, Outcome::ok, "Success");
        return;
    }
    start_exchange(probe);
}

void Worker::not_connected(ActiveProbe& probe, int error, bool at_once) {
    if (probe.connection != nullptr) {
        drop(*probe.connection);
        probe.connection = nullptr;
    }
    const auto outcome = outcome_of(error, at_once);
    if (outcome != Outcome::local_error && probe.next_address < probe.addresses->size()) {
        connect_next(probe);
        return;
    }
    finish(probe, outcome, error_text(error));
}

/// Ends a connection with a reset, so that neither side keeps a socket in TIME_WAIT.
void Worker::drop(Connection& connection) {
    if (connection.fd < 0) return;
    end_handshake(connection);
    connection.ssl.reset();
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    ::close(connection.fd);
    connection.fd = -1;
    connection.probe = nullptr;
    closed_.push_back(&connection);
}

/// Resets the connection and keeps its socket, which saves half of the system calls of the next probe.
void Worker::pool(Connection& connection) {
    auto& ready = sockets_[connection.family == AF_INET6];
    const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (ready.size() >= max_spare || ::connect(connection.fd, &nowhere, sizeof nowhere) != 0) {
        drop(connection);
        return;
    }
    ready.push_back(&connection);
}

void Worker::park(Connection& connection, const Engine::ProbeTargetPtr& target) {
    connection.probe = nullptr;
    if (max_idle_ == 0) {
        drop(connection);
        return;
    }
    while (parked_count_ >= max_idle_)
        if (!give_up_idle(1)) break;
    connection.parked_for = target;
    target->idle_connection = &connection;
    connection.older = newest_;
    connection.newer = nullptr;
    if (newest_ != nullptr) newest_->newer = &connection;
    newest_ = &connection;
    if (oldest_ == nullptr) oldest_ = &connection;
    ++parked_count_;
    ++counts.idle;
}

void Worker::unpark(Connection& connection) {
    (connection.newer != nullptr ? connection.newer->older : newest_) = connection.older;
    (connection.older != nullptr ? connection.older->newer : oldest_) = connection.newer;
    connection.newer = connection.older = nullptr;
    connection.parked_for->idle_connection = nullptr;
    connection.parked_for.reset();
    --parked_count_;
    --counts.idle;
}

/// Closes the longest idle connections, then spare sockets; false if there are none.
bool Worker::give_up_idle(std::size_t many) {
    bool any = false;
    for (; many > 0; --many) {
        if (oldest_ != nullptr) {
            auto& connection = *oldest_;
            unpark(connection);
            drop(connection);
        } else if (auto& ready = sockets_[0].empty() ? sockets_[1] : sockets_[0]; !ready.empty()) {
            auto& connection = *ready.back();
            ready.pop_back();
            drop(connection);
        } else {
            break;
        }
        any = true;
    }
    return any;
}

/// Makes the connections that were closed in this round available again: no event refers to them any more.
void Worker::reap() {
    for (auto* connection : closed_) {
        std::unique_ptr<Connection> owned(connection);
        if (spare_connections_.size() >= max_spare) continue;
        *owned = Connection{};
        spare_connections_.push_back(std::move(owned));
    }
    closed_.clear();
}

} // namespace orrery::health
