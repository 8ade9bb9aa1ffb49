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

/// What a word on the command line stands for, so that it can be completed.
enum class Means { anything, file, kind, name, command_name };

struct Option {
    std::string names; ///< "-f,--file"; the last is what it is called by
    std::string value; ///< "FILE"; empty: a switch
    std::string help;
    std::vector<std::string> choices = {};
    Means means = Means::anything;
    bool repeated = false;
    /// "file"
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
    std::string line, what;
};

class Invocation;

/// One command, declared as data: parsing, help, completion and suggestions all come from it.
struct Command {
    std::string path;    ///< "user create"
    std::string summary; ///< one line, for lists
    std::string about;   ///< further sentences, for its own help
    std::vector<Argument> arguments;
    std::vector<Option> options;
    std::vector<Example> examples;
    Result<int> (*run)(Invocation&) = nullptr; ///< the exit code, or an error that is still to be printed
    bool raw = false;                          ///< takes its arguments as they are (`arguments()`)
    bool hidden = false;
};

/// All commands, in the order help lists them.
const std::vector<Command>& all_commands();
/// Options every command has.
const std::vector<Option>& common_options();

/// One run of a command: what was written, and the means to do it.
class Invocation {
public:
    Invocation(Streams& streams_, const Application& application_, const Command& command_)
        : streams(streams_), application(application_), command(command_) {}

    Streams& streams;
    const Application& application;
    const Command& command;
    std::map<std::string, std::vector<std::string>, std::less<>> values; ///< by option key or argument name
    std::vector<std::string> rest;                                       ///< of a raw command

    bool has(std::string_view key) const { return values.contains(key); }
    /// The value given, or `otherwise`.
    std::string text(std::string_view key, std::string_view otherwise = {}) const;
    std::vector<std::string> all(std::string_view key) const;
    bool quiet() const { return has("quiet"); }
    Result<std::int64_t> number(std::string_view key, std::int64_t otherwise) const;

    /// The connection to the server, made at first use from flags, environment and the saved session.
    Result<Api*> api();
    /// The same to `login`, which has no token yet.
    Result<Api*> api_without_token();
    /// The kinds the server knows, asked for once.
    Result<const KindCatalog*> kinds();
    void forget_connection() { api_.reset(); }

private:
    Result<Api*> connect(bool with_token);
    std::unique_ptr<Api> api_;
    std::optional<KindCatalog> kinds_;
};

} // namespace orrery::cli
