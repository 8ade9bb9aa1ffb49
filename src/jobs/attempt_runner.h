#pragma once

#include "jobs/artefact_collection.h"
#include "jobs/attempt_builder.h"
#include "jobs/live_job.h"
#include "jobs/output_flusher.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// Runs attempts through their executors: starts or re-attaches, kills, and reports how each ended. Private to the engine.
class AttemptRunner {
public:
    struct Ended {
        std::shared_ptr<JobRun> run;
        std::uint32_t task = 0;
        std::shared_ptr<RunningAttempt> attempt;
    };
    /// `on_ended` is called when `take_ended` has something new.
    AttemptRunner(EngineContext& engine, AttemptBuilder& builder, OutputFlusher& output, ArtefactCollection& artefacts,
                  std::function<void()> on_ended)
        : engine_(engine),
          builder_(builder),
          output_(output),
          artefacts_(artefacts),
          on_ended_(std::move(on_ended)),
          emptied_(engine.executor) {}

    /// The intent of the attempt is durable: it may have its effect. `due`: when the first of the events came that led to it.
    /// `owner` keeps this object alive until the attempt has ended.
    void start(std::shared_ptr<JobRun> run, Scheduler::Start start, SteadyTime due, std::shared_ptr<void> owner);
    /// Ends an attempt. One that does not end within `Options::give_up` becomes lost.
    asio::awaitable<void> kill(std::shared_ptr<JobRun> run, Scheduler::Kill kill);
    /// Leaves all attempts running where they run, and ends their coroutines here.
    asio::awaitable<void> detach_all();
    std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }
    const std::vector<Ended>& ended() const { return ended_; }
    std::size_t running() const { return running_; }
    /// For the bench: called when an executor is called, with the time since the attempt was due.
    std::function<void(Duration)> on_dispatch;

private:
    asio::awaitable<void> run_attempt(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Start start,
                                      std::shared_ptr<RunningAttempt> running);
    void finish(const std::shared_ptr<JobRun>& run, Scheduler::Start start, const std::shared_ptr<RunningAttempt>& running,
                std::exception_ptr failure);
    /// False: the attempt cannot run, and its outcome says why.
    bool set_up(const Context& ctx, const JobRun& run, Scheduler::Start start, RunningAttempt& running,
                std::vector<std::string>& missing_secrets);
    Task<Outcome> reattach(Context ctx, const JobRun& run, Scheduler::Start start, RunningAttempt& running,
                           std::vector<std::string> missing_secrets);
    static void store_outcome(RunningAttempt& running, Result<Outcome> outcome);

    EngineContext& engine_;
    AttemptBuilder& builder_;
    OutputFlusher& output_;
    ArtefactCollection& artefacts_;
    std::function<void()> on_ended_;
    Notifier emptied_;
    std::size_t running_ = 0; ///< coroutines of attempts
    std::vector<Ended> ended_;
};

} // namespace orrery::jobs
