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

/// A command for a host, as attempts need it.
struct HostCommand {
    std::vector<std::string> argv;
    std::shared_ptr<const std::string> input;
    bool sudo = false;
    std::size_t max_output = 1 << 20;                                  ///< where there is no `on_output`
    std::function<void(int stream, std::string_view piece)> on_output; ///< on the loop; nothing is kept then
    std::shared_ptr<std::atomic<bool>> begun;                          ///< set when the host is about to be told
};

/// Where commands run: on a machine over SSH, or at the server itself. Ends of the caller or of the connection leave what a command
/// has started detached alone. Loop thread only.
class CommandRunner {
public:
    virtual ~CommandRunner() = default;
    virtual Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) = 0;
};

class SshRunner final : public CommandRunner {
public:
    SshRunner(net::Ssh& ssh, Logins& logins) : ssh_(ssh), logins_(logins) {}
    Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) override;

private:
    net::Ssh& ssh_;
    Logins& logins_;
};

/// At the server, whatever the node; `home` is where attempts are kept.
class LocalRunner final : public CommandRunner {
public:
    explicit LocalRunner(std::filesystem::path home) : home_(std::move(home)) {}
    Task<net::SshResult> run(Context ctx, resource::Node node, HostCommand command) override;

private:
    std::filesystem::path home_;
};

/// What to begin on a host: a runner's program and what it reads. Both travel in one go with the beginning itself.
struct RemoteWork {
    std::string runner;
    std::shared_ptr<const std::string> input;
};

/// A script for the host's sh, or a command, with arguments, environment and standard input (nothing: none). None of it becomes an
/// argument of a process of ours.
RemoteWork script_work(const std::string& script, const std::vector<std::string>& arguments,
                       const std::map<std::string, std::string>& environment, const std::optional<std::string>& input = {});
RemoteWork command_work(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                        const std::optional<std::string>& input, const std::string& folder);

/// How an attempt on a host stands.
struct RemoteEnd {
    enum class What {
        ended,     ///< by itself, with `exit_code`
        cancelled, ///< because it was told to
        never,     ///< it never began and never will
        lost,      ///< it began, and is gone without a result
    };
    What what = What::lost;
    int exit_code = -1;
    jobs::Outcome::Change change = jobs::Outcome::Change::unknown;
    bool disk_full = false; ///< and the attempt failed
    std::string words;      ///< for `lost`: why
};

/// Where an attempt's output goes.
struct RemoteOutput {
    jobs::Offsets at; ///< kept so far, with the beginning of the line that goes on; moves on
    std::function<void(jobs::Stream, std::uint64_t offset, std::string_view bytes)> on_bytes;
    std::function<void(std::string_view line)> on_line; ///< each whole line of standard output, without its end; may be empty
    std::size_t longest_line = 4096;                    ///< what is beyond is cut
    /// The host is out of reach, and asked again; `back` is set when it is not any more.
    std::function<void(std::string words, std::shared_ptr<const std::atomic<bool>> back)> on_trouble;
};

/// Attempts that outlive the server. Each runs detached in a folder of its own on its host, which holds its output and its exit
/// code; making that folder is what begins it, so that it begins once. Whoever comes later reads on from where somebody stopped.
/// Loop thread only.
class RemoteAttempts {
public:
    explicit RemoteAttempts(CommandRunner& runner, Clock& clock = real_clock()) : runner_(runner), clock_(clock) {}

    /// Begins it and waits for its end, over broken connections, for `patience` each time the host cannot be reached. An Error:
    /// certain that nothing was begun (or the caller was cancelled).
    Task<RemoteEnd> start(Context ctx, resource::Node node, bool sudo, std::string id, RemoteWork work, RemoteOutput& out,
                          Duration patience);
    /// Takes up one that may have been begun. `never` makes sure of it: a beginning that arrives late does nothing, and the next
    /// `start` of this id, here, begins anew. An Error: the host could not be asked.
    Task<RemoteEnd> attach(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out, Duration patience);
    /// Ends its processes, all of them. Error: the host could not be asked.
    Task<Unit> cancel(Context ctx, resource::Node node, bool sudo, std::string id);
    Task<Unit> clean_up(Context ctx, resource::Node node, bool sudo, std::string id);

    /// A command at once and without a trace: for looking, not for doing.
    Task<net::SshResult> run(Context ctx, resource::Node node, bool sudo, std::vector<std::string> argv, std::string input = {},
                             std::size_t max_output = 1 << 20);

private:
    struct Answer;
    asio::awaitable<Answer> ask(Context ctx, const resource::Node& node, bool sudo, std::string what, std::string folder,
                                RemoteWork work, RemoteOutput* out,
                                std::shared_ptr<std::atomic<bool>> begun = std::make_shared<std::atomic<bool>>(false));
    /// `broke`: why it has to be taken up again; empty: another server had begun it.
    Task<RemoteEnd> follow(Context ctx, resource::Node node, bool sudo, std::string id, RemoteOutput& out, Duration patience,
                           std::string broke);

    CommandRunner& runner_;
    Clock& clock_;
    std::map<std::string, int> generations_; ///< of ids whose earlier folders are fenced off
};

} // namespace orrery::drivers
