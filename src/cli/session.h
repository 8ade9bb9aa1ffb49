#pragma once

#include "cli/cli.h"
#include "core/result.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::cli {

/// A context: a server and the session there, under a name that the user may choose.
struct Session {
    std::string name, server, ca, user, token, expires_at;
};

/// All contexts of the user, and the current one.
struct Sessions {
    std::vector<Session> all;
    std::string current; ///< name of the current context, or empty
    Session* find(std::string_view name);
    /// The context of a server: the current one if it matches, otherwise the first. For "" the current context.
    Session* for_server(std::string_view server);
    std::vector<std::string> names() const;
};

/// The default name of a context: host and port of the server.
std::string context_name(std::string_view server);

/// $ORRERY_CONFIG, otherwise orrery/session.yaml in $XDG_CONFIG_HOME or ~/.config.
Result<std::filesystem::path> session_path(const Streams& streams);
/// Empty if the file does not exist. `invalid` if it cannot be read, `denied` if other users can read it.
Result<Sessions> load_sessions(const Streams& streams);
/// Replaces the file atomically; only its owner can read it.
Result<std::filesystem::path> save_sessions(const Streams& streams, const Sessions& sessions);

/// The contents of a file, or of standard input for "-". `invalid` if it cannot be read, `too_large` if it has over `limit` bytes.
Result<std::string> read_file(const Streams& streams, const std::string& path, std::size_t limit);
/// A secret from a file of one line, without the newline. `invalid` if it is empty or has several lines.
Result<std::string> read_secret_file(const Streams& streams, const std::string& path);

} // namespace orrery::cli
