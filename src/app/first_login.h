#pragma once

#include "core/config.h"
#include "core/task.h"
#include "identity/identity.h"

#include <filesystem>
#include <optional>
#include <string>

namespace orrery::app {

/// Creates the user admin in a store without users, with the password of `identity.admin_password_file` or with a one-time
/// password. The one-time password is written to the file "first-login" in the data folder, which only this user can read, before
/// the user is created: a start that fails later, or is killed, leaves the file for the next one. Returns the one-time password.
Task<std::optional<std::string>> create_first_admin(Context ctx, identity::Identity& identity, const Config& config);

/// Prints the one-time password if standard output is a terminal. It is never logged, because logs are stored.
void show_first_login(const std::string& url, const std::string& password);
/// Removes the file after the password was changed.
void remove_first_login(const std::filesystem::path& folder);

/// Logs a warning when `identity.admin_password_file` has no effect because admin exists and has another password.
asio::awaitable<void> warn_of_ignored_password_file(Context ctx, identity::Identity& identity, const Config& config);

} // namespace orrery::app
