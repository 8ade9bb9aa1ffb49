#pragma once

#include "core/task.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace orrery::net {

/// A program to run: never through a shell, in a process group of its own.
struct ProcessSpec {
    std::vector<std::string> argv;                  ///< argv[0] is searched in PATH unless it has a slash
    std::map<std::string, std::string> environment; ///< the whole environment; PATH is passed on where it is not given
    std::filesystem::path folder;                   ///< where it runs; empty: here
    std::string input;                              ///< its standard input, then end of file
    std::size_t max_output = 1 << 20;               ///< per stream; what is beyond is dropped and `truncated` set
    Duration term_grace = std::chrono::seconds(2);  ///< between SIGTERM and SIGKILL to the whole group
    std::function<void(int fd, std::string_view piece)> on_output; ///< called as output comes (fd 1 or 2); may be empty
};

struct ProcessResult {
    int exit_code = -1; ///< -1 when a signal ended it
    int signal = 0;
    std::string output, errors;
    bool truncated = false;
    bool succeeded() const { return exit_code == 0; }
};

/// Runs it to its end. At the context's deadline, and when the caller is cancelled, the whole group is ended (SIGTERM, then
/// SIGKILL) before `timeout` or `cancelled` is returned. `not_found`: no such program; `denied`: not executable. A program that
/// leaves a grandchild holding its pipes does not keep us waiting.
Task<ProcessResult> run_process(Context ctx, ProcessSpec spec);

} // namespace orrery::net
