#pragma once

#include "jobs/engine.h"
#include "jobs/journal.h"
#include "jobs/values.h"

#include <boost/asio/cancellation_signal.hpp>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

/// Private to the engine's own files.
namespace orrery::jobs {

/// One attempt that this server has begun or taken up.
struct RunningAttempt {
    Attempt attempt;
    Executor* executor = nullptr; ///< null: there is nothing to do
    Phase phase = Phase::run;
    asio::cancellation_signal let_go;
    std::shared_ptr<OutputLog::Sink> sink;
    bool killed = false, timed_out = false, never_began = false;
    SteadyTime due{};       ///< when the first of the ends came that its round took in
    SteadyTime over{};      ///< when it was known how it ended
    bool has_ended = false; ///< it has ended; its artefacts are being fetched
    Outcome outcome;
};

struct JobRun::Live {
    explicit Live(Journal journal_) : journal(std::move(journal_)) {}
    Journal journal;
    std::map<std::uint32_t, json::object> prepared; ///< what `with` was bound to, of those about to begin
    std::unordered_map<std::uint32_t, std::shared_ptr<RunningAttempt>> running;
    std::vector<std::uint32_t> cleaned;                 ///< not in the journal yet
    std::size_t cleaning = 0;                           ///< under way
    std::vector<Journal::Entry> first_entries;          ///< the placement, until it is stored
    std::vector<std::optional<std::uint64_t>> constant; ///< by group: the digest, where nothing is bound late
    std::optional<std::uint64_t> artefacts;             ///< bytes that are kept of them
    std::vector<std::string> signatures;                ///< by group, for the history
    bool status_stale = true;
    JobState reported = JobState::planned;
    bool reported_paused = false;
};

struct Engine::State : std::enable_shared_from_this<Engine::State> {
    State(asio::any_io_executor executor_, resource::Resources& resources_, store::Leadership& leadership_, Membership& membership_,
          const Executors& executors_, Pool& pool, Clock& clock_, Options options_)
        : executor(executor_),
          resources(resources_),
          leadership(leadership_),
          membership(membership_),
          executors(executors_),
          clock(clock_),
          options(std::move(options_)),
          files(pool, {options.folder / "jobs", options.output_limit}),
          records(options.shared ? std::make_unique<OutputRecords>(
                                       store(), clock, files, OutputRecords::Options{options.output_limit, options.output_total})
                                 : nullptr),
          artefacts(pool, {options.folder / "jobs", options.artefact_limit, options.artefacts_of_job}),
          wake(executor_),
          report_wake(executor_),
          emptied(executor_),
          output_wake(executor_),
          collected(executor_) {}

    asio::any_io_executor executor;
    resource::Resources& resources;
    store::Leadership& leadership;
    Membership& membership;
    const Executors& executors;
    Clock& clock;
    Options options;
    OutputFiles files;
    std::unique_ptr<OutputRecords> records; ///< where the store is shared; they are then the log
    ArtefactFiles artefacts;
    std::function<void(Duration)> on_dispatch;

    // --- Of a term ---
    std::shared_ptr<Limits> limits;
    std::map<std::string, std::shared_ptr<JobRun>, std::less<>> runs;
    TaskGroup* term = nullptr;
    Notifier wake, report_wake, emptied, output_wake, collected;
    std::size_t collecting = 0; ///< artefacts of so many attempts are being fetched
    bool woken = false;
    std::size_t attempts = 0; ///< coroutines of attempts that have not ended

    // --- What came in since the last round ---
    struct Ended {
        std::shared_ptr<JobRun> run;
        std::uint32_t task;
        std::shared_ptr<RunningAttempt> attempt;
    };
    std::vector<Ended> ended;
    std::set<std::string> changed_services;
    std::set<std::string> changed_jobs; ///< names
    struct GivenOrder {
        std::string key, job;
        Order order;
        std::string actor;
    };
    std::deque<GivenOrder> orders;
    std::vector<std::shared_ptr<void>> subscriptions;

    std::unordered_map<std::string, std::shared_ptr<const Target>> targets; ///< machines of jobs, as they are
    std::vector<std::pair<std::shared_ptr<JobRun>, std::shared_ptr<OutputLog::Sink>>> unflushed;
    /// Jobs that were read from the journal lately, to be looked at again.
    struct LookedAt {
        std::string name;
        store::Revision modified = 0; ///< of the Job
        std::shared_ptr<const JobRun> run;
    };
    std::deque<LookedAt> looked_at;
    std::uint64_t transitions = 0, rounds = 0;

    store::Store& store() { return resources.store(); }
    OutputLog& output() { return records ? static_cast<OutputLog&>(*records) : files; }
    const resource::Kind& kind(std::string_view name) const { return *resources.registry().find(name); }
    Moment moment() const { return {clock.steady(), clock.wall().time_since_epoch().count()}; }
    void wake_up() {
        woken = true;
        wake.notify_all();
    }

    // engine.cpp: a term
    void subscribe();
    void load_all(const Context& ctx);
    asio::awaitable<void> pump(Context ctx, store::Fence fence);
    asio::awaitable<void> watch_jobs(Context ctx, store::Fence fence);
    asio::awaitable<void> saw_jobs(Context ctx, store::Fence fence, std::vector<store::Event> changes);
    asio::awaitable<void> watch_orders(Context ctx);
    asio::awaitable<void> saw_orders(std::vector<store::Event> changes);
    void take_order(const store::Record& record);
    asio::awaitable<void> report(Context ctx, store::Fence fence);
    asio::awaitable<void> flush_output(Context ctx);
    asio::awaitable<void> let_go_of_all();

    // engine_round.cpp: one round
    struct Round {
        SteadyTime due{}; ///< when the first of the ends came
        std::vector<store::Transaction> transactions;
        std::vector<std::pair<std::shared_ptr<JobRun>, Scheduler::Start>> starts;
        std::vector<std::pair<std::shared_ptr<JobRun>, Scheduler::Kill>> kills;
        struct Over {
            std::shared_ptr<JobRun> run;
            std::uint32_t task = 0;
            std::shared_ptr<RunningAttempt> attempt;
        };
        std::vector<Over> over; ///< whose results are in it
        bool empty() const { return transactions.empty() && starts.empty() && kills.empty(); }
    };
    void take_in(const Context& ctx, Moment now, Round& round);
    void accept(const Context& ctx, const std::string& name, Moment now);
    void apply_order(const Context& ctx, const GivenOrder& given, Moment now, Round& round);
    void collect(const std::shared_ptr<JobRun>& run, Round& round);
    Task<Unit> write(Context ctx, store::Fence fence, Round& round);
    void act(const Context& ctx, Round& round);

    // attempts.cpp: one attempt
    Result<std::uint64_t> prepare(JobRun& run, std::uint32_t task, Phase phase);
    Scope scope_for(const Plan& plan, const std::vector<Row>* rows, std::uint32_t task, std::shared_ptr<const Target> target) const;
    Result<std::shared_ptr<const Target>> target(const std::string& node);
    Result<Attempt> make_attempt(const Plan& plan, const std::vector<Row>* rows, std::string_view uid, std::uint32_t task,
                                 Phase phase, const json::object* with, std::vector<std::string>* missing = nullptr);
    std::string changed_secret(const Attempt& attempt, const std::vector<std::string>& missing, std::int64_t since) const;
    void begin(const Context& ctx, std::shared_ptr<JobRun> run, Scheduler::Start start, SteadyTime due);
    asio::awaitable<void> work(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Start start,
                               std::shared_ptr<RunningAttempt> running);
    asio::awaitable<OutputLog::Kept> kept_output(Context ctx, OutputLog::Name name);
    asio::awaitable<void> keep_output(Context ctx, RunningAttempt& running);
    asio::awaitable<void> collect(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task, RunningAttempt& running,
                                  Outcome outcome);
    asio::awaitable<void> kill(Context ctx, std::shared_ptr<JobRun> run, Scheduler::Kill kill);
    void clean_leftovers(const Context& ctx, const std::shared_ptr<JobRun>& run);
    void clean(const Context& ctx, std::shared_ptr<JobRun> run, std::uint32_t task, std::shared_ptr<RunningAttempt> running);
    asio::awaitable<void> clean_up(Context ctx, std::shared_ptr<JobRun> run, std::uint32_t task,
                                   std::shared_ptr<RunningAttempt> running);

    // load.cpp
    Result<std::shared_ptr<JobRun>> load(const resource::Object& object, bool live);
    std::shared_ptr<JobRun> make_run(std::string name, std::string uid, Plan plan, bool live);
};

const RunSpec& run_of(const TaskSpec& spec, Phase phase);
/// A text out of an object, or "".
std::string text_in(const json::object& object, std::string_view key);
json::object status_of(const JobRun& run);

} // namespace orrery::jobs
