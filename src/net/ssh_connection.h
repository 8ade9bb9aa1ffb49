#pragma once

#include "core/task.h"
#include "net/ssh.h"
#include "net/ssh_keys.h"

#include <boost/asio/posix/stream_descriptor.hpp>

#include <libssh/libssh.h>
#include <memory>
#include <optional>
#include <string>

namespace orrery::net {

/// The objects that all connections of an Ssh share. All but `home` belong to the SSH thread.
struct SshRuntime {
    asio::any_io_executor executor; ///< of the SSH thread
    asio::any_io_executor home;
    SshOptions options;
    TaskGroup& tasks;
};

/// One authenticated connection. libssh is not reentrant, and any call may process packets of other channels. Therefore each call
/// is followed by `wake_waiters`, which wakes all waiting coroutines when packets were processed.
class SshConnection : public std::enable_shared_from_this<SshConnection> {
public:
    /// Connects (through `jump`, if not null), checks the host key and logs in.
    static Task<std::shared_ptr<SshConnection>> open(Context ctx, SshRuntime& runtime, SshTarget target,
                                                     std::shared_ptr<SshConnection> jump);
    /// Connects and returns the key that the host presents, without a login.
    static Task<std::string> fetch_host_key(Context ctx, SshRuntime& runtime, SshTarget target,
                                            std::shared_ptr<SshConnection> jump);

    SshConnection(SshRuntime& runtime, SshTarget target);
    ~SshConnection();

    Task<SshResult> run(Context ctx, SshCommand command);
    /// Opens a forwarded connection to host:port and returns a socket for it.
    Task<int> forward(Context ctx, std::string host, std::uint16_t port);

    bool alive() const { return alive_; }
    std::size_t users() const { return running_ + waiting_ + forwards_; }
    SteadyTime idle_since() const { return idle_since_; }
    /// Closes the connection: pending operations fail with `reason` in their message.
    void close(std::string_view reason);

private:
    class Channel;

    Task<Unit> connect(Context ctx, std::shared_ptr<SshConnection> jump, std::string host_key_algorithms);
    /// Creates the session on a connected socket, and owns the socket from then on.
    Result<Unit> start_session(int fd, const std::string& host_key_algorithms);
    /// Exchanges banners and keys.
    Task<Unit> handshake(Context ctx);
    Task<Unit> check_host(Context ctx, std::shared_ptr<SshConnection> jump);
    Task<Unit> log_in(Context ctx);
    Error changed_key(const std::string& shown) const;

    asio::awaitable<void> read_packets();
    asio::awaitable<void> write_packets();
    asio::awaitable<void> keep_alive();
    void wake_waiters();
    Task<Unit> wait_for_packets(Context ctx); ///< waits until packets were processed or output was flushed
    Error broken() const;
    std::string error_text() const;

    Task<Unit> acquire_channel_slot(Context ctx);
    void release_channel_slot();
    Task<Unit> open_channel(Context ctx, ssh_channel channel);
    Task<Unit> request_exec(Context ctx, ssh_channel channel, std::string line);
    struct PendingInput;
    /// Sends the next part of the input, then the end of file. True if something was sent.
    bool send_input(ssh_channel channel, PendingInput& input);
    /// Reads available output. True if there was some.
    Task<bool> read_output(ssh_channel channel, const SshCommand& command, std::string& buffer, SshResult& result);
    Task<SshResult> converse(Context ctx, ssh_channel channel, SshCommand command);
    asio::awaitable<void> forward_from_socket(ssh_channel channel, std::shared_ptr<asio::posix::stream_descriptor> socket);
    asio::awaitable<void> forward_to_socket(std::shared_ptr<Channel> channel,
                                            std::shared_ptr<asio::posix::stream_descriptor> socket);

    SshRuntime& runtime_;
    SshTarget target_;
    ssh_session session_ = nullptr;
    std::shared_ptr<SshConnection> jump_; // must outlive this connection
    asio::posix::stream_descriptor socket_;
    ssh_counter_struct bytes_{}, packets_{};
    std::uint64_t packets_seen_ = 0;
    Notifier changed_;
    bool alive_ = false, flushing_ = false;
    std::string close_reason_;
    std::size_t running_ = 0, open_ = 0; // open_: the running ones whose channel the host accepted
    std::size_t waiting_ = 0, forwards_ = 0, max_channels_;
    SteadyTime idle_since_, last_received_, lowered_at_{};
    Notifier slot_released_;
};

} // namespace orrery::net
