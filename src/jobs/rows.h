#pragma once

#include "jobs/executor.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// What is remembered of each task of a job, and of the job. These are what the journal holds and what people are shown.
namespace orrery::jobs {

enum class TaskState : std::uint8_t {
    pending,   ///< what it needs is not done
    waiting,   ///< for something that Row::waits names
    ready,     ///< wants a slot
    running,   ///< an attempt was begun
    succeeded, ///< ended, as are those below
    failed,
    lost, ///< begun, and nobody knows how it ended
    cancelled,
    skipped ///< something it needs did not succeed
};
std::string_view name_of(TaskState state);
constexpr bool is_over(TaskState state) { return state >= TaskState::succeeded; }

/// The parts of an attempt, in their order; each is an intent of its own.
enum class Phase : std::uint8_t { check, run, verify, undo };
std::string_view name_of(Phase phase);

enum class Waits : std::uint8_t {
    nothing,
    barrier,
    approval, ///< of a person
    decision, ///< of a person, because a barrier's deadline passed
    backoff,  ///< before the next try
    evidence, ///< a value cannot be known now
};
std::string_view name_of(Waits waits);

/// An attempt that was followed by another.
struct Past {
    int number = 0;
    Outcome::Ended ended = Outcome::Ended::failed;
    ErrorClass error = ErrorClass::none;
    int exit_code = 0;
    std::int64_t started = 0, over = 0; ///< milliseconds of the wall clock
    std::string words;
};

/// What most tasks have nothing of.
struct RowDetail {
    std::string words;      ///< of the last outcome, or why it is skipped
    json::object values;    ///< what it published
    json::value inputs;     ///< what `with` was bound to
    std::vector<Past> past; ///< the last few
    std::string server;     ///< that began the last attempt, where only that one can ask for it
    bool values_new = false, inputs_new = false, server_new = false; ///< not in the journal yet
};
constexpr std::size_t kept_past = 4;

struct Row {
    TaskState state = TaskState::pending;
    Phase phase = Phase::run;
    Waits waits = Waits::nothing;
    Outcome::Change change = Outcome::Change::unknown;
    ErrorClass error = ErrorClass::none;
    bool approved = false;
    bool lapsed = false;    ///< its barriers' deadline passed, and it may go on without
    bool done_once = false; ///< has succeeded before: those after it need not wait for a re-run
    bool undone = false;
    bool uncleaned = false;    ///< what its last attempt left on its machine may still be there
    bool dirty = false;        ///< not in the journal as it stands (not recorded itself)
    std::uint32_t attempt = 0; ///< how many there were, in all its runs
    std::uint16_t tries = 0;   ///< of this run: since it last succeeded or was asked for
    std::int32_t exit_code = 0;
    std::uint32_t unmet = 0;               ///< things it needs that are not done (not recorded)
    std::uint32_t blocked_by = 0xffffffff; ///< the task whose end made it skip
    std::int64_t since = 0;                ///< in this state; milliseconds of the wall clock, as are these:
    std::int64_t started = 0, ended = 0;   ///< of the last attempt
    std::uint64_t inputs = 0;              ///< digest of what the last attempt was given
    std::unique_ptr<RowDetail> detail;

    RowDetail& more() {
        if (!detail) detail = std::make_unique<RowDetail>();
        return *detail;
    }
    std::string_view words() const { return detail ? std::string_view(detail->words) : std::string_view(); }
};

enum class JobState : std::uint8_t {
    planned, ///< waits for its approval
    running,
    converged, ///< done, and goes on to follow the services it subscribed to
    succeeded, ///< over, as are those below
    failed,
    cancelled,
    cancelling,
};
std::string_view name_of(JobState state);
constexpr bool is_over(JobState state) {
    return state == JobState::succeeded || state == JobState::failed || state == JobState::cancelled;
}

struct JobHead {
    JobState state = JobState::planned;
    bool approved = false;
    bool paused = false; ///< by an operator; nothing else sets or clears it
    bool undo = true;    ///< of a cancellation: run what `undo` says
    std::string words;   ///< why it ended as it did; who paused it
    std::int64_t since = 0, began = 0, ended = 0;
};

} // namespace orrery::jobs
