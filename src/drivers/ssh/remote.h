#pragma once

#include "core/task.h"
#include "drivers/ssh/logins.h"
#include "jobs/executor.h"
#include "net/ssh.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// A command for a host.
struct HostCommand {
    std::vector<std::string> argv;
    std::shared_ptr<const std::string> input;
    bool sudo = false;
    std::size_t max_output = 1 << 20;                                  ///< without `on_output`
    std::function<void(int stream, std::string_view piece)> on_output; ///< called on the loop; then the result has no output
    std::shared_ptr<std::atomic<bool>> begun;                          ///< set right before the command is sent to the host
};

/// Runs commands on a node over SSH, or on the server itself. Processes that a command has detached survive the end of the caller
/// and of the connection. (The port `health::CommandRunner`, for checks, is implemented with this in app/node_commands.h.) Loop
/// thread only.
class HostRunner {
public:
    virtual ~HostRunner() = default;
    virtual Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) = 0;
};

class SshRunner final : public HostRunner {
public:
    SshRunner(net::Ssh& ssh, Logins& logins) : ssh_(ssh), logins_(logins) {}
    Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) override;

private:
    net::Ssh& ssh_;
    Logins& logins_;
};

/// Runs commands on the server, whatever the node. Attempts have their folders below `home`.
class LocalRunner final : public HostRunner {
public:
    explicit LocalRunner(std::filesystem::path home) : home_(std::move(home)) {}
    Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) override;

private:
    std::filesystem::path home_;
};

/// The work of an attempt: the program of a runner and its input. Both are sent together with the start.
struct RemoteWork {
    std::string runner;
    std::shared_ptr<const std::string> input;
};

/// A script for the host's sh, or a command, with arguments, environment and standard input (nothing: none). No part of it becomes
/// an argument of a process that orrery starts.
RemoteWork script_work(const std::string& script, const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment, const std::optional<std::string>& input = {});
RemoteWork command_work(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                        const std::optional<std::string>& input, const std::string& folder);

/// The state of an attempt on a host.
struct RemoteEnd {
    enum class State {
        ended,       ///< by itself, with `exit_code`
        cancelled,   ///< it was killed on request
        not_started, ///< it was not started, and will not be
        lost,        ///< it was started, and left no result
    };
    State state = State::lost;
    int exit_code = -1;
    jobs::Outcome::Change change = jobs::Outcome::Change::unknown;
    bool disk_full = false; ///< the attempt failed, and the disk is full
    std::string message;    ///< of `lost`: the reason
};

/// Receives the output of an attempt.
struct RemoteOutput {
    jobs::Offsets at; ///< how far output is stored, with the beginning of an incomplete line; advances
    std::function<void(jobs::Stream, std::uint64_t offset, std::string_view bytes)> on_bytes;
    std::function<void(std::string_view line)> on_line; ///< each line of standard output, without its end; may be empty
    std::size_t max_line = 4096;                        ///< longer lines are cut
    /// The host is unreachable and is tried again; `back` is set when it can be reached.
    std::function<void(std::string message, std::shared_ptr<const std::atomic<bool>> back)> on_unreachable;
};

/// Attempts that survive the server. Each runs detached on its host, with a folder that holds its output and exit code. Creating
/// that folder is what starts it, so that it starts once; later calls read its output from where the last one stopped. Loop thread
/// only.
class RemoteAttempts {
public:
    explicit RemoteAttempts(HostRunner& runner, Clock& clock = real_clock()) : runner_(runner), clock_(clock) {}

    /// Starts the attempt and waits for its end, over broken connections, for up to `retry_budget` each time the host cannot be
    /// reached. An Error: certain that nothing was started (or the caller was cancelled).
    Task<RemoteEnd> start(Context ctx, resource::Node node, bool sudo, std::string id, RemoteWork work, RemoteOutput& out,
                          Duration retry_budget);
    /// Re-attaches to an attempt that may have been started. `not_started` is final: a start that arrives late has no effect, and
    /// the next `start` of this id on this server uses a new folder. An Error: the host could not be reached.
    Task<RemoteEnd> attach(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out, Duration retry_budget);
    /// Kills all its processes. An Error: the host could not be reached.
    Task<Unit> cancel(Context ctx, resource::Node node, bool sudo, std::string id);
    Task<Unit> clean_up(Context ctx, resource::Node node, bool sudo, std::string id);

    /// Runs a read-only command directly, without the folder of an attempt.
    Task<net::SshResult> run(Context ctx, resource::Node node, bool sudo, std::vector<std::string> argv, std::string input = {},
                             std::size_t max_output = 1 << 20);

private:
    struct Answer;
    asio::awaitable<Answer> ask(Context ctx, const resource::Node& node, bool sudo, std::string operation, std::string folder,
                                RemoteWork work, RemoteOutput* out,
                                std::shared_ptr<std::atomic<bool>> begun = std::make_shared<std::atomic<bool>>(false));
    /// `broke`: why the connection broke; empty: another server had started the attempt.
    Task<RemoteEnd> follow(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out, Duration retry_budget,
                           std::string broke);

    HostRunner& runner_;
    Clock& clock_;
    std::map<std::string, int> generations_; ///< by id: the number of its next folder, where earlier ones are fenced
};

} // namespace orrery::drivers
