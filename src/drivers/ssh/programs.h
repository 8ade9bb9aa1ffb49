#pragma once

/// The programs that run on hosts, in POSIX sh. They are constants: the texts of a job are sent on standard input, as fields
/// (`Fields` in fields.h), and are never part of a program or an argument.
namespace orrery::drivers {

extern const char* const attempt_program; ///< starts, follows, kills and cleans up an attempt
extern const char* const runner_prelude;  ///< the common beginning of both runners
extern const char* const files_program;   ///< used by both runners: files in folders that other users may control
extern const char* const run_program;     ///< a runner: a command, a script or a file
extern const char* const blocks_program;  ///< a runner: idempotent blocks

} // namespace orrery::drivers
