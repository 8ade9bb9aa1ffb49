#pragma once

#include "jobs/executor.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The records of a job and of its tasks: what the journal stores and what users see.
namespace orrery::jobs {

enum class TaskState : std::uint8_t {
    pending,   ///< a task before it has not succeeded
    waiting,   ///< for what TaskRecord::waits names
    ready,     ///< waits for a slot
    running,   ///< an attempt was started
    succeeded, ///< terminal, as are those below
    failed,
    lost, ///< started, and its outcome is unknown
    cancelled,
    skipped,    ///< a task that it depends on did not succeed
    undone,     ///< its `undo` ran and succeeded
    undo_failed ///< its `undo` did not succeed: its effect may still be in place
};
constexpr std::size_t task_states = 11;
std::string_view name_of(TaskState state);
constexpr bool is_terminal(TaskState state) { return state >= TaskState::succeeded; }

/// The phases of an attempt, in order. Each has an intent of its own in the journal.
enum class Phase : std::uint8_t { check, run, verify, undo };
std::string_view name_of(Phase phase);

enum class Waits : std::uint8_t {
    nothing,
    barrier,
    approval, ///< by an operator
    decision, ///< by an operator, because the deadline of a barrier passed
    backoff,  ///< before the next attempt
    evidence, ///< a value of its inputs is not known now
};
std::string_view name_of(Waits waits);

/// An earlier attempt.
struct PastAttempt {
    int number = 0;
    Outcome::Ended ended = Outcome::Ended::failed;
    ErrorClass error = ErrorClass::none;
    int exit_code = 0;
    std::int64_t started = 0, ended_at = 0; ///< milliseconds of the wall clock
    std::string message;
};

/// The parts of a record that most tasks do not have.
struct TaskDetail {
    std::string message;           ///< of the last outcome, or why it was skipped
    json::object values;           ///< published by its last attempt
    json::value inputs;            ///< bound values of `with`
    std::vector<PastAttempt> past; ///< the last ones
    std::string server;            ///< that started the last attempt, where no other can re-attach to it
    bool values_new = false, inputs_new = false, server_new = false; ///< not in the journal yet
};
constexpr std::size_t max_past_attempts = 4;

struct TaskRecord {
    TaskState state = TaskState::pending;
    Phase phase = Phase::run;
    Waits waits = Waits::nothing;
    Outcome::Change change = Outcome::Change::unknown;
    ErrorClass error = ErrorClass::none;
    bool approved = false;
    bool lapsed = false;    ///< the deadline of its barriers passed, and it continues without them
    bool done_once = false; ///< it has succeeded before: tasks after it do not wait for a re-run
    bool undone = false;
    bool uncleaned = false;    ///< its last attempt may have left files on its node
    bool dirty = false;        ///< differs from the journal (not journalled itself)
    std::uint32_t attempt = 0; ///< number of attempts, in all runs
    std::uint16_t tries = 0;   ///< attempts of this run: since it last succeeded or an operator retried it
    std::int32_t exit_code = 0;
    std::uint32_t unmet = 0;               ///< tasks and groups before it that have not succeeded (not journalled)
    std::uint32_t blocked_by = 0xffffffff; ///< the task whose end made it skip
    std::int64_t since = 0;                ///< when it came into its state; milliseconds of the wall clock, as are these:
    std::int64_t started = 0, ended = 0;   ///< of the last attempt
    std::uint64_t inputs = 0;              ///< digest of the inputs of the last attempt
    std::unique_ptr<TaskDetail> detail;

    TaskDetail& more() {
        if (!detail) detail = std::make_unique<TaskDetail>();
        return *detail;
    }
    /// Moves the last outcome to the earlier attempts: another attempt is about to start.
    void archive_attempt(Outcome::Ended how, std::int64_t over) {
        auto& past = more().past;
        past.push_back({static_cast<int>(attempt), how, error, exit_code, started, over, detail->message});
        if (past.size() > max_past_attempts) past.erase(past.begin());
    }
    std::string_view message() const { return detail ? std::string_view(detail->message) : std::string_view(); }
};

enum class JobState : std::uint8_t {
    planned, ///< waits for the approval of its plan
    running,
    converged, ///< done; follows the services of `rerun_on`
    succeeded,
    failed,
    cancelled,
    cancelling,  ///< running tasks are killed, then `undo` runs
    undoing,     ///< the job had ended, and its effects are being undone
    undone,      ///< every task with an `undo` is undone
    undo_failed, ///< at least one `undo` did not succeed
};
constexpr std::size_t job_states = 10;
std::string_view name_of(JobState state);
/// Nothing where no state has that name.
std::optional<JobState> job_state_named(std::string_view name);
constexpr bool is_terminal(JobState state) {
    return state == JobState::succeeded || state == JobState::failed || state == JobState::cancelled || state == JobState::undone ||
           state == JobState::undo_failed;
}
/// Only `undo` starts in these states.
constexpr bool is_unwinding(JobState state) { return state == JobState::cancelling || state == JobState::undoing; }
/// The job has ended and left changes incomplete: nodes whose change failed keep their rolling slots.
constexpr bool keeps_rolling_slots(JobState state) { return state == JobState::failed || state == JobState::undo_failed; }

struct JobRecord {
    JobState state = JobState::planned;
    bool approved = false;
    bool paused = false; ///< set by an operator, who clears it, cancels the job or lets it end
    bool undo = true;    ///< of a cancellation: run the `undo` of tasks
    std::string message; ///< why it is in its state, or who paused it
    std::int64_t since = 0, began = 0, ended = 0;

    /// The message as a predicate: "paused by alice: lunch" while the job is paused.
    std::string text() const { return !paused ? message : message.empty() ? "paused" : "paused " + message; }
};

} // namespace orrery::jobs
