#pragma once

#include "jobs/attempt_builder.h"
#include "jobs/attempt_cleaner.h"
#include "jobs/attempt_runner.h"
#include "jobs/command_queue.h"
#include "jobs/engine.h"
#include "jobs/instance_registrar.h"
#include "jobs/live_job.h"
#include "jobs/status_reporter.h"

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Private to the engine's own files.
namespace orrery::jobs {

/// The engine: its parts, and the cycle that connects them. Each part does one thing; the cycle (engine_cycle.cpp) ingests events,
/// lets the schedulers decide, writes, and executes.
struct Engine::State : std::enable_shared_from_this<Engine::State> {
    State(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Membership& membership,
          const Executors& executors, Pool& pool, Clock& clock, Options options);

    EngineContext context;
    OutputFiles output_files;
    std::unique_ptr<OutputRecords> output_records; ///< where the store is shared: the log is in it
    ArtefactFiles artefact_files;
    OutputFlusher output;
    AttemptBuilder builder;
    ArtefactCollection artefacts;
    AttemptRunner attempts;
    InstanceRegistrar registrar;
    StatusReporter reporter;
    AttemptCleaner cleaner;
    CommandQueue commands;

    // --- Of a term as leader ---
    std::shared_ptr<Limits> limits;
    Notifier cycle_wake;
    bool woken = false;
    std::string served_last;                 ///< the job that got a slot last
    std::optional<std::int64_t> leader_seen; ///< when the leader before was last at work, until jobs are loaded
    SteadyTime next_mark{};                  ///< when the mark that this one is at work is due again

    // --- Events since the last cycle ---
    std::set<std::string> changed_services;
    std::set<std::string> changed_jobs; ///< names
    std::vector<std::shared_ptr<void>> subscriptions;

    /// Jobs that were read from the journal lately, for further requests.
    struct CachedRun {
        std::string name;
        store::Revision modified = 0; ///< of the Job
        std::shared_ptr<const JobRun> run;
    };
    std::deque<CachedRun> cached_runs;
    std::uint64_t transitions = 0, cycles = 0;

    void wake_up() {
        woken = true;
        cycle_wake.notify_all();
    }

    // engine.cpp: a term as leader
    void begin_term(const Context& ctx, TaskGroup& term, store::Fence fence);
    asio::awaitable<void> end_term();
    void subscribe();
    void enqueue_all_jobs();
    asio::awaitable<void> run_cycles(Context ctx, store::Fence fence);
    asio::awaitable<void> watch_jobs(Context ctx, store::Fence fence);
    asio::awaitable<void> on_jobs_changed(Context ctx, store::Fence fence, std::vector<store::Event> changes);
    asio::awaitable<void> remove_job(Context ctx, store::Fence fence, std::string name, std::string uid);

    // engine_cycle.cpp: one cycle
    struct Cycle {
        SteadyTime due{}; ///< when the first of its events came
        std::vector<store::Transaction> transactions;
        std::vector<std::pair<std::shared_ptr<JobRun>, Scheduler::Start>> starts;
        std::vector<std::pair<std::shared_ptr<JobRun>, Scheduler::Kill>> kills;
        std::vector<AttemptRunner::Ended> completed; ///< attempts whose outcome it records
        bool empty() const { return transactions.empty() && starts.empty() && kills.empty() && completed.empty(); }
    };
    void ingest_events(const Context& ctx, Moment now, Cycle& cycle);
    void ingest_end(const AttemptRunner::Ended& ended, Moment now, Cycle& cycle);
    void dispatch_all(Moment now);
    std::optional<SteadyTime> mark_alive(Moment now, Cycle& cycle);
    void accept(const std::string& name, Moment now);
    asio::awaitable<void> refuse(Context ctx, std::string job, std::string uid, Error error);
    void execute_command(const ReceivedCommand& received, Moment now, Cycle& cycle);
    Result<Unit> apply_command(const ReceivedCommand& received, JobRun& run, std::optional<std::uint32_t> task, Moment now);
    void build_transactions(const std::shared_ptr<JobRun>& run, Cycle& cycle);
    void note_start(JobRun& run, const Scheduler::Start& start);
    void add_history(const JobRun& run, Cycle& cycle);
    Task<Unit> write(Context ctx, store::Fence fence, Cycle& cycle);
    void execute(Cycle& cycle);

    // job_loader.cpp
    Result<std::shared_ptr<JobRun>> load(const resource::Object& object, bool live);
    Result<std::shared_ptr<JobRun>> plan_new(const resource::Object& object, JobSpec spec, const std::string& uid, bool live);
    std::shared_ptr<JobRun> make_run(const resource::Object& job, Plan plan, bool live);
};

/// Holds when a leader was last at work while the deadline of a barrier ran, in milliseconds of the wall clock.
constexpr std::string_view alive_key = "jobs.engine/alive";
/// The key of the mean duration of tasks like this, in the store.
std::string history_key(std::string_view signature);
/// The digest of what a task runs; empty where it runs nothing.
std::string task_signature(const TaskSpec& task);

} // namespace orrery::jobs
