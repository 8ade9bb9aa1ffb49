#include "core/log.h"
#include "net/cross_loop_call.h"
#include "net/ssh_connection.h"
#include "net/ssh_quote.h"

#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <libssh/callbacks.h>
#include <sys/socket.h>
#include <unistd.h>

/// Channels of a connection: commands, and forwarded connections.
namespace orrery::net {

using namespace std::chrono_literals;

namespace {

constexpr auto channel_token = asio::as_tuple(asio::use_awaitable);

asio::awaitable<bool> is_cancelled() {
    const auto state = co_await asio::this_coro::cancellation_state;
    co_return state.cancelled() != asio::cancellation_type::none;
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
        if (connection_->alive_) connection_->wake_waiters();
    }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ssh_channel channel;

private:
    std::shared_ptr<SshConnection> connection_;
};

Task<Unit> SshConnection::acquire_channel_slot(Context ctx) {
    // Perhaps it was others' sessions that left so little room.
    if (max_channels_ < runtime_.options.max_channels && real_clock().steady() - lowered_at_ > 60s)
        max_channels_ = runtime_.options.max_channels;
    if (running_ >= max_channels_) {
        if (waiting_ >= runtime_.options.max_waiting)
            co_return Error{Code::throttled, fmt::format("{} commands wait for {} already", waiting_, target_.text())};
        ++waiting_;
        Result<Unit> waited = Unit{};
        while (alive_ && waited.ok() && running_ >= max_channels_) waited = co_await slot_released_.wait(ctx);
        --waiting_;
        if (!waited.ok() && waited.error().code == Code::timeout)
            co_return Error{Code::timeout, fmt::format("{} was busy with other commands until the deadline", target_.text())};
        if (!waited.ok()) co_return waited.error();
    }
    if (!alive_) co_return broken();
    ++running_;
    co_return Unit{};
}

void SshConnection::release_channel_slot() {
    --running_;
    idle_since_ = real_clock().steady();
    slot_released_.notify_all();
}

Task<Unit> SshConnection::open_channel(Context ctx, ssh_channel channel) {
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_channel_open_session(channel);
        wake_waiters();
        if (rc == SSH_OK) co_return Unit{};
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN) co_return Error{Code::throttled, error_text()};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await wait_for_packets(ctx));
        }
    }
}

Task<Unit> SshConnection::request_exec(Context ctx, ssh_channel channel, std::string line) {
    for (;;) {
        const auto before = packets_.in_packets;
        const int rc = ssh_channel_request_exec(channel, line.c_str());
        wake_waiters();
        if (rc == SSH_OK) co_return Unit{};
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN)
            co_return Error{Code::denied, fmt::format("{} refused to run a command: {}", target_.text(), error_text()),
                            "check the node for a ForceCommand or a restricted shell"};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await wait_for_packets(ctx));
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
            if (taken) connection.release_channel_slot();
        }
    } slot{*this};

    std::shared_ptr<Channel> channel;
    for (int refused = 0;;) {
        if (!slot.taken) {
            CO_TRY(std::ignore, co_await acquire_channel_slot(ctx));
            slot.taken = true;
        }
        channel = std::make_shared<Channel>(self, ssh_channel_new(session_));
        if (channel->channel == nullptr) co_return Error{Code::internal, "libssh has no memory for a channel"};
        auto opened = co_await open_channel(ctx, channel->channel);
        if (opened.ok()) {
            ++open_;
            slot.open = true;
            break;
        }
        // MaxSessions: the connection stays good. Often a session that ended just now is not yet forgotten there; if it is refused
        // again and again, there is room for fewer, and we wait for one of ours to end.
        if (opened.error().code != Code::throttled) co_return opened.error();
        const auto others = open_;
        channel.reset();
        release_channel_slot();
        slot.taken = false;
        if (++refused > 10 && others == 0)
            co_return Error{Code::unavailable, fmt::format("{} allows no session: {}", target_.text(), opened.error().message),
                            "raise MaxSessions in its sshd_config"};
        if (refused >= 3 && others > 0 && others < max_channels_) {
            log::info(ctx, "{} allows {} sessions at once (MaxSessions): further commands wait", target_.text(), others);
            max_channels_ = others;
            lowered_at_ = real_clock().steady();
        }
        asio::steady_timer pause(runtime_.executor, std::min(20ms * refused, 200ms));
        auto [error] = co_await pause.async_wait(channel_token);
        if (error) co_return Error{Code::cancelled, "the caller was cancelled"};
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

/// The standard input of a command, as far as it is not sent yet.
struct SshConnection::PendingInput {
    std::string_view bytes;
    bool is_closed = false; ///< the end of file was sent, or the host reads no more
};

bool SshConnection::send_input(ssh_channel channel, PendingInput& input) {
    if (input.is_closed || flushing_ || ssh_channel_is_closed(channel) != 0) return false;
    bool progress = false;
    if (!input.bytes.empty()) {
        const auto size = static_cast<std::uint32_t>(std::min<std::size_t>(input.bytes.size(), 256 * 1024));
        const int wrote = ssh_channel_write(channel, input.bytes.data(), size);
        if (wrote > 0) {
            input.bytes.remove_prefix(static_cast<std::size_t>(wrote));
            progress = true;
        } else if (wrote == SSH_ERROR && ssh_channel_is_closed(channel) == 0 && ssh_channel_is_eof(channel) == 0) {
            input.is_closed = true; // the command reads no more; its output still counts
        }
    }
    if (!input.bytes.empty()) return progress;
    ssh_channel_send_eof(channel);
    input.is_closed = true;
    return true;
}

Task<bool> SshConnection::read_output(ssh_channel channel, const SshCommand& command, std::string& buffer, SshResult& result) {
    bool progress = false;
    for (const int stream : {1, 2}) {
        const int got =
            ssh_channel_read_nonblocking(channel, buffer.data(), static_cast<std::uint32_t>(buffer.size()), stream == 2 ? 1 : 0);
        if (got <= 0) continue;
        progress = true;
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
        if (command.on_output) {
            wake_waiters();
            CO_TRY(std::ignore, co_await run_on(runtime_.home, command.on_output(stream, std::string(bytes))));
            if (co_await is_cancelled()) co_return Error{Code::cancelled, "the caller was cancelled"};
            if (!alive_) co_return broken();
            continue;
        }
        auto& text = stream == 1 ? result.output : result.errors;
        const auto room = command.max_output - std::min(command.max_output, text.size());
        text.append(bytes.substr(0, room));
        if (bytes.size() > room) result.truncated = true;
    }
    co_return progress;
}

Task<SshResult> SshConnection::converse(Context ctx, ssh_channel channel, SshCommand command) {
    SshResult result;
    auto ending = std::make_unique<Ending>();
    ssh_add_channel_callbacks(channel, &ending->callbacks);
    struct Unhook {
        ssh_channel channel;
        Ending& ending;
        ~Unhook() { ssh_remove_channel_callbacks(channel, &ending.callbacks); }
    } unhook{channel, *ending};

    PendingInput input{command.input ? std::string_view(*command.input) : std::string_view()};
    std::string buffer(32 * 1024, '\0');
    for (;;) {
        if (!alive_) co_return broken();
        const auto before = packets_.in_packets;
        // Read output first: the command may write before it has read all of its input.
        CO_TRY(const bool has_read, co_await read_output(channel, command, buffer, result));
        const bool has_sent = send_input(channel, input);
        wake_waiters();
        if (!alive_) co_return broken();
        const int status = ssh_channel_get_exit_status(channel);
        const bool drained = ssh_channel_poll(channel, 0) <= 0 && ssh_channel_poll(channel, 1) <= 0;
        wake_waiters();
        if (drained && ((ssh_channel_is_eof(channel) != 0 && (status >= 0 || !ending->signal.empty())) ||
                        ssh_channel_is_closed(channel) != 0)) {
            // The last call may have processed the close together with more output.
            if (ssh_channel_poll(channel, 0) > 0 || ssh_channel_poll(channel, 1) > 0) continue;
            result.exit_code = ending->signal.empty() ? ssh_channel_get_exit_status(channel) : -1;
            result.signal = ending->signal;
            co_return result;
        }
        if (has_read || has_sent || packets_.in_packets != before) continue;
        CO_TRY(std::ignore, co_await wait_for_packets(ctx));
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
        wake_waiters();
        if (rc == SSH_OK) break;
        if (!alive_) co_return broken();
        if (rc != SSH_AGAIN)
            co_return Error{Code::unavailable,
                            fmt::format("{} cannot connect to {}:{} for us: {}", target_.text(), host, port, error_text()),
                            "check that it can reach the host and that its sshd has AllowTcpForwarding yes"};
        if (packets_.in_packets == before) {
            CO_TRY(std::ignore, co_await wait_for_packets(ctx));
        }
    }
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        co_return Error{Code::unavailable, "too many open files", "raise the limit of open files (ulimit -n)"};
    auto ours = std::make_shared<asio::posix::stream_descriptor>(runtime_.executor, ends[0]);
    ++forwards_; // forwarding keeps the connection busy; the channel limit is for commands
    runtime_.tasks.spawn(forward_to_socket(channel, ours));
    runtime_.tasks.spawn(forward_from_socket(channel->channel, ours));
    co_return ends[1];
}

/// From the channel to the socket. Owns the channel: `forward_from_socket` ends when this closes the socket.
asio::awaitable<void> SshConnection::forward_to_socket(std::shared_ptr<Channel> channel,
                                                       std::shared_ptr<asio::posix::stream_descriptor> socket) {
    auto self = shared_from_this();
    std::array<char, 32 * 1024> piece;
    while (alive_ && socket->is_open()) {
        const auto before = packets_.in_packets;
        const int got = ssh_channel_read_nonblocking(channel->channel, piece.data(), piece.size(), 0);
        wake_waiters();
        if (got > 0) {
            auto [error, written] =
                co_await asio::async_write(*socket, asio::buffer(piece.data(), static_cast<std::size_t>(got)), channel_token);
            if (error) break;
            continue;
        }
        if (!alive_ || ssh_channel_is_eof(channel->channel) != 0 || ssh_channel_is_closed(channel->channel) != 0) break;
        if (packets_.in_packets != before) continue;
        auto heard = co_await wait_for_packets(Context::background());
        if (!heard.ok()) break;
    }
    boost::system::error_code ignored;
    if (socket->is_open()) ::shutdown(socket->native_handle(), SHUT_RDWR);
    socket->close(ignored);
    --forwards_;
    idle_since_ = real_clock().steady();
}

/// From the socket to the channel.
asio::awaitable<void> SshConnection::forward_from_socket(ssh_channel channel,
                                                         std::shared_ptr<asio::posix::stream_descriptor> socket) {
    auto self = shared_from_this();
    std::array<char, 32 * 1024> piece;
    for (;;) {
        auto [error, got] = co_await socket->async_read_some(asio::buffer(piece), channel_token);
        if (error || !alive_ || !socket->is_open()) break; // while the socket is open the channel lives
        for (std::size_t sent = 0; sent < got;) {
            const auto before = packets_.in_packets;
            const int wrote =
                flushing_ ? 0 : ssh_channel_write(channel, piece.data() + sent, static_cast<std::uint32_t>(got - sent));
            wake_waiters();
            if (wrote > 0) {
                sent += static_cast<std::size_t>(wrote);
                continue;
            }
            if (wrote < 0 && wrote != SSH_AGAIN) {
                boost::system::error_code ignored;
                socket->close(ignored);
            } else if (packets_.in_packets == before) {
                auto heard = co_await wait_for_packets(Context::background());
                if (!heard.ok()) co_return;
            }
            if (!alive_ || !socket->is_open()) co_return;
        }
    }
    if (socket->is_open()) {
        boost::system::error_code ignored;
        socket->close(ignored);
    }
    changed_.notify_all(); // wakes forward_to_socket, which then ends
}

} // namespace orrery::net
