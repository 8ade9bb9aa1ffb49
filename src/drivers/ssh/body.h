#pragma once

#include "core/result.h"
#include "jobs/executor.h"

#include <boost/json/value.hpp>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::drivers {

/// One idempotent block as its runner takes it.
struct Block {
    std::string kind;                ///< "file", "line", "package", "service", "user", "command"
    std::string label;               ///< "file /etc/ntp.conf", one line
    std::vector<std::string> fields; ///< in the order of blocks_program
    std::string after;               ///< what a file would hold, for a preview
};

/// What `run: {ssh: ...}` says.
struct SshBody {
    enum class What { command, script, push, blocks };
    What what = What::command;
    std::vector<std::string> argv; ///< of a command; of a script: its arguments
    std::string script, shell;
    std::optional<std::string> input;
    std::string folder;
    std::set<int> success{0};
    std::optional<bool> sudo; ///< nothing: as the node says

    std::string to, mode, owner, group; ///< of a push
    std::string content;
    std::vector<Block> blocks;
};

/// At submission: nothing is bound yet.
Result<Unit> check_ssh_body(const boost::json::value& body);
/// At the start of an attempt: all is bound, secrets too. Files that `push.from` names are read from `content`, the folder of files
/// that jobs may use. Reads a file, and so belongs on a thread that may wait.
Result<SshBody> read_ssh_body(const boost::json::value& body, const boost::json::object& values,
                              const std::filesystem::path& content);

/// A name below the content folder: relative, nothing hidden, no way out of it. `invalid` else; "" for what is right.
std::string check_content_path(std::string_view path);

} // namespace orrery::drivers
