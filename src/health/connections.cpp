#include "health/worker.h"

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

constexpr std::size_t most_spare = 1024;

/// What a failed connection says about the target, and what about ourselves. `at_once`: the system said so without asking anybody.
Outcome outcome_of(int error, bool at_once) {
    switch (error) {
    case ECONNREFUSED: return Outcome::refused;
    case ETIMEDOUT: return Outcome::timeout_connect;
    case ENETUNREACH: return at_once ? Outcome::local_error : Outcome::unreachable; // at once: this machine has no route there
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EAGAIN:        // no source port left, as some kernels say it
    case EADDRNOTAVAIL: // the same
    case EADDRINUSE:
    case EAFNOSUPPORT:
    case EACCES:
    case EPERM: return Outcome::local_error;
    default: return Outcome::unreachable;
    }
}

std::string words_of(int error) {
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

/// A socket to connect with: one that was used before where nothing but the connection is wanted.
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
    // The last step of the handshake is not sent on its own: it goes with the request, or not at all where a reset follows. The
    // second of these is forgotten with the connection, the first stays with a socket that is used again.
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

void Worker::connect_next(Look& look) {
    look.phase = Look::Phase::connecting;
    const auto& plan = *look.plan;
    const auto& address = (*look.addresses)[look.next_address++];
    int error = 0;
    auto* connection = open_socket(address.family(), plan.is_connect_only(), error);
    if (connection == nullptr) {
        not_connected(look, error, true);
        return;
    }
    connection->look = &look;
    look.connection = connection;
    ++counts.connections;
    if (::connect(connection->fd, address.get(), address.size) == 0) {
        connected(look);
    } else if (errno == EINPROGRESS) {
        fresh_.push_back(&look);
    } else {
        not_connected(look, errno, true);
    }
}

/// What was begun in this round and is near has been answered by now: one call tells which, and spares them the epoll set.
void Worker::settle_fresh() {
    while (!fresh_.empty()) {
        std::vector<Look*> begun;
        begun.swap(fresh_);
        polled_.clear();
        for (const auto* look : begun) polled_.push_back({.fd = look->connection->fd, .events = POLLOUT, .revents = 0});
        if (::poll(polled_.data(), polled_.size(), 0) < 0)
            for (auto& one : polled_) one.revents = 0;
        now_ = real_clock().steady();
        for (std::size_t i = 0; i < begun.size(); ++i) {
            auto& look = *begun[i];
            const auto seen = polled_[i].revents;
            if (seen == 0) {
                const bool only = look.plan->is_connect_only();
                watch(*look.connection, only ? EPOLLOUT | EPOLLONESHOT : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
                look.connection->waits_to_write = !only;
            } else {
                on_event(*look.connection, (seen & (POLLERR | POLLHUP) ? EPOLLERR : 0U) | EPOLLOUT);
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
    if (connection.fd < 0) return; // ended in this round
    if (connection.look == nullptr) {
        if (connection.rests_for && !still_rests(connection)) {
            unrest(connection);
            drop(connection);
        }
        return;
    }
    auto& look = *connection.look;
    switch (look.phase) {
    case Look::Phase::connecting:
        if (events & (EPOLLERR | EPOLLHUP)) {
            int error = 0;
            socklen_t size = sizeof error;
            ::getsockopt(connection.fd, SOL_SOCKET, SO_ERROR, &error, &size);
            not_connected(look, error == 0 ? ECONNRESET : error, false);
        } else if (events & EPOLLOUT) {
            connected(look);
        }
        return;
    case Look::Phase::resolving:
    case Look::Phase::queueing: return;
    case Look::Phase::handshaking: shake(look); return;
    case Look::Phase::writing: write(look); return;
    case Look::Phase::reading: read(look, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0); return;
    }
}

/// What rests and stirs is over: closed, or talking out of turn. Only TLS may have something to tell that we need not hear.
bool Worker::still_rests(Connection& connection) {
    if (!connection.ssl) return false;
    ERR_clear_error();
    const int count = SSL_read(connection.ssl.get(), buffer_.data(), static_cast<int>(buffer_.size()));
    return count <= 0 && SSL_get_error(connection.ssl.get(), count) == SSL_ERROR_WANT_READ;
}

void Worker::connected(Look& look) {
    if (!look.elsewhere) look.seen.connect = std::chrono::duration_cast<std::chrono::microseconds>(now_ - look.begin);
    if (look.plan->is_connect_only()) {
        auto& connection = *look.connection;
        look.connection = nullptr;
        connection.look = nullptr;
        pool(connection);
        finish(look, Outcome::ok, "Success");
        return;
    }
    start_exchange(look);
}

void Worker::not_connected(Look& look, int error, bool at_once) {
    if (look.connection != nullptr) {
        drop(*look.connection);
        look.connection = nullptr;
    }
    const auto outcome = outcome_of(error, at_once);
    if (outcome != Outcome::local_error && look.next_address < look.addresses->size()) {
        connect_next(look);
        return;
    }
    finish(look, outcome, words_of(error));
}

/// Ends a connection with a reset: nothing that was sent can be lost, and neither side keeps a trace of it.
void Worker::drop(Connection& connection) {
    if (connection.fd < 0) return;
    end_handshake(connection);
    connection.ssl.reset();
    const linger reset{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    ::close(connection.fd);
    connection.fd = -1;
    connection.look = nullptr;
    graves_.push_back(&connection);
}

/// The connection is reset and its socket kept: half the system calls of the next look are saved.
void Worker::pool(Connection& connection) {
    auto& ready = sockets_[connection.family == AF_INET6];
    const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
    if (ready.size() >= most_spare || ::connect(connection.fd, &nowhere, sizeof nowhere) != 0) {
        drop(connection);
        return;
    }
    ready.push_back(&connection);
}

void Worker::rest(Connection& connection, const Engine::SpotPtr& spot) {
    connection.look = nullptr;
    if (most_kept_ == 0) {
        drop(connection);
        return;
    }
    while (resting_ >= most_kept_)
        if (!give_up_idle(1)) break;
    connection.rests_for = spot;
    spot->kept = &connection;
    connection.older = newest_;
    connection.newer = nullptr;
    if (newest_ != nullptr) newest_->newer = &connection;
    newest_ = &connection;
    if (oldest_ == nullptr) oldest_ = &connection;
    ++resting_;
    ++counts.kept;
}

void Worker::unrest(Connection& connection) {
    (connection.newer != nullptr ? connection.newer->older : newest_) = connection.older;
    (connection.older != nullptr ? connection.older->newer : oldest_) = connection.newer;
    connection.newer = connection.older = nullptr;
    connection.rests_for->kept = nullptr;
    connection.rests_for.reset();
    --resting_;
    --counts.kept;
}

/// Closes those that rest longest, and sockets that wait for work; false where there is nothing to give up.
bool Worker::give_up_idle(std::size_t many) {
    bool any = false;
    for (; many > 0; --many) {
        if (oldest_ != nullptr) {
            auto& connection = *oldest_;
            unrest(connection);
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

/// Those that ended in this round can be used again: no event names them any more.
void Worker::bury() {
    for (auto* grave : graves_) {
        std::unique_ptr<Connection> owned(grave);
        if (spare_connections_.size() >= most_spare) continue;
        *owned = Connection{};
        spare_connections_.push_back(std::move(owned));
    }
    graves_.clear();
}

} // namespace orrery::health
