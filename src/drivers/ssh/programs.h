#pragma once

/// The programs that run on hosts, in POSIX sh. They are constants: what a job says travels on standard input, as fields
/// (`Fields` in fields.h), and is never part of a program or an argument.
namespace orrery::drivers {

extern const char* const attempt_program;    ///< begins, follows, ends and cleans up an attempt
extern const char* const runner_prelude;     ///< what both runners begin with
extern const char* const attributes_program; ///< and go on with
extern const char* const run_program;        ///< a runner: a command, a script or a file
extern const char* const blocks_program;     ///< a runner: idempotent blocks

} // namespace orrery::drivers
