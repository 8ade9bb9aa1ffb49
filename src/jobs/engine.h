#pragma once

#include "core/clock.h"
#include "core/task.h"
#include "jobs/artefacts.h"
#include "jobs/executor.h"
#include "jobs/membership.h"
#include "jobs/output.h"
#include "jobs/scheduler.h"
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

/// A job as it stands: its plan and its rows. Live on the server that leads, read from the journal elsewhere and after its end.
class JobRun;

/// What a person asks of a job.
struct Order {
    enum class What { approve, pause, resume, cancel, retry };
    What what = What::pause;
    std::string task;    ///< approve, retry: one task; empty: the job, or all that failed
    std::string digest;  ///< approve: of the plan that was seen
    std::string because; ///< in the person's words
    bool undo = true;    ///< cancel: run what `undo` says
};
std::string_view name_of(Order::What what);

/// Runs jobs, on the server that leads. Every change of a row is in the store before it has an effect: intents before attempts
/// begin, results before what follows from them. Killed at any instant and started again it goes on: attempts that run are taken
/// up, none is begun twice. All decisions are the Scheduler's; this is where they meet the world. Loop thread only.
class Engine {
public:
    struct Options {
        int slots = 1000;             ///< attempts at once, of all jobs
        std::filesystem::path folder; ///< for output
        std::size_t output_limit = 4u << 20;
        Collector* collector = nullptr;         ///< fetches artefacts; null: nobody does
        std::size_t artefact_limit = 16u << 20; ///< of one file
        std::uint64_t artefacts_of_job = 1u << 30;
        Duration collect = std::chrono::seconds(60); ///< so long for all of an attempt's
        /// Several servers share the store: output is kept in it, so much in all.
        bool shared = false;
        std::string server; ///< this one's name among them
        std::size_t output_total = 256u << 20;
        Duration give_up = std::chrono::minutes(1); ///< after an attempt was told to end and did not
        Duration report = std::chrono::seconds(1);  ///< how often a job's status is brought up to date
        /// What attempts left on machines out of reach: asked again after this, twice that..., an hour at most, for so long.
        Duration clean_again = std::chrono::seconds(30), clean_for = std::chrono::hours(24 * 7);
    };
    Engine(asio::any_io_executor executor, resource::Resources& resources, store::Leadership& leadership, Membership& membership,
           const Executors& executors, Pool& pool, Clock& clock, Options options);
    ~Engine();

    /// Works until it is cancelled; then lets go of everything and leaves what was begun running.
    asio::awaitable<void> run(Context ctx);

    /// Any server. Durable when it returns, and done where this server or another leads. `conflict` where it makes no sense now.
    Task<Unit> order(Context ctx, std::string job, Order order);

    /// Any server. The job as it stands.
    Result<std::shared_ptr<const JobRun>> look(std::string_view job) const;
    /// The plan of a job that has not been submitted, from its spec.
    Result<Plan> plan(std::string name, const json::object& spec) const;
    /// What a task would do; `unsupported` where its executor cannot say.
    Task<Preview> preview(Context ctx, std::shared_ptr<const JobRun> run, std::uint32_t task);
    Task<Preview> preview(Context ctx, const Plan& plan, std::uint32_t task);
    /// How long tasks like these took in earlier jobs; nothing for those that never ran.
    std::vector<std::optional<Duration>> history(const Plan& plan) const;
    /// What a plan would meet here: how long its tasks took (`unknown` where they never ran), this server's slots, the rolling
    /// rules that are stored.
    SimulateOptions conditions(const Plan& plan, Duration latency, Duration unknown) const;
    /// Values of a task's `with` as of now.
    Result<json::value> values_now(const Plan& plan, std::uint32_t task) const;

    OutputLog& output();
    ArtefactFiles& artefacts();
    const Membership& membership() const;
    Clock& clock() const;
    /// jobs, running attempts, transitions written, rounds: for /metrics.
    std::vector<std::pair<std::string, double>> metrics() const;
    /// Called for each attempt as its executor is, with the time since the first of the ends its round took in: what the engine and
    /// the journal add, at most. For the bench.
    void on_dispatch(std::function<void(Duration)> seen);

    struct State;

private:
    std::shared_ptr<State> state_;
};

class JobRun {
public:
    std::string name, uid;
    Plan plan;
    std::shared_ptr<Limits> limits; ///< the server's; its own, where it is only looked at
    std::unique_ptr<Scheduler> scheduler;
    bool live = false;

    ~JobRun();
    JobRun();
    struct Live;
    std::unique_ptr<Live> at_work; ///< the engine's own

    /// What is not right with a running task, as far as this server knows; empty: nothing.
    std::string trouble(std::uint32_t task) const;
    /// Waits until something about it has changed since `seen`, which is then brought up to date.
    Task<Unit> changed(Context ctx, std::uint64_t& seen) const;
    void note_change() const;

private:
    mutable std::uint64_t version_ = 1;
    mutable std::unique_ptr<Notifier> notifier_;
};

/// The kinds of this module. Jobs are checked as a whole when they are submitted.
resource::Kind job_kind(const Executors& executors, const Membership& membership);
resource::Kind rolling_rule_kind();
/// What a RollingRule says, and all that are stored, by role.
RollingRule rolling_rule(const json::object& spec);
std::map<std::string, RollingRule> rolling_rules_of(const resource::Resources& resources);
/// The machines of this store; `as_targets`: the same as executors see them, in no order.
std::vector<Machine> machines_of(const resource::Resources& resources,
                                 std::vector<std::shared_ptr<const Target>>* as_targets = nullptr);

} // namespace orrery::jobs
