#pragma once

#include "core/task.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::net {

/// Where to log in, as whom, and how to know that it is really that host.
struct SshTarget {
    std::string host; ///< address or name
    std::uint16_t port = 22;
    std::string user = "root";
    std::string private_key; ///< OpenSSH's or PEM's text, without a passphrase. Stays in memory
    std::string host_key;    ///< "ssh-ed25519 AAAA...": no other is accepted
    /// Asked, on the pool's home loop, where `host_key` is empty: with the key that the host showed, before anything is sent to it.
    /// Ok: trust it from now on (and keep it). Without this function a host whose key is not known is refused.
    std::function<Task<Unit>(Context, std::string host_key)> on_first_key;
    std::shared_ptr<const SshTarget> jump; ///< go through this host

    /// "root@192.0.2.11", with the port where it is not 22.
    std::string text() const;
};

/// A command for a host. `argv` is quoted word by word: no shell there sees more than words.
struct SshCommand {
    std::vector<std::string> argv;
    std::shared_ptr<const std::string> input; ///< its standard input, then end of file; null: none
    bool sudo = false;                        ///< as root, by `sudo -n`: never a question, never a terminal
    std::size_t max_output = 1 << 20;         ///< per stream, kept in the result; what is beyond is dropped and `truncated` set
    /// Called on the home loop with each piece (stream 1 or 2), one at a time; the host is held back meanwhile. Nothing is kept in
    /// the result then. An error ends the command's channel and is what `run` returns.
    std::function<Task<Unit>(int stream, std::string piece)> on_output;
    /// Set, where it is given, when the host is about to be told: before that an error means that nothing was run.
    std::shared_ptr<std::atomic<bool>> begun;
};

struct SshResult {
    int exit_code = -1; ///< -1 when a signal ended it, or the host never said
    std::string signal; ///< "KILL"
    std::string output, errors;
    bool truncated = false;
};

struct SshOptions {
    Duration login_timeout = std::chrono::seconds(10); ///< for a connection and its login
    int login_tries = 6;                             ///< where the host closes before it says hello, as it does when too many knock
    std::size_t max_logins = 32;                     ///< at once, over all hosts
    std::size_t max_channels = 8;                    ///< at once, over one connection; further commands wait
    std::size_t max_waiting = 1024;                  ///< for one host; further commands are `throttled`
    Duration keep_alive = std::chrono::seconds(15);  ///< asked that often; after three silences the connection is given up
    Duration idle_timeout = std::chrono::minutes(5); ///< a connection nobody uses is closed
};

/// Commands on many hosts over SSH: one connection a host, kept and shared, on a thread of its own. Belongs to the home loop: all
/// calls come from there and are answered there.
///
///     auto ran = co_await ssh.run(ctx, {.host = "192.0.2.11", .private_key = key, .host_key = pinned}, {.argv = {"uname", "-r"}});
class Ssh {
public:
    explicit Ssh(asio::any_io_executor home, SshOptions options = {});
    /// `stop` first.
    ~Ssh();
    Ssh(const Ssh&) = delete;
    Ssh& operator=(const Ssh&) = delete;

    /// Runs it to its end. A command that was begun is not ended with the caller, the deadline or the connection: the host decides.
    /// `unavailable`: no connection, or it broke; `denied`: the key was refused, or the host is not who it should be (both
    /// fingerprints are in the words); `timeout`; `cancelled`; `throttled`: too many wait for this host; `invalid`: a bad key.
    Task<SshResult> run(Context ctx, SshTarget target, SshCommand command);
    /// The key a host shows, as `SshTarget::host_key` takes it. Nobody logs in.
    Task<std::string> shown_host_key(Context ctx, SshTarget target);
    /// Ends all connections and the thread; what is under way ends with `cancelled`.
    asio::awaitable<void> stop();

private:
    struct State;
    std::shared_ptr<State> state_;
};

/// "SHA256:..." of a public key ("ssh-ed25519 AAAA..."). `invalid` for what is none.
Result<std::string> ssh_fingerprint(std::string_view public_key);
/// `invalid` with a remedy for what is no private key, or one with a passphrase.
Result<Unit> check_ssh_private_key(const std::string& text);

} // namespace orrery::net
