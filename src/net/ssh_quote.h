#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::net {

/// Quotes `text` as one word for a POSIX shell. `text` may contain anything except NUL. All command lines are built with this
/// function.
std::string shell_quote(std::string_view text);
/// The quoted arguments, separated by spaces.
std::string shell_command(const std::vector<std::string>& argv);

} // namespace orrery::net
