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

/// What connections need of their pool. All but `home` belongs to the thread of SSH.
struct SshPlace {
    asio::any_io_executor executor; ///< the thread's
    asio::any_io_executor home;
    SshOptions options;
    TaskGroup& tasks;
};

/// One logged-in connection. libssh is not reentrant and has one way to learn of news: any call may handle packets that are for
/// somebody else. So each call is followed by `settle`, which wakes all who wait when packets were handled.
class SshConnection : public std::enable_shared_from_this<SshConnection> {
public:
    /// Connects (through `jump`, where there is one), checks the host's key and logs in.
    static Task<std::shared_ptr<SshConnection>> open(Context ctx, SshPlace& place, SshTarget target,
                                                     std::shared_ptr<SshConnection> jump);
    /// Connects and only looks at the key.
    static Task<std::string> look(Context ctx, SshPlace& place, SshTarget target, std::shared_ptr<SshConnection> jump);

    SshConnection(SshPlace& place, SshTarget target);
    ~SshConnection();

    Task<SshResult> run(Context ctx, SshCommand command);
    /// A socket whose other end is at host:port as seen from there.
    Task<int> forward(Context ctx, std::string host, std::uint16_t port);

    bool alive() const { return alive_; }
    std::size_t users() const { return running_ + waiting_ + forwards_; }
    SteadyTime idle_since() const { return idle_since_; }
    /// Ends it: whoever uses it gets an error with `why`.
    void close(std::string_view why);

private:
    class Channel;

    Task<Unit> connect(Context ctx, std::shared_ptr<SshConnection> jump, std::string host_key_algorithms);
    Task<Unit> check_host(Context ctx, std::shared_ptr<SshConnection> jump);
    Task<Unit> log_in(Context ctx);
    Error changed_key(const std::string& shown) const;

    asio::awaitable<void> read_packets();
    asio::awaitable<void> write_packets();
    asio::awaitable<void> keep_alive();
    void settle();
    Task<Unit> news(Context ctx); ///< waits until packets were handled, or output was flushed
    Error broken() const;
    std::string error_text() const;

    Task<Unit> place_for_channel(Context ctx);
    void leave();
    Task<Unit> open_channel(Context ctx, ssh_channel channel);
    Task<Unit> request_exec(Context ctx, ssh_channel channel, std::string line);
    Task<SshResult> converse(Context ctx, ssh_channel channel, SshCommand command);
    asio::awaitable<void> carry_out(ssh_channel channel, std::shared_ptr<asio::posix::stream_descriptor> socket);
    asio::awaitable<void> carry_in(std::shared_ptr<Channel> channel, std::shared_ptr<asio::posix::stream_descriptor> socket);

    SshPlace& place_;
    SshTarget target_;
    ssh_session session_ = nullptr;
    std::shared_ptr<SshConnection> jump_; // kept as long as this lives
    asio::posix::stream_descriptor socket_;
    ssh_counter_struct bytes_{}, packets_{};
    std::uint64_t packets_seen_ = 0;
    Notifier changed_;
    bool alive_ = false, flushing_ = false;
    std::string why_closed_;
    std::size_t running_ = 0, open_ = 0; // open_: of the running, those the host has let in
    std::size_t waiting_ = 0, forwards_ = 0, most_channels_;
    SteadyTime idle_since_, heard_at_, lowered_at_{};
    Notifier room_;
};

} // namespace orrery::net
