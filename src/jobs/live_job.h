#pragma once

#include "jobs/engine.h"
#include "jobs/journal.h"

#include <boost/asio/cancellation_signal.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

/// Private to the engine: what the leader keeps of each job that has not ended, and what the parts of the engine share.
namespace orrery::jobs {

/// One attempt that this server has started or re-attached to.
struct RunningAttempt {
    Attempt attempt;
    Executor* executor = nullptr; ///< null: the task runs nothing
    Phase phase = Phase::run;
    asio::cancellation_signal detach;
    std::shared_ptr<OutputLog::Sink> sink;
    bool killed = false, timed_out = false, not_started = false;
    SteadyTime due{};       ///< when the first of the events came that led to its start
    SteadyTime ended_at{};  ///< when its outcome was known
    bool has_ended = false; ///< its artefacts are being fetched
    Outcome outcome;
};

/// The clean-ups of one task's attempts and phases that are in progress.
struct TaskCleanUp {
    std::size_t pending = 0;
    int newest = 0;      ///< the number of the newest attempt that is clean
    bool failed = false; ///< one of them ended without success
};

struct JobRun::Live {
    explicit Live(Journal journal_) : journal(std::move(journal_)) {}
    Journal journal;
    std::map<std::uint32_t, json::object> prepared; ///< bound `with` of tasks that are about to start
    std::unordered_map<std::uint32_t, std::shared_ptr<RunningAttempt>> running;
    std::vector<std::uint32_t> cleaned; ///< tasks whose clean-up is not in the journal yet
    std::unordered_map<std::uint32_t, TaskCleanUp> cleaning;
    std::vector<Journal::Entry> first_entries;          ///< the placement, until it is stored
    std::vector<std::optional<std::uint64_t>> constant; ///< by group: the digest of its inputs, where nothing is bound late
    std::optional<std::uint64_t> artefacts;             ///< stored bytes of artefacts
    std::vector<std::string> signatures;                ///< by group: the key of its history
    std::vector<std::shared_ptr<void>> followed;        ///< DNS names of its barriers
    bool status_stale = true;
    JobState reported = JobState::planned;
    bool reported_paused = false;

    /// Whether no attempt runs and none is being cleaned up.
    bool is_idle() const { return cleaning.empty() && running.empty(); }
};

using JobRuns = std::map<std::string, std::shared_ptr<JobRun>, std::less<>>;

/// What all parts of the engine share. `term` and `runs` are those of the current term as leader.
struct EngineContext {
    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Membership& membership;
    const Executors& executors;
    Clock& clock;
    Engine::Options options;
    JobRuns runs{};
    TaskGroup* term = nullptr; ///< null: this server does not lead

    store::Store& store() { return resources.store(); }
    const resource::Kind& kind(std::string_view name) const { return *resources.registry().find(name); }
    Moment moment() const { return {clock.steady(), clock.wall().time_since_epoch().count()}; }
};

const RunSpec& run_of(const TaskSpec& spec, Phase phase);
/// The context id of a stored job. Jobs from before contexts were stored have none; their uid is unique as well.
std::string context_id_of(const json::object& status);
json::object status_of(const JobRun& run);
/// Looks up the keys of Secrets.
SecretKeys secret_keys_in(const resource::Resources& resources);

} // namespace orrery::jobs
