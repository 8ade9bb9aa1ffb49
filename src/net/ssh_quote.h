#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::net {

/// One word of a POSIX shell's command line that means exactly `text`, whatever is in it (but no NUL). The only place where a
/// command line is made of arguments.
std::string shell_quote(std::string_view text);
/// The arguments as a command line: each quoted, a space between.
std::string shell_command(const std::vector<std::string>& argv);

} // namespace orrery::net
