#pragma once

#include "cli/command.h"

#include <map>
#include <string>
#include <vector>

namespace orrery::cli {

/// The command that a command line names, and its remaining arguments. `command` is null if the line names a group such as "user",
/// which is in `group`, or nothing.
struct Located {
    const Command* command = nullptr;
    std::string group;
    std::vector<std::string> arguments;
    bool help = false;
};
/// `invalid` if there is no such command, with the most similar one as remedy.
Result<Located> locate_command(const std::vector<std::string>& args, const Application& application);

/// Parses options and arguments of a command; the values are by option key and argument name. `invalid` with the most similar
/// option if one is unknown.
Result<std::map<std::string, std::vector<std::string>, std::less<>>> parse_arguments(const Command& command,
                                                                                     const std::vector<std::string>& arguments);

/// Help for the program, a group or a command.
std::string program_help(const Application& application, bool colour);
std::string group_help(std::string_view group, bool colour);
std::string command_help(const Command& command, bool colour);
/// "orrery get KIND [NAME...] [options]"
std::string usage_line(const Command& command);

/// The top-level names: groups and commands without a group.
std::vector<std::string> top_level_names(const Application& application);
bool is_group(std::string_view path);

} // namespace orrery::cli
