#pragma once

#include "cli/cli.h"
#include "core/result.h"

#include <filesystem>
#include <optional>
#include <string>

namespace orrery::cli {

/// What `login` leaves behind for the commands that follow.
struct Session {
    std::string server, ca, user, token, expires_at;
};

/// $ORRERY_CONFIG, else orrery/session.yaml below $XDG_CONFIG_HOME or ~/.config.
Result<std::filesystem::path> session_path(const Streams& streams);
/// nothing where there is none. `invalid` where it cannot be read, `denied` where others can read it too.
Result<std::optional<Session>> load_session(const Streams& streams);
/// Replaces it as a whole, readable by its owner only.
Result<std::filesystem::path> save_session(const Streams& streams, const Session& session);
/// Forgets the token, keeps the server.
Result<Unit> drop_session(const Streams& streams);

/// A file's contents (at most `limit` bytes), "-" for standard input. `invalid` names file and reason.
Result<std::string> read_file(const Streams& streams, const std::string& path, std::size_t limit);
/// The same without its last newline; `invalid` when empty.
Result<std::string> read_secret_file(const Streams& streams, const std::string& path);

} // namespace orrery::cli
