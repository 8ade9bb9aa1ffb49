#pragma once

#include "core/task.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace orrery::net {

struct ProcessUser {
    uid_t uid = 0;
    gid_t gid = 0;
    bool operator==(const ProcessUser&) const = default;
};

/// Looks up the account that programs run as; nullopt when it is the account of this process. Errors: `invalid`: the account does
/// not exist, or is root; `denied`: this process lacks CAP_SETUID and CAP_SETGID, or CAP_KILL, which it needs to end its children.
Result<std::optional<ProcessUser>> account_named(const std::string& name);

/// A program to run. It runs without a shell, in a process group of its own.
struct ProcessSpec {
    std::vector<std::string> argv;                  ///< argv[0] is searched in PATH unless it has a slash
    std::map<std::string, std::string> environment; ///< the complete environment; PATH is inherited if it is not set here
    std::filesystem::path folder;                   ///< working directory; empty: that of this process
    std::string input;                              ///< its standard input, then end of file
    std::size_t max_output = 1 << 20;               ///< per stream; the excess is dropped and `truncated` is set
    Duration term_grace = std::chrono::seconds(2);  ///< between SIGTERM and SIGKILL of the process group
    std::optional<ProcessUser> user;                ///< runs as this account, without supplementary groups and capabilities
    bool no_new_privileges = false;                 ///< setuid bits and file capabilities have no effect; implied by `user`
    std::function<void(int fd, std::string_view piece)> on_output; ///< called for each piece of output (fd 1 or 2); may be empty
};

struct ProcessResult {
    int exit_code = -1; ///< -1 when a signal ended it
    int signal = 0;
    std::string output, errors;
    bool truncated = false;
    bool succeeded() const { return exit_code == 0; }
};

/// Runs a program and waits for its end. At the deadline of the context, and on cancellation, it ends the process group (SIGTERM,
/// then SIGKILL) and then returns `timeout` or `cancelled`. Other errors: `not_found`: no such program; `denied`: not executable. A
/// grandchild that keeps the pipes open does not delay the return.
Task<ProcessResult> run_process(Context ctx, ProcessSpec spec);

} // namespace orrery::net
