#pragma once

#include "core/clock.h"
#include "core/config.h"
#include "core/result.h"

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The command line: a client of the API and nothing else. It gets the descriptions of kinds from the server.
namespace orrery::cli {

/// Exit codes. Scripts depend on them; docs/cli.md lists them.
namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int other = 1;
inline constexpr int usage = 2;
inline constexpr int not_found = 3;
inline constexpr int denied = 4;      ///< not logged in, or not allowed
inline constexpr int conflict = 5;    ///< the resource exists, has changed, or is referred to
inline constexpr int unavailable = 6; ///< no response, or not in time
inline constexpr int invalid = 7;     ///< the input is not valid
inline constexpr int differences = 10;
inline constexpr int interrupted = 130;
} // namespace exit_code

/// The environment of a command: standard streams, terminal, environment variables, clock. Tests pass their own.
struct Streams {
    std::istream& in;
    std::ostream& out;
    std::ostream& err;
    bool in_is_terminal = false;
    bool out_is_terminal = false;
    bool err_is_terminal = false;
    int width = 0;  ///< columns of the terminal; 0: unlimited
    int height = 0; ///< lines of the terminal
    std::vector<std::pair<std::string, std::string>> environment = {};
    /// Asks for a secret on the terminal, without echo. `cancelled` if the user interrupts.
    std::function<Result<std::string>(std::string_view prompt)> ask_secret = {};
    /// Opens a file in an editor (a shell command) and waits until the editor exits. Empty: there is no terminal.
    std::function<Result<Unit>(const std::string& editor, const std::string& file)> run_editor = {};
    Clock* clock = &real_clock(); ///< ages are relative to its time

    /// The value of an environment variable, or "".
    std::string variable(std::string_view name) const;
    /// Is the output coloured? Only on a terminal, and not if NO_COLOR is set.
    bool colour() const { return out_is_terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb"; }

    /// The streams of this process.
    static Streams standard();
};

/// Commands that open the file of a store without a server. `app` implements them, because this module may not use the store.
struct OfflineCommands {
    std::function<int(std::vector<std::string> arguments, Streams&)> verify;
    std::function<int(std::vector<std::string> arguments, Streams&)> restore;
    std::function<int(std::vector<std::string> arguments, Streams&)> reset_admin;
};

/// Facts about the program, from `app`.
struct Application {
    std::string version = "0";
    std::string commit;
    std::vector<Setting> settings; ///< settings of the server, for `config`
    /// Loads the configuration of the server from flags and environment variables.
    std::function<Result<Config>(const std::vector<std::string>& flags,
                                 std::vector<std::pair<std::string, std::string>> environment)>
        load_config;
    OfflineCommands offline;
    /// Name and summary of commands that `app` runs itself, such as "server". For help, completion and suggestions.
    std::vector<std::pair<std::string, std::string>> own_commands = {};
};

/// Runs one command (`args` without the name of the program) and returns its exit code. Prints errors. Blocks; creates its own
/// event loop.
int run(std::vector<std::string> args, Streams& streams, const Application& application = {});

/// Flushes the output of a command and returns its exit code; prints an error and returns `exit_code::other` if the output could
/// not be written.
int finish_output(std::ostream& out, std::ostream& err, int code);

/// Prints "error: <message>", the fields, and "remedy: <remedy>".
void print_error(std::ostream& err, const Error& error, bool colour = false);
int exit_code_of(const Error& error);

} // namespace orrery::cli
