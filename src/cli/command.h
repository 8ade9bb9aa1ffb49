#pragma once

#include "cli/api.h"
#include "cli/cli.h"
#include "cli/kinds.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::cli {

/// What an argument or the value of an option means, for completion.
enum class Means { anything, file, kind, name, label, context, command_name, job, task };

struct Option {
    std::string names; ///< "-f,--file"; the last one is its key
    std::string value; ///< "FILE"; empty: a switch
    std::string help;
    std::vector<std::string> choices = {};
    Means means = Means::anything;
    bool repeated = false;
    std::string alias = {}; ///< "--because": accepted, but not in help and completion
    /// The name without hyphens: "file".
    std::string key() const;
};

struct Argument {
    enum class Count { one, optional, some, any };
    std::string name; ///< "KIND"
    std::string help;
    Count count = Count::one;
    Means means = Means::anything;
    std::vector<std::string> choices = {};
};

struct Example {
    std::string line, description;
};

class Invocation;

/// A command as data. Parsing, help, completion, suggestions and the manual page use this declaration.
struct Command {
    std::string path;    ///< "user create"
    std::string summary; ///< one line, for lists
    std::string about;   ///< more sentences, for the help of the command
    std::vector<Argument> arguments;
    std::vector<Option> options;
    std::vector<Example> examples;
    Result<int> (*run)(Invocation&) = nullptr; ///< returns the exit code, or an error for the caller to print
    bool raw = false;                          ///< parses its arguments itself (`Invocation::raw_arguments`)
    bool hidden = false;
};

/// A chapter of the help.
struct Chapter {
    std::string title;
    std::vector<Command> commands;
};
const std::vector<Chapter>& chapters();
/// All commands in the order of the help.
const std::vector<Command>& all_commands();
/// Options of every command.
const std::vector<Option>& common_options();

/// One run of a command: its parsed arguments, its environment and its connection to the server.
class Invocation {
public:
    Invocation(Streams& streams_, const Application& application_, const Command& command_)
        : streams(streams_), application(application_), command(command_) {}

    Streams& streams;
    const Application& application;
    const Command& command;
    std::map<std::string, std::vector<std::string>, std::less<>> values; ///< by option key or argument name
    std::vector<std::string> raw_arguments;                              ///< of a raw command

    bool has(std::string_view key) const { return values.contains(key); }
    /// The last value of an option or argument, or `default_value`.
    std::string text(std::string_view key, std::string_view default_value = {}) const;
    std::vector<std::string> all(std::string_view key) const;
    bool quiet() const { return has("quiet"); }
    /// A number from 1 on, or `default_value`. A usage error if it is not one.
    Result<std::int64_t> number(std::string_view key, std::int64_t default_value) const;
    /// A time, given as an age or in RFC 3339, as RFC 3339. A usage error if it is neither.
    Result<std::string> time(std::string_view key) const;
    /// An error in the command line: the command ends with `exit_code::usage`.
    Error usage_error(std::string message, std::string remedy = {}) const;
    bool is_usage_error() const { return usage_error_; }

    /// The connection to the server; the first call creates it from flags, environment variables and the saved session.
    Result<Api*> api();
    /// The same without a token, for `login`.
    Result<Api*> api_without_token();
    /// The kinds of the server; fetched once.
    Result<const KindCatalog*> kinds();
    void forget_connection() { api_.reset(); }

private:
    Result<Api*> connect(bool with_token);
    std::unique_ptr<Api> api_;
    std::optional<KindCatalog> kinds_;
    mutable bool usage_error_ = false;
};

} // namespace orrery::cli
