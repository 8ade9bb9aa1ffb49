#pragma once

#include "core/context.h"

#include <filesystem>
#include <string>

namespace orrery::app {

/// Shows the first administrator's one-time password: on the terminal where there is one, else in a file that only this user can
/// read (a log keeps what it is told).
void show_first_login(const Context& ctx, const std::filesystem::path& folder, const std::string& address,
                      const std::string& password);
/// Removes that file once the password has been used.
void forget_first_login(const std::filesystem::path& folder);

} // namespace orrery::app
