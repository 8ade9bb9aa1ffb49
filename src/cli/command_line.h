#pragma once

#include "cli/command.h"

#include <map>
#include <string>
#include <vector>

namespace orrery::cli {

/// Which command a line names, and what is left of the line. `command` is null where it names a group ("user") or nothing at all;
/// `group` says which.
struct Located {
    const Command* command = nullptr;
    std::string group;
    std::vector<std::string> rest;
    bool help = false;
};
/// `invalid`, with the nearest command as remedy, where a word is no command.
Result<Located> locate_command(const std::vector<std::string>& args, const Application& application);

/// Options and arguments of a command, by option key and argument name. `invalid` in words, with the nearest option where one is
/// unknown.
Result<std::map<std::string, std::vector<std::string>, std::less<>>> parse_arguments(const Command& command,
                                                                                     const std::vector<std::string>& rest);

/// Help for the program, a group or a command.
std::string program_help(const Application& application, bool colour);
std::string group_help(std::string_view group, bool colour);
std::string command_help(const Command& command, bool colour);
/// "orrery get KIND [NAME...] [options]"
std::string usage_line(const Command& command);

/// Names of groups, and of commands by their first word.
std::vector<std::string> first_words(const Application& application);
bool is_group(std::string_view path);

} // namespace orrery::cli
