#include "net/ssh_connection.h"

#include "core/log.h"
#include "net/ssh_crossing.h"
#include "net/ssh_quote.h"
#include "net/wire.h"

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <libssh/callbacks.h>
#include <libssh/server.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace orrery::net {

using namespace std::chrono_literals;

namespace {

constexpr auto ssh_token = asio::as_tuple(asio::use_awaitable);
using Descriptor = asio::posix::stream_descriptor;

asio::awaitable<bool> is_cancelled() {
    const auto state = co_await asio::this_coro::cancellation_state;
    co_return state.cancelled() != asio::cancellation_type::none;
}

void set_options_of_tcp(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // else every command costs 40 ms
    const int patience = 45'000;                                // ms until unacknowledged data ends the connection
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof patience);
}

bool was_closed_early(const Error& error) {
    return error.code == Code::unavailable && error.remedy.find("MaxStartups") != std::string::npos;
}

} // namespace

/// A channel, freed with its last user.
class SshConnection::Channel {
public:
    Channel(std::shared_ptr<SshConnection> connection, ssh_channel channel_)
        : channel(channel_), connection_(std::move(connection)) {}
    ~Channel() {
        if (channel == nullptr) return;
        ssh_channel_free(channel); // and closes it, where it was open
        if (connection_->alive_) connection_->settle();
    }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ssh_channel channel;

private:
    std::shared_ptr<SshConnection> connection_;
};

SshConnection::SshConnection(SshPlace& place, SshTarget target)
    : place_(place),
      target_(std::move(target)),
      socket_(place.executor),
      changed_(place.executor),
      most_channels_(place.options.max_channels),
      idle_since_(real_clock().steady()),
      heard_at_(idle_since_),
      room_(place.executor) {}

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
    return Error{Code::unavailable, fmt::format("the connection to {} broke: {}", target_.text(), why_closed_)};
}

void SshConnection::close(std::string_view why) {
    if (why_closed_.empty()) why_closed_ = why;
    alive_ = false;
    if (socket_.is_open()) {
        const int fd = socket_.release(); // cancels who waits for it
        // Not ssh_disconnect: it may block. The peer sees the end of the stream; libssh closes the descriptor in ssh_free.
        ::shutdown(fd, SHUT_RDWR);
    }
    changed_.notify_all();
    room_.notify_all();
}

void SshConnection::settle() {
    if (session_ == nullptr) return;
    if (packets_.in_packets != packets_seen_) {
        packets_seen_ = packets_.in_packets;
        heard_at_ = real_clock().steady();
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
        place_.tasks.spawn(write_packets());
    }
}

Task<Unit> SshConnection::news(Context ctx) {
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
    asio::steady_timer pause(place_.executor);
    while (alive_) {
        auto [error] = co_await socket_.async_wait(Descriptor::wait_read, ssh_token);
        if (error || !alive_) break;
        const auto before = bytes_.in_bytes;
        ssh_execute_message_callbacks(session_); // handles what has come, whoever it is for
        settle();
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
        settle();
    }
    flushing_ = false;
    changed_.notify_all();
}

asio::awaitable<void> SshConnection::keep_alive() {
    auto self = shared_from_this();
    asio::steady_timer timer(place_.executor);
    while (alive_) {
        timer.expires_after(place_.options.keep_alive);
        auto [error] = co_await timer.async_wait(ssh_token);
        if (error || !alive_) break;
        const auto now = real_clock().steady();
        if (users() == 0 && now - idle_since_ > place_.options.idle_timeout) {
            close("nobody used it");
            break;
        }
        const auto silent = now - heard_at_;
        if (silent > place_.options.keep_alive * 3) {
            close(
                fmt::format("the host has been silent for {}", to_text(std::chrono::duration_cast<std::chrono::seconds>(silent))));
            break;
        }
        if (silent < place_.options.keep_alive / 2) continue;
        ssh_send_keepalive(session_);
        settle();
    }
}

// --- opening -----------------------------------------------------------------------------------------------------------

Task<Unit> SshConnection::connect(Context ctx, std::shared_ptr<SshConnection> jump, std::string host_key_algorithms) {
    int fd = -1;
    if (jump) {
        CO_TRY(fd, co_await jump->forward(ctx, target_.host, target_.port));
        jump_ = std::move(jump);
    } else {
        CO_TRY(auto wire,
               co_await connect_wire(ctx, Url{"ssh", target_.host, target_.port, "/"}, nullptr, place_.options.login_timeout));
        fd = ::fcntl(wire->descriptor(), F_DUPFD_CLOEXEC, 3);
        if (fd < 0) co_return Error{Code::unavailable, "too many open files", "raise the limit of open files (ulimit -n)"};
        set_options_of_tcp(fd);
    }
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    session_ = ssh_new();
    if (session_ == nullptr) {
        ::close(fd);
        co_return Error{Code::internal, "libssh has no memory for a session"};
    }
    const int off = 0;
    const unsigned int port = target_.port;
    ssh_options_set(session_, SSH_OPTIONS_PROCESS_CONFIG, &off); // nobody's ssh_config has a say
    ssh_options_set(session_, SSH_OPTIONS_HOST, target_.host.c_str());
    ssh_options_set(session_, SSH_OPTIONS_PORT, &port);
    ssh_options_set(session_, SSH_OPTIONS_USER, target_.user.c_str());
    ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
    if (!host_key_algorithms.empty() && ssh_options_set(session_, SSH_OPTIONS_HOSTKEYS, host_key_algorithms.c_str()) != SSH_OK) {
        ::close(fd);
        co_return Error{Code::invalid, fmt::format("the pinned key of {} is of an unknown type", target_.text())};
    }
    ssh_set_blocking(session_, 0);
    ssh_set_counters(session_, &bytes_, &packets_);
    socket_.assign(fd);
    alive_ = true;
    for (;;) {
        const int rc = ssh_connect(session_);
        if (rc == SSH_OK) break;
        if (rc != SSH_AGAIN) {
            const auto text = error_text();
            const bool hello = ssh_get_serverbanner(session_) != nullptr;
            close(text);
            if (!hello)
                co_return Error{Code::unavailable, fmt::format("{} closed the connection before it said hello", target_.text()),
                                "perhaps too many log in at once: raise MaxStartups in its sshd_config"};
            co_return Error{Code::unavailable, fmt::format("no SSH session with {}: {}", target_.text(), text)};
        }
        // It also waits for writing when its greeting did not fit, which for the first kilobytes on a new connection it does.
        const auto flags = ssh_get_poll_flags(session_);
        auto ready = co_await within_deadline(ctx, [](SshConnection& self, int wanted) -> Task<Unit> {
            auto [error] = co_await self.socket_.async_wait(
                (wanted & SSH_WRITE_PENDING) != 0 ? Descriptor::wait_write : Descriptor::wait_read, ssh_token);
            if (error) co_return Error{Code::cancelled, "the caller gave up"};
            co_return Unit{};
        }(*this, flags));
        if (!ready.ok()) {
            close("it was not logged in in time");
            if (ready.error().code == Code::timeout)
                co_return Error{Code::timeout,
                                fmt::format("{} accepted the connection, and then no SSH server answered in time", target_.text()),
                                "look whether sshd there still works"};
            co_return ready.error();
        }
    }
    packets_seen_ = packets_.in_packets;
    place_.tasks.spawn(read_packets());
    co_return Unit{};
}

Error SshConnection::changed_key(const std::string& shown) const {
    const auto pinned = read_ssh_public_key(target_.host_key);
    return Error{Code::denied,
                 fmt::format("{} shows another host key than the one that is pinned: {} instead of {}", target_.text(), shown,
                             pinned.ok() ? ssh_key_fingerprint(pinned->get()) : "an unreadable one"),
                 "somebody may be in between. If the machine was installed anew, pin its new key"};
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
    CO_TRY(std::ignore, co_await cross(place_.home, target_.on_first_key(ctx, text)));
    target_.host_key = text;
    co_return Unit{};
}

Task<Unit> SshConnection::log_in(Context ctx) {
    CO_TRY(const auto key, read_ssh_private_key(target_.private_key));
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_userauth_publickey(session_, nullptr, key.get());
        settle();
        if (rc == SSH_AUTH_SUCCESS) co_return Unit{};
        if (rc == SSH_AUTH_DENIED || rc == SSH_AUTH_PARTIAL)
            co_return Error{Code::denied,
                            fmt::format("{} refused the key{}", target_.text(), rc == SSH_AUTH_PARTIAL ? " alone" : ""),
                            fmt::format("put its public half into the authorized_keys of {}, or give another key", target_.user)};
        if (rc == SSH_AUTH_ERROR)
            co_return Error{Code::unavailable, fmt::format("no login at {}: {}", target_.text(), error_text())};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await news(ctx));
        }
    }
}

Task<std::shared_ptr<SshConnection>> SshConnection::open(Context ctx, SshPlace& place, SshTarget target,
                                                         std::shared_ptr<SshConnection> jump) {
    std::string algorithms;
    if (!target.host_key.empty()) {
        CO_TRY(std::ignore, read_ssh_public_key(target.host_key));
        algorithms = ssh_host_key_algorithms(target.host_key);
    }
    CO_TRY(std::ignore, check_ssh_private_key(target.private_key));
    asio::steady_timer pause(place.executor);
    auto wait = 100ms;
    for (int tried = 1;; ++tried) {
        auto connection = std::make_shared<SshConnection>(place, target);
        auto connected = co_await connection->connect(ctx, jump, algorithms);
        if (connected.ok()) {
            connected = co_await connection->check_host(ctx, jump);
        } else if (!algorithms.empty() && connected.error().message.find("host key algo") != std::string::npos) {
            // It has no key of the pinned type any more. Which one it has now belongs into the refusal.
            auto now = co_await look(ctx, place, target, jump);
            auto shown = now.ok() ? ssh_fingerprint(*now) : Result<std::string>(now.error());
            connected = connection->changed_key(shown.ok() ? *shown : "a key of another type");
        }
        if (connected.ok()) connected = co_await connection->log_in(ctx);
        if (connected.ok()) {
            place.tasks.spawn(connection->keep_alive());
            co_return connection;
        }
        connection->close(connected.error().message);
        if (!was_closed_early(connected.error()) || tried >= place.options.login_tries) co_return connected.error();
        pause.expires_after(wait + std::chrono::milliseconds(std::rand() % wait.count()));
        wait *= 2;
        auto [error] = co_await pause.async_wait(ssh_token);
        if (error) co_return Error{Code::cancelled, "the caller gave up"};
    }
}

Task<std::string> SshConnection::look(Context ctx, SshPlace& place, SshTarget target, std::shared_ptr<SshConnection> jump) {
    auto connection = std::make_shared<SshConnection>(place, std::move(target));
    CO_TRY(std::ignore, co_await connection->connect(ctx, std::move(jump), {}));
    ssh_key raw = nullptr;
    const int rc = ssh_get_server_publickey(connection->session_, &raw);
    const SshKey shown(raw);
    connection->close("its key was seen");
    if (rc != SSH_OK) co_return Error{Code::unavailable, fmt::format("{} showed no host key", connection->target_.text())};
    co_return ssh_public_key_text(shown.get());
}

// --- channels ----------------------------------------------------------------------------------------------------------

Task<Unit> SshConnection::place_for_channel(Context ctx) {
    // Perhaps it was others' sessions that left so little room.
    if (most_channels_ < place_.options.max_channels && real_clock().steady() - lowered_at_ > 60s)
        most_channels_ = place_.options.max_channels;
    if (running_ >= most_channels_) {
        if (waiting_ >= place_.options.max_waiting)
            co_return Error{Code::throttled, fmt::format("{} commands wait for {} already", waiting_, target_.text())};
        ++waiting_;
        Result<Unit> waited = Unit{};
        while (alive_ && waited.ok() && running_ >= most_channels_) waited = co_await room_.wait(ctx);
        --waiting_;
        if (!waited.ok() && waited.error().code == Code::timeout)
            co_return Error{Code::timeout, fmt::format("{} was busy with other commands until the deadline", target_.text())};
        if (!waited.ok()) co_return waited.error();
    }
    if (!alive_) co_return broken();
    ++running_;
    co_return Unit{};
}

void SshConnection::leave() {
    --running_;
    idle_since_ = real_clock().steady();
    room_.notify_all();
}

Task<Unit> SshConnection::open_channel(Context ctx, ssh_channel channel) {
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_channel_open_session(channel);
        settle();
        if (rc == SSH_OK) co_return Unit{};
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN) co_return Error{Code::throttled, error_text()};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await news(ctx));
        }
    }
}

Task<Unit> SshConnection::request_exec(Context ctx, ssh_channel channel, std::string line) {
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_channel_request_exec(channel, line.c_str());
        settle();
        if (rc == SSH_OK) co_return Unit{};
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN)
            co_return Error{Code::denied, fmt::format("{} refused to run a command: {}", target_.text(), error_text()),
                            "look for a ForceCommand or a restricted shell"};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await news(ctx));
        }
    }
}

Task<SshResult> SshConnection::run(Context ctx, SshCommand command) {
    auto self = shared_from_this();
    if (command.argv.empty()) co_return Error{Code::invalid, "there is no command to run"};
    for (const auto& argument : command.argv)
        if (argument.find('\0') != std::string::npos) co_return Error{Code::invalid, "an argument has a NUL in it"};
    auto line = shell_command(command.argv);
    if (command.sudo) line = "exec sudo -n -H -- " + line;
    if (line.size() > 100'000) co_return Error{Code::too_large, "the command line is longer than 100,000 bytes"};

    struct Place {
        SshConnection& connection;
        bool taken = false, open = false;
        ~Place() {
            if (open) --connection.open_;
            if (taken) connection.leave();
        }
    } place{*this};

    std::shared_ptr<Channel> channel;
    for (int refused = 0;;) {
        if (!place.taken) {
            CO_TRY(std::ignore, co_await place_for_channel(ctx));
            place.taken = true;
        }
        channel = std::make_shared<Channel>(self, ssh_channel_new(session_));
        if (channel->channel == nullptr) co_return Error{Code::internal, "libssh has no memory for a channel"};
        auto opened = co_await open_channel(ctx, channel->channel);
        if (opened.ok()) {
            ++open_;
            place.open = true;
            break;
        }
        // MaxSessions: the connection stays good. Often a session that ended just now is not yet forgotten there; if it is refused
        // again and again, there is room for fewer, and we wait for one of ours to end.
        if (opened.error().code != Code::throttled) co_return opened.error();
        const auto others = open_;
        channel.reset();
        leave();
        place.taken = false;
        if (++refused > 10 && others == 0)
            co_return Error{Code::unavailable, fmt::format("{} allows no session: {}", target_.text(), opened.error().message),
                            "raise MaxSessions in its sshd_config"};
        if (refused >= 3 && others > 0 && others < most_channels_) {
            log::info(ctx, "{} allows {} sessions at once (MaxSessions): further commands wait", target_.text(), others);
            most_channels_ = others;
            lowered_at_ = real_clock().steady();
        }
        asio::steady_timer pause(place_.executor, std::min(20ms * refused, 200ms));
        auto [error] = co_await pause.async_wait(ssh_token);
        if (error) co_return Error{Code::cancelled, "the caller gave up"};
        if (ctx.deadline() && real_clock().steady() > *ctx.deadline())
            co_return Error{Code::timeout, fmt::format("{} was busy with other commands until the deadline", target_.text())};
    }
    if (command.begun) *command.begun = true;
    CO_TRY(std::ignore, co_await request_exec(ctx, channel->channel, std::move(line)));
    co_return co_await converse(ctx, channel->channel, std::move(command));
}

namespace {

struct Ending {
    std::string signal;
    ssh_channel_callbacks_struct callbacks{};
    Ending() {
        callbacks.userdata = this;
        callbacks.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* signal, int, const char*, const char*,
                                                    void* own) {
            static_cast<Ending*>(own)->signal = signal != nullptr ? signal : "?";
        };
        ssh_callbacks_init(&callbacks);
    }
};

} // namespace

Task<SshResult> SshConnection::converse(Context ctx, ssh_channel channel, SshCommand command) {
    SshResult result;
    auto ending = std::make_unique<Ending>();
    ssh_add_channel_callbacks(channel, &ending->callbacks);
    struct Unhook {
        ssh_channel channel;
        Ending& ending;
        ~Unhook() { ssh_remove_channel_callbacks(channel, &ending.callbacks); }
    } unhook{channel, *ending};

    const std::string_view input = command.input ? std::string_view(*command.input) : std::string_view();
    std::size_t sent = 0;
    bool said_eof = false;
    constexpr std::uint32_t piece_size = 32 * 1024;
    std::string piece(piece_size, '\0');
    for (;;) {
        if (!alive_) co_return broken();
        bool progress = false;
        const auto before = packets_.in_packets;
        // Output first, so that a host that answers before it has read everything is heard.
        for (const int stream : {1, 2}) {
            const int got = ssh_channel_read_nonblocking(channel, piece.data(), piece_size, stream == 2 ? 1 : 0);
            if (got <= 0) continue;
            progress = true;
            const std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
            if (command.on_output) {
                settle();
                CO_TRY(std::ignore, co_await cross(place_.home, command.on_output(stream, std::string(bytes))));
                if (co_await is_cancelled()) co_return Error{Code::cancelled, "the caller gave up"};
                if (!alive_) co_return broken();
                continue;
            }
            auto& kept = stream == 1 ? result.output : result.errors;
            const auto room = command.max_output - std::min(command.max_output, kept.size());
            kept.append(bytes.substr(0, room));
            if (bytes.size() > room) result.truncated = true;
        }
        if (!said_eof && !flushing_ && ssh_channel_is_closed(channel) == 0) {
            if (sent < input.size()) {
                const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(input.size() - sent, 256 * 1024));
                const int wrote = ssh_channel_write(channel, input.data() + sent, size);
                if (wrote > 0) {
                    sent += static_cast<std::size_t>(wrote);
                    progress = true;
                } else if (wrote == SSH_ERROR && ssh_channel_is_closed(channel) == 0 && ssh_channel_is_eof(channel) == 0) {
                    said_eof = true; // it reads no more; what it still says counts
                }
            }
            if (sent == input.size()) {
                ssh_channel_send_eof(channel);
                said_eof = progress = true;
            }
        }
        settle();
        if (!alive_) co_return broken();
        const int status = ssh_channel_get_exit_status(channel);
        const bool drained = ssh_channel_poll(channel, 0) <= 0 && ssh_channel_poll(channel, 1) <= 0;
        settle();
        if (drained && ((ssh_channel_is_eof(channel) != 0 && (status >= 0 || !ending->signal.empty())) ||
                        ssh_channel_is_closed(channel) != 0)) {
            // Closing may have come with the last call: what is in its buffers still counts.
            if (ssh_channel_poll(channel, 0) > 0 || ssh_channel_poll(channel, 1) > 0) continue;
            result.exit_code = ending->signal.empty() ? ssh_channel_get_exit_status(channel) : -1;
            result.signal = ending->signal;
            co_return result;
        }
        if (progress || packets_.in_packets != before) continue;
        CO_TRY(std::ignore, co_await news(ctx));
    }
}

// --- jumping -----------------------------------------------------------------------------------------------------------

Task<int> SshConnection::forward(Context ctx, std::string host, std::uint16_t port) {
    auto self = shared_from_this();
    if (!alive_) co_return broken();
    auto channel = std::make_shared<Channel>(self, ssh_channel_new(session_));
    if (channel->channel == nullptr) co_return Error{Code::internal, "libssh has no memory for a channel"};
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_channel_open_forward(channel->channel, host.c_str(), port, "127.0.0.1", 0);
        settle();
        if (rc == SSH_OK) break;
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN)
            co_return Error{Code::unavailable,
                            fmt::format("{} cannot connect to {}:{} for us: {}", target_.text(), host, port, error_text()),
                            "check that it can reach the host and that its sshd has AllowTcpForwarding yes"};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await news(ctx));
        }
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        co_return Error{Code::unavailable, "too many open files", "raise the limit of open files (ulimit -n)"};
    auto ours = std::make_shared<Descriptor>(place_.executor, ends[0]);
    ++forwards_; // not idle while somebody goes through; the limit of channels is for commands
    place_.tasks.spawn(carry_in(channel, ours));
    place_.tasks.spawn(carry_out(channel->channel, ours));
    co_return ends[1];
}

/// From the channel to the socket. Owns the channel: `carry_out` ends when this closes the socket.
asio::awaitable<void> SshConnection::carry_in(std::shared_ptr<Channel> channel, std::shared_ptr<Descriptor> socket) {
    auto self = shared_from_this();
    std::array<char, 32 * 1024> piece;
    while (alive_ && socket->is_open()) {
        const auto before = packets_.in_packets;
        const int got = ssh_channel_read_nonblocking(channel->channel, piece.data(), piece.size(), 0);
        settle();
        if (got > 0) {
            auto [error, written] =
                co_await asio::async_write(*socket, asio::buffer(piece.data(), static_cast<std::size_t>(got)), ssh_token);
            if (error) break;
            continue;
        }
        if (!alive_ || ssh_channel_is_eof(channel->channel) != 0 || ssh_channel_is_closed(channel->channel) != 0) break;
        if (packets_.in_packets != before) continue;
        auto heard = co_await news(Context::background());
        if (!heard.ok()) break;
    }
    boost::system::error_code ignored;
    if (socket->is_open()) ::shutdown(socket->native_handle(), SHUT_RDWR);
    socket->close(ignored);
    --forwards_;
    idle_since_ = real_clock().steady();
}

/// From the socket to the channel.
asio::awaitable<void> SshConnection::carry_out(ssh_channel channel, std::shared_ptr<Descriptor> socket) {
    auto self = shared_from_this();
    std::array<char, 32 * 1024> piece;
    for (;;) {
        auto [error, got] = co_await socket->async_read_some(asio::buffer(piece), ssh_token);
        if (error || !alive_ || !socket->is_open()) break; // while the socket is open the channel lives
        for (std::size_t sent = 0; sent < got;) {
            const auto before = packets_.in_packets;
            const int wrote =
                flushing_ ? 0 : ssh_channel_write(channel, piece.data() + sent, static_cast<std::uint32_t>(got - sent));
            settle();
            if (wrote > 0) {
                sent += static_cast<std::size_t>(wrote);
                continue;
            }
            if (wrote < 0 && wrote != SSH_AGAIN) {
                boost::system::error_code ignored;
                socket->close(ignored);
            } else if (packets_.in_packets == before) {
                auto heard = co_await news(Context::background());
                if (!heard.ok()) co_return;
            }
            if (!alive_ || !socket->is_open()) co_return;
        }
    }
    if (socket->is_open()) {
        boost::system::error_code ignored;
        socket->close(ignored);
    }
    changed_.notify_all(); // carry_in looks, and ends
}

} // namespace orrery::net
