#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"
#include "jobs/membership.h"
#include "jobs/output.h"
#include "jobs/scheduler/scheduler.h"
#include "jobs/simulate.h"
#include "resource/resources.h"
#include "store/leadership.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::jobs {

/// A job: its plan and its records. Live on the leader; read from the journal on other servers and after its end.
class JobRun;

/// A command of an operator to a job.
struct JobCommand {
    enum class Action { approve, pause, resume, cancel, retry, undo };
    Action action = Action::pause;
    std::string task;   ///< approve, retry: one task; empty: the job, or all failed tasks
    std::string digest; ///< approve: of the plan that the operator reviewed
    std::string reason; ///< given by the operator
    bool undo = true;   ///< cancel: run the `undo` of tasks
};
std::string_view name_of(JobCommand::Action action);

/// Runs jobs on the server that leads. Every change of a record is in the store before it has an effect: intents before attempts
/// start, outcomes before what follows from them. It can be killed at any instant: when it starts again, it re-attaches to attempts
/// that run, and starts none twice. The Scheduler makes all decisions; the engine connects it to the store and to executors. Loop
/// thread only.
class Engine {
public:
    struct Options {
        int slots = 1000;                                     ///< attempts at once, of all jobs
        std::filesystem::path folder;                         ///< for output and artefacts
        std::size_t output_limit = 4u << 20;                  ///< bytes of output of one attempt
        ArtefactFetcher* artefact_fetcher = nullptr;          ///< null: artefacts are not fetched
        std::size_t artefact_limit = 16u << 20;               ///< bytes of one artefact
        std::uint64_t artefacts_of_job = 1u << 30;            ///< bytes of all artefacts of a job
        Duration artefact_timeout = std::chrono::seconds(60); ///< for all artefacts of an attempt
        bool shared = false;                                  ///< several servers share the store: output is stored in it
        std::string server;                                   ///< the name of this server among them
        std::size_t output_total = 256u << 20;                ///< bytes of output in a shared store
        Duration give_up = std::chrono::minutes(1);           ///< after this, an attempt that was killed is lost
        Duration report = std::chrono::seconds(1); ///< the interval at which changed counters of a job are written to its status
        /// Clean-ups on nodes that are unreachable: the first interval, which doubles up to an hour, and when to stop.
        Duration clean_again = std::chrono::seconds(30), clean_for = std::chrono::hours(24 * 7);
    };
    Engine(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Membership& membership,
           const Executors& executors, Pool& pool, Clock& clock, Options options);
    ~Engine();

    /// Runs until it is cancelled. Attempts that were started run on.
    asio::awaitable<void> run(Context ctx);

    /// On any server. Durable when it returns, and executed where a server leads. `conflict` where the job's state does not allow
    /// it.
    Task<Unit> command(Context ctx, std::string job, JobCommand command);

    /// On any server: the current state of a job.
    Result<std::shared_ptr<const JobRun>> find(std::string_view job) const;
    /// The plan of a job that has not been submitted, from its spec. `problems`: what `missing_files` found.
    Result<Plan> plan(std::string name, const json::object& spec, std::vector<FieldError> problems = {}) const;
    Task<std::vector<FieldError>> missing_files(Context ctx, json::object spec) const;
    /// Lets an external catalog answer before `plan`.
    Task<Unit> await_services(Context ctx, json::object spec) const;
    /// What a task would change; `unsupported` where its executor has no dry run.
    Task<Preview> preview(Context ctx, std::shared_ptr<const JobRun> run, std::uint32_t task);
    Task<Preview> preview(Context ctx, const Plan& plan, std::uint32_t task);
    /// The mean duration of equal tasks in earlier jobs; nothing for tasks that never ran.
    std::vector<std::optional<Duration>> history(const Plan& plan) const;
    /// The conditions for a simulation: durations from the history (`unknown` without one), the slots of this server, the
    /// stored RollingRules.
    SimulateOptions conditions(const Plan& plan, Duration latency, Duration unknown) const;
    /// The values of a task's `with`, bound now.
    Result<json::value> values_now(const Plan& plan, std::uint32_t task) const;

    OutputLog& output();
    ArtefactFiles& artefacts();
    const Membership& membership() const;
    Clock& clock() const;
    /// For /metrics.
    std::vector<std::pair<std::string, double>> metrics() const;
    /// For the bench: called when an executor is called, with the time since the first event of its cycle.
    void on_dispatch(std::function<void(Duration)> seen);

    struct State;

private:
    std::shared_ptr<State> state_;
};

class JobRun {
public:
    std::string name, uid;
    /// Id of the request that submitted it. Stored with the job: the same on every server and after every restart.
    std::string context_id;
    std::string submitted_by; ///< the actor
    Plan plan;
    std::shared_ptr<Limits> limits; ///< the server's; its own where it is not live
    std::unique_ptr<Scheduler> scheduler;
    bool live = false;

    ~JobRun();
    JobRun();
    struct Live;
    std::unique_ptr<Live> at_work; ///< private to the engine

    /// The context of everything that is done for this job: log lines, events, attempts and their requests.
    const Context& context() const {
        if (!context_) context_ = Context::make("job/" + name, context_id);
        return *context_;
    }

    /// A problem of a running task (its node is unreachable), as far as this server knows; empty: none.
    std::string problem(std::uint32_t task) const;
    /// Waits until the job has changed since `seen`, and updates `seen`.
    Task<Unit> changed(Context ctx, std::uint64_t& seen) const;
    void note_change() const;

private:
    mutable std::optional<Context> context_; ///< made at the first use
    mutable std::uint64_t version_ = 1;
    mutable std::unique_ptr<Notifier> notifier_;
};

/// The kind Job. A Job is validated completely when it is submitted.
resource::Kind job_kind(const Executors& executors, Membership& membership);
/// Services and Nodes that unfinished jobs use cannot be removed.
void add_users(resource::Registry& registry);
resource::Kind rolling_rule_kind();
/// A RollingRule from its spec; all stored ones, by role.
RollingRule rolling_rule(const json::object& spec);
std::map<std::string, RollingRule> rolling_rules_of(const resource::Resources& resources);
/// The nodes of this store, by name; `as_targets`: the same as executors see them, in no order.
std::vector<PlanNode> nodes_of(const resource::Resources& resources,
                               std::vector<std::shared_ptr<const Target>>* as_targets = nullptr);

} // namespace orrery::jobs
