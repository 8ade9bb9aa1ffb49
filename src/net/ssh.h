#pragma once

#include "core/task.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::net {

/// Address, account and keys for a login.
struct SshTarget {
    std::string host; ///< address or name
    std::uint16_t port = 22;
    std::string user = "root";
    std::string private_key; ///< OpenSSH or PEM format, without a passphrase; never written to disk
    std::string host_key;    ///< "ssh-ed25519 AAAA..."; other keys are rejected
    /// Called on the home loop when `host_key` is empty, with the key that the host presented, before anything is sent to the host.
    /// Ok means: trust the key; the function stores it. Without this function, hosts with unknown keys are rejected.
    std::function<Task<Unit>(Context, std::string host_key)> on_first_key;
    std::shared_ptr<const SshTarget> jump; ///< connect through this host

    /// "root@192.0.2.11", with the port unless it is 22.
    std::string text() const;
};

/// A command for a host. Each item of `argv` is quoted, so that the shell on the host interprets nothing in it.
struct SshCommand {
    std::vector<std::string> argv;
    std::shared_ptr<const std::string> input; ///< standard input, then end of file; null: empty
    bool sudo = false;                        ///< run as root with `sudo -n`: no password prompt, no terminal
    std::size_t max_output = 1 << 20;         ///< per stream in the result; the excess is dropped and `truncated` is set
    /// Called on the home loop with each piece (stream 1 or 2), one at a time; flow control slows the host down. The result then
    /// has no output. An error closes the channel of the command, and `run` returns it.
    std::function<Task<Unit>(int stream, std::string piece)> on_output;
    /// If not null, set just before the command is sent to the host: an error while it is false means that nothing was run.
    std::shared_ptr<std::atomic<bool>> begun;
};

struct SshResult {
    int exit_code = -1; ///< -1 when a signal ended it, or the host sent none
    std::string signal; ///< "KILL"
    std::string output, errors;
    bool truncated = false;
};

/// Whether the last command for a host had a connection.
struct SshReach {
    WallTime time{};
    bool reached = false;
    std::string message; ///< why the host was not reached
};

struct SshOptions {
    Duration login_timeout = std::chrono::seconds(10); ///< for a connection and its login
    int login_tries = 6;            ///< when the host closes the connection before its banner, as sshd does beyond MaxStartups
    std::size_t max_logins = 32;    ///< concurrent, over all hosts
    std::size_t max_channels = 8;   ///< concurrent, on one connection; further commands wait
    std::size_t max_waiting = 1024; ///< for one host; further commands are `throttled`
    Duration keep_alive = std::chrono::seconds(15);  ///< interval; after three without a response the connection is closed
    Duration idle_timeout = std::chrono::minutes(5); ///< of an unused connection
};

/// Runs commands on many hosts over SSH, with one shared, persistent connection per host, on a thread of its own. Callers use it on
/// the home loop only; coroutines resume there.
///
///     auto ran = co_await ssh.run(ctx, {.host = "192.0.2.11", .private_key = key, .host_key = pinned}, {.argv = {"uname", "-r"}});
class Ssh {
public:
    explicit Ssh(asio::any_io_executor home, SshOptions options = {});
    /// `stop` first.
    ~Ssh();
    Ssh(const Ssh&) = delete;
    Ssh& operator=(const Ssh&) = delete;

    /// Runs a command and waits for its end. The end of the caller, of the deadline or of the connection does not end a command
    /// that was started; that is up to the host. Errors: `unavailable`: the connection failed or broke; `denied`: the host rejected
    /// our key, or presented a different host key (the message has both fingerprints); `timeout`; `cancelled`; `throttled`: too
    /// many commands wait for this host; `invalid`: a bad key.
    Task<SshResult> run(Context ctx, SshTarget target, SshCommand command);
    /// Fetches the key that a host presents, in the format of `SshTarget::host_key`, without a login.
    Task<std::string> shown_host_key(Context ctx, SshTarget target);
    /// The result of the last `run` for a target (by `SshTarget::text`) since this process started; nullopt before the first.
    std::optional<SshReach> last_reach(const std::string& target_text) const;
    /// Closes all connections and ends the thread; running commands return `cancelled`.
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// The fingerprint "SHA256:..." of a public key ("ssh-ed25519 AAAA..."). Errors: `invalid`.
Result<std::string> ssh_fingerprint(std::string_view public_key);
/// Errors: `invalid` with a remedy when the text is not a private key, or the key has a passphrase.
Result<Unit> check_ssh_private_key(const std::string& text);

} // namespace orrery::net
