#pragma once

#include "cli/command.h"
#include "cli/terminal.h"

#include <string>
#include <string_view>

/// Private to the commands of jobs: jobs and tasks as text.
namespace orrery::cli {

Style style_of_state(std::string_view state);
/// "/v1/jobs/JOB/`part`", with JOB from the command line.
std::string job_route(const Invocation& invocation, std::string_view part);
/// The number of milliseconds at a key as "1m30s"; "" if there is no number.
std::string milliseconds_text(const json::value& value, std::string_view key);
/// "3 succeeded, 1 running"
std::string counts_line(const json::value& progress);
/// What a task waits for, or how it came into its state.
std::string task_message(const json::value& task);
/// The message of a job, also that an operator paused it, as a line; "" without a message.
std::string state_lines(const json::value& progress);
/// "2 tasks on 1 node"
std::string extent_text(std::string_view tasks, std::string_view nodes);
/// Prints the response to the submission of a job: its plan, and warnings to standard error.
void print_submission(Invocation& invocation, std::string_view job, const json::value& answer);
/// A job as `job watch` shows it: state, tasks that failed, run and wait, critical path.
std::string progress_text(const Streams& streams, const json::value& progress);

/// Follows a job until it is done or converged, over broken connections, and draws its progress if `shown`. Returns its last state.
Result<std::string> follow_job(Invocation& invocation, bool shown);
/// The exit code for the last state of a job.
int exit_code_of_state(std::string_view state);

} // namespace orrery::cli
