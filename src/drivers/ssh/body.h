#pragma once

#include "core/result.h"
#include "core/task.h"
#include "jobs/executor.h"

#include <boost/json/value.hpp>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::drivers {

/// One idempotent block as its runner reads it.
struct Block {
    std::string kind;                ///< "file", "line", "package", "service", "user", "command"
    std::string label;               ///< "file /etc/ntp.conf", one line
    std::vector<std::string> fields; ///< in the order that blocks_program reads
    std::string after;               ///< the new content of a file, for a preview
};

/// The parsed body of `run: {ssh: ...}`.
struct SshBody {
    enum class Type { command, script, push, blocks };
    Type type = Type::command;
    std::vector<std::string> argv; ///< of a command; the arguments of a script
    std::string script, shell;
    std::optional<std::string> input;
    std::string folder;
    std::set<int> success{0};
    std::optional<bool> sudo; ///< nothing: as the Node declares

    std::string to, mode, owner, group; ///< of a push
    bool follow = false;                ///< of a push: a symbolic link at `to` is followed
    std::string content;
    std::vector<Block> blocks;
};

/// Whether a body is as written in the job, or as bound for an attempt. A text with a reference is validated when its value is
/// known; a bound body has no references.
enum class BodyStage { written, bound };
inline bool has_reference(std::string_view text, BodyStage stage) {
    return stage == BodyStage::written && text.find("${") != std::string_view::npos;
}

Result<Unit> check_ssh_body(const boost::json::value& body, BodyStage stage = BodyStage::written);
/// Parses a bound body at the start of an attempt. Files that `push.from` names are read from `content`, the folder of files that
/// jobs may use. Blocks.
Result<SshBody> read_ssh_body(const boost::json::value& body, const boost::json::object& values,
                              const std::filesystem::path& content);

/// Validates a name below the content folder: relative, without "." and "..". Returns the error; "" where it is valid.
std::string check_content_path(std::string_view path);
/// The canonical path of the file or folder of that name below the content folder. `field` is the field of the name, for messages.
/// `invalid` for an invalid name, `not_found`, or `denied` where a link leads out of the folder. Blocks.
Result<std::filesystem::path> resolve_content(const std::filesystem::path& folder, std::string_view field, const std::string& name);
/// At submission: the fields whose file or folder does not exist below the content folder. `named` has the field (`path`) and its
/// value (`message`); the result has an error message instead. Names that are empty or bound later are left out.
Task<std::vector<FieldError>> missing_content(Pool& pool, std::filesystem::path content, std::vector<FieldError> named);

} // namespace orrery::drivers
