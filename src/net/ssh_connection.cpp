#include "net/ssh_connection.h"

#include "net/byte_stream.h"
#include "net/cross_loop_call.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/server.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace orrery::net {

using namespace std::chrono_literals;

namespace {

constexpr auto ssh_token = asio::as_tuple(asio::use_awaitable);
using Descriptor = asio::posix::stream_descriptor;

void set_options_of_tcp(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // else every command costs 40 ms
    const int unacknowledged_ms = 45'000;                       // ms until unacknowledged data ends the connection
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

bool was_closed_early(const Error& error) {
    return error.code == Code::unavailable && error.remedy.find("MaxStartups") != std::string::npos;
}

} // namespace

SshConnection::SshConnection(SshRuntime& runtime, SshTarget target)
    : runtime_(runtime),
      target_(std::move(target)),
      socket_(runtime.executor),
      changed_(runtime.executor),
      max_channels_(runtime.options.max_channels),
      idle_since_(real_clock().steady()),
      last_received_(idle_since_),
      slot_released_(runtime.executor) {}

SshConnection::~SshConnection() {
    close("it is no longer needed");
    if (session_ == nullptr) return;
    ssh_free(session_);
}

std::string SshConnection::error_text() const {
    std::string text = session_ != nullptr ? ssh_get_error(session_) : "";
    for (auto& c : text)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    if (text.size() > 300) text.resize(300);
    return text;
}

Error SshConnection::broken() const {
    return Error{Code::unavailable, fmt::format("the connection to {} broke: {}", target_.text(), close_reason_)};
}

void SshConnection::close(std::string_view reason) {
    if (close_reason_.empty()) close_reason_ = reason;
    alive_ = false;
    if (socket_.is_open()) {
        const int fd = socket_.release(); // cancels pending waits
        // Not ssh_disconnect: it may block. The peer sees the end of the stream; libssh closes the descriptor in ssh_free.
        ::shutdown(fd, SHUT_RDWR);
    }
    changed_.notify_all();
    slot_released_.notify_all();
}

void SshConnection::wake_waiters() {
    if (session_ == nullptr) return;
    if (packets_.in_packets != packets_seen_) {
        packets_seen_ = packets_.in_packets;
        last_received_ = real_clock().steady();
        changed_.notify_all();
    }
    if (!alive_) return;
    if (ssh_is_connected(session_) == 0 || ssh_get_error_code(session_) == SSH_FATAL) {
        auto text = error_text();
        close(text.empty() ? "the host closed it" : text);
        return;
    }
    if ((ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0 && !flushing_) {
        flushing_ = true;
        runtime_.tasks.spawn(write_packets());
    }
}

Task<Unit> SshConnection::wait_for_packets(Context ctx) {
    if (!alive_) co_return broken();
    auto waited = co_await changed_.wait(ctx);
    if (!waited.ok() && waited.error().code == Code::timeout)
        co_return Error{Code::timeout, fmt::format("{} did not answer in time", target_.text())};
    if (!waited.ok()) co_return waited.error();
    if (!alive_) co_return broken();
    co_return Unit{};
}

asio::awaitable<void> SshConnection::read_packets() {
    auto self = shared_from_this();
    asio::steady_timer pause(runtime_.executor);
    while (alive_) {
        auto [error] = co_await socket_.async_wait(Descriptor::wait_read, ssh_token);
        if (error || !alive_) break;
        const auto before = bytes_.in_bytes;
        ssh_execute_message_callbacks(session_); // processes received packets of all channels
        wake_waiters();
        if (!alive_ || bytes_.in_bytes != before) continue;
        char peeked = 0;
        if (::recv(socket_.native_handle(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
            close("the host closed it");
            break;
        }
        pause.expires_after(5ms);
        co_await pause.async_wait(ssh_token);
    }
}

asio::awaitable<void> SshConnection::write_packets() {
    auto self = shared_from_this();
    while (alive_ && (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0) {
        auto [error] = co_await socket_.async_wait(Descriptor::wait_write, ssh_token);
        if (error || !alive_) break;
        ssh_execute_message_callbacks(session_);
        wake_waiters();
    }
    flushing_ = false;
    changed_.notify_all();
}

asio::awaitable<void> SshConnection::keep_alive() {
    auto self = shared_from_this();
    asio::steady_timer timer(runtime_.executor);
    while (alive_) {
        timer.expires_after(runtime_.options.keep_alive);
        auto [error] = co_await timer.async_wait(ssh_token);
        if (error || !alive_) break;
        const auto now = real_clock().steady();
        if (users() == 0 && now - idle_since_ > runtime_.options.idle_timeout) {
            close("idle timeout");
            break;
        }
        const auto silent = now - last_received_;
        if (silent > runtime_.options.keep_alive * 3) {
            close(
                fmt::format("the host has been silent for {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(silent))));
            break;
        }
        if (silent < runtime_.options.keep_alive / 2) continue;
        ssh_send_keepalive(session_);
        wake_waiters();
    }
}

// --- opening -----------------------------------------------------------------------------------------------------------

Result<Unit> SshConnection::start_session(int fd, const std::string& host_key_algorithms) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    session_ = ssh_new();
    if (session_ == nullptr) {
        ::close(fd);
        return Error{Code::internal, "libssh has no memory for a session"};
    }
    const int off = 0;
    const unsigned int port = target_.port;
    ssh_options_set(session_, SSH_OPTIONS_PROCESS_CONFIG, &off); // do not read an ssh_config
    ssh_options_set(session_, SSH_OPTIONS_HOST, target_.host.c_str());
    ssh_options_set(session_, SSH_OPTIONS_PORT, &port);
    ssh_options_set(session_, SSH_OPTIONS_USER, target_.user.c_str());
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
    if (!host_key_algorithms.empty() && ssh_options_set(session_, SSH_OPTIONS_HOSTKEYS, host_key_algorithms.c_str()) != SSH_OK) {
        ::close(fd);
        return Error{Code::invalid, fmt::format("the pinned key of {} is of an unknown type", target_.text())};
    }
    ssh_set_blocking(session_, 0);
    ssh_set_counters(session_, &bytes_, &packets_);
    socket_.assign(fd);
    alive_ = true;
    return Unit{};
}

Task<Unit> SshConnection::handshake(Context ctx) {
    for (;;) {
        const int rc = ssh_connect(session_);
        if (rc == SSH_OK) co_return Unit{};
        if (rc != SSH_AGAIN) {
            const auto text = error_text();
            const bool has_banner = ssh_get_serverbanner(session_) != nullptr;
            close(text);
            if (!has_banner)
                co_return Error{Code::unavailable, fmt::format("{} closed the connection before its SSH banner", target_.text()),
                                "if too many clients log in at once, raise MaxStartups in its sshd_config"};
            co_return Error{Code::unavailable, fmt::format("no SSH session with {}: {}", target_.text(), text)};
        }
        // libssh also waits for writing when its banner did not fit into the socket buffer.
        const auto flags = ssh_get_poll_flags(session_);
        auto ready = co_await within_deadline(ctx, [](SshConnection& self, int wanted) -> Task<Unit> {
            auto [error] = co_await self.socket_.async_wait(
                (wanted & SSH_WRITE_PENDING) != 0 ? Descriptor::wait_write : Descriptor::wait_read, ssh_token);
            if (error) co_return Error{Code::cancelled, "the caller was cancelled"};
            co_return Unit{};
        }(*this, flags));
        if (ready.ok()) continue;
        close("login timeout");
        if (ready.error().code == Code::timeout)
            co_return Error{Code::timeout,
                            fmt::format("{} accepted the connection, but no SSH server responded in time", target_.text()),
                            "check whether sshd on the host still works"};
        co_return ready.error();
    }
}

Task<Unit> SshConnection::connect(Context ctx, std::shared_ptr<SshConnection> jump, std::string host_key_algorithms) {
    int fd = -1;
    if (jump) {
        CO_TRY(fd, co_await jump->forward(ctx, target_.host, target_.port));
        jump_ = std::move(jump);
    } else {
        CO_TRY(auto stream,
               co_await connect_stream(ctx, Url{"ssh", target_.host, target_.port, "/"}, nullptr, runtime_.options.login_timeout));
        fd = ::fcntl(stream->descriptor(), F_DUPFD_CLOEXEC, 3);
        if (fd < 0) co_return Error{Code::unavailable, "too many open files", "raise the limit of open files (ulimit -n)"};
        set_options_of_tcp(fd);
    }
    CO_TRY(std::ignore, start_session(fd, host_key_algorithms));
    CO_TRY(std::ignore, co_await handshake(ctx));
    packets_seen_ = packets_.in_packets;
    runtime_.tasks.spawn(read_packets());
    co_return Unit{};
}

Error SshConnection::changed_key(const std::string& shown) const {
    const auto pinned = read_ssh_public_key(target_.host_key);
    return Error{Code::denied,
                 fmt::format("{} presents a host key that differs from the pinned one: {} instead of {}", target_.text(), shown,
                             pinned.ok() ? ssh_key_fingerprint(pinned->get()) : "an unreadable one"),
                 "this may be an attack. If the host was reinstalled, pin its new key"};
}

Task<Unit> SshConnection::check_host(Context ctx, std::shared_ptr<SshConnection> jump) {
    ssh_key raw = nullptr;
    if (ssh_get_server_publickey(session_, &raw) != SSH_OK)
        co_return Error{Code::unavailable, fmt::format("{} showed no host key", target_.text())};
    const SshKey shown(raw);
    if (!target_.host_key.empty()) {
        CO_TRY(const auto pinned, read_ssh_public_key(target_.host_key));
        if (ssh_key_cmp(shown.get(), pinned.get(), SSH_KEY_CMP_PUBLIC) != 0)
            co_return changed_key(ssh_key_fingerprint(shown.get()));
        co_return Unit{};
    }
    if (!target_.on_first_key) {
        co_return Error{
            Code::denied,
            fmt::format("the host key of {} is not known: it shows {}", target_.text(), ssh_key_fingerprint(shown.get())),
            fmt::format("if that is right, pin it as ssh.host_key: \"{}\"", ssh_public_key_text(shown.get()))};
    }
    const auto text = ssh_public_key_text(shown.get());
    CO_TRY(std::ignore, co_await run_on(runtime_.home, target_.on_first_key(ctx, text)));
    target_.host_key = text;
    co_return Unit{};
}

Task<Unit> SshConnection::log_in(Context ctx) {
    CO_TRY(const auto key, read_ssh_private_key(target_.private_key));
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_userauth_publickey(session_, nullptr, key.get());
        wake_waiters();
        if (rc == SSH_AUTH_SUCCESS) co_return Unit{};
        if (rc == SSH_AUTH_DENIED || rc == SSH_AUTH_PARTIAL)
            co_return Error{Code::denied,
                            fmt::format("{} refused the key{}", target_.text(), rc == SSH_AUTH_PARTIAL ? " alone" : ""),
                            fmt::format("put its public half into the authorized_keys of {}, or give another key", target_.user)};
        if (rc == SSH_AUTH_ERROR)
            co_return Error{Code::unavailable, fmt::format("no login at {}: {}", target_.text(), error_text())};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await wait_for_packets(ctx));
        }
    }
}

Task<std::shared_ptr<SshConnection>> SshConnection::open(Context ctx, SshRuntime& runtime, SshTarget target,
                                                         std::shared_ptr<SshConnection> jump) {
    std::string algorithms;
    if (!target.host_key.empty()) {
        CO_TRY(std::ignore, read_ssh_public_key(target.host_key));
        algorithms = ssh_host_key_algorithms(target.host_key);
    }
    CO_TRY(std::ignore, check_ssh_private_key(target.private_key));
    asio::steady_timer pause(runtime.executor);
    auto wait = 100ms;
    for (int tried = 1;; ++tried) {
        auto connection = std::make_shared<SshConnection>(runtime, target);
        auto connected = co_await connection->connect(ctx, jump, algorithms);
        if (connected.ok()) {
            connected = co_await connection->check_host(ctx, jump);
        } else if (!algorithms.empty() && connected.error().message.find("host key algo") != std::string::npos) {
            // It has no key of the pinned type any more. Which one it has now belongs into the refusal.
            auto now = co_await fetch_host_key(ctx, runtime, target, jump);
            auto shown = now.ok() ? ssh_fingerprint(*now) : Result<std::string>(now.error());
            connected = connection->changed_key(shown.ok() ? *shown : "a key of another type");
        }
        if (connected.ok()) connected = co_await connection->log_in(ctx);
        if (connected.ok()) {
            runtime.tasks.spawn(connection->keep_alive());
            co_return connection;
        }
        connection->close(connected.error().message);
        if (!was_closed_early(connected.error()) || tried >= runtime.options.login_tries) co_return connected.error();
        pause.expires_after(wait + std::chrono::milliseconds(std::rand() % wait.count()));
        wait *= 2;
        auto [error] = co_await pause.async_wait(ssh_token);
        if (error) co_return Error{Code::cancelled, "the caller was cancelled"};
    }
}

Task<std::string> SshConnection::fetch_host_key(Context ctx, SshRuntime& runtime, SshTarget target,
                                                std::shared_ptr<SshConnection> jump) {
    auto connection = std::make_shared<SshConnection>(runtime, std::move(target));
    CO_TRY(std::ignore, co_await connection->connect(ctx, std::move(jump), {}));
    ssh_key raw = nullptr;
    const int rc = ssh_get_server_publickey(connection->session_, &raw);
    const SshKey shown(raw);
    connection->close("its key was seen");
    if (rc != SSH_OK) co_return Error{Code::unavailable, fmt::format("{} showed no host key", connection->target_.text())};
    co_return ssh_public_key_text(shown.get());
}

// --- channels ----------------------------------------------------------------------------------------------------------

} // namespace orrery::net
