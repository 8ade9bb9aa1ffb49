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

/// The command line: a client of the API, nothing else. What it knows about kinds it asks the server.
namespace orrery::cli {

/// How a command ends. Scripts rely on these; docs/cli.md lists them.
namespace exit_code {
inline constexpr int ok = 0;
inline constexpr int other = 1;
inline constexpr int usage = 2;
inline constexpr int not_found = 3;
inline constexpr int denied = 4;      ///< not logged in, or not allowed
inline constexpr int conflict = 5;    ///< exists already, changed meanwhile, still referred to
inline constexpr int unavailable = 6; ///< no answer, or not in time
inline constexpr int invalid = 7;     ///< the input is wrong
inline constexpr int differences = 10;
inline constexpr int interrupted = 130;
} // namespace exit_code

/// The outside of a command: its streams, what they are attached to, and the environment. A test gives its own.
struct Streams {
    std::istream& in;
    std::ostream& out;
    std::ostream& err;
    bool in_is_terminal = false;
    bool out_is_terminal = false;
    bool err_is_terminal = false;
    int width = 0;  ///< columns of the terminal; 0: as wide as it needs
    int height = 0; ///< its lines
    std::vector<std::pair<std::string, std::string>> environment = {};
    /// Asks for a secret at the terminal, without echo. `cancelled` when interrupted.
    std::function<Result<std::string>(std::string_view prompt)> ask_secret = {};
    Clock* clock = &real_clock(); ///< ages are told by it

    /// The value of an environment variable, or "".
    std::string variable(std::string_view name) const;
    /// Colour goes to terminals, unless NO_COLOR is set.
    bool colour() const { return out_is_terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb"; }

    /// Those of this process.
    static Streams standard();
};

/// Commands that work on a store's file without a server, and so need more of the program than this module may see.
struct OfflineCommands {
    std::function<int(std::vector<std::string> arguments, Streams&)> verify;
    std::function<int(std::vector<std::string> arguments, Streams&)> restore;
};

/// What the program tells its command line about itself.
struct Application {
    std::string version = "0";
    std::string commit;
    std::vector<Setting> settings; ///< of the server, for `config`
    /// The configuration as the server would take it: flags after the command's name, environment.
    std::function<Result<Config>(const std::vector<std::string>& flags,
                                 std::vector<std::pair<std::string, std::string>> environment)>
        load_config;
    OfflineCommands offline;
    /// Commands the program runs itself, before it comes here: ("server", "Run the server"). For help, completion and suggestions.
    std::vector<std::pair<std::string, std::string>> own_commands = {};
};

/// Runs one command (`args` without the program's name) to its end and gives its exit code. Errors have been printed. Blocks; makes
/// its own event loop.
int run(std::vector<std::string> args, Streams& streams, const Application& application = {});

/// "error: <sentence>", the fields, "remedy: ...".
void print_error(std::ostream& err, const Error& error, bool colour = false);
int exit_code_of(const Error& error);

} // namespace orrery::cli
