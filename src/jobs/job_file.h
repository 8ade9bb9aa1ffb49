#pragma once

#include "core/clock.h"
#include "core/result.h"
#include "jobs/executor.h"
#include "jobs/membership.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The spec of a job, parsed and validated as far as that needs nothing but the spec. docs/jobs.md describes every field.
namespace orrery::jobs {

/// The number of members that a barrier wants.
struct Count {
    enum class Type {
        number, ///< `number`
        hosts,  ///< the number of nodes of `role` in the plan
        all,    ///< the number of nodes in the plan that provide the service
    };
    Type type = Type::number;
    std::int64_t number = 1;
    std::string role;
    std::string text() const;
};

enum class OnTimeout : std::uint8_t {
    fail,
    ask,  ///< wait for an operator: `approve` continues, `cancel` ends the job
    go_on ///< "continue": run as if the barrier were met
};

/// At least `count` instances of `service` (with `tag`) are `state`, for `hold`. For a plain DNS name, `service` is `dns_prefix`
/// and the name, `tag` the record type, and records are counted.
struct BarrierSpec {
    std::string service, tag;
    MemberState state = MemberState::passing;
    Count count;
    Duration hold{};
    std::optional<Duration> deadline;
    OnTimeout on_timeout = OnTimeout::fail;
    std::string text() const; ///< "3 of stmon passing", "2 A records of db.example.org"
    bool is_dns() const { return service.starts_with(dns_prefix); }
};

struct AfterSpec {
    std::string task;
    bool same_host = false; ///< only the task on the same node
};

struct ServiceRef {
    std::string service, tag;
    auto operator<=>(const ServiceRef&) const = default;
};

struct RerunSpec {
    ServiceRef of;
    Duration debounce = std::chrono::seconds(3);     ///< changes within it count as one
    Duration min_interval = std::chrono::seconds(5); ///< between the starts of two runs
};

struct RetrySpec {
    int times = 0;
    Duration delay = std::chrono::seconds(1); ///< before the first retry; it doubles with each
    Duration max_delay = std::chrono::minutes(1);
    std::vector<ErrorClass> on = {ErrorClass::connect, ErrorClass::lost, ErrorClass::timeout};
};

/// A number, or a percentage.
struct Share {
    std::int64_t number = 0;
    bool percent = false;
    /// The number of `whole`; at least 1 where the percentage is not 0.
    std::int64_t of(std::int64_t whole) const;
};

struct BatchSpec {
    int canary = 0;            ///< the size of the first wave
    std::vector<Share> serial; ///< the sizes of the next waves; the last is repeated
    Share max_fail;            ///< more failures stop the rest
    Duration hold{};           ///< between waves
    std::string through;       ///< a wave ends with this task on its nodes; empty: with the task itself
};

struct OnSpec {
    enum class Type { server, nodes, labels };
    Type type = Type::server;
    std::vector<std::string> nodes;
    std::string labels; ///< a selector; `role: db` is "role=db"
};

struct RunSpec {
    std::string executor; ///< empty: nothing to run
    json::value body;
    bool given() const { return !executor.empty(); }
};

struct TaskSpec {
    std::string name;
    std::string path; ///< in the spec: "spec.tasks[2]", "spec.tasks.mysql"
    OnSpec on;
    bool together = false; ///< one task for all nodes instead of one for each
    std::vector<AfterSpec> after;
    std::vector<BarrierSpec> wait;
    RunSpec check, run, verify, undo;
    json::object with;
    std::map<std::string, std::string> environment;
    std::vector<std::string> artefacts; ///< files to fetch from its nodes after its end
    RetrySpec retries;
    Duration timeout = std::chrono::minutes(30);
    std::string lock;
    int slots = 0; ///< tasks of it at once; 0: no limit of its own
    std::optional<BatchSpec> batch;
    std::vector<RerunSpec> rerun_on;
    bool approve = false, approve_by_another = false; ///< the second: by another user than the one who submitted the job
    bool idempotent = false;
    bool rolling = false; ///< its node needs a rolling slot of its role, until `rolling_through` has succeeded there
    std::string rolling_through;
    std::vector<ServiceRef> provides;
};

struct JobSpec {
    std::string description;
    json::object parameters; ///< values of `${param.NAME}`
    std::vector<TaskSpec> tasks;
    int slots = 1000; ///< tasks of this job at once
    int per_host = 1; ///< tasks of any job on one node at once
    std::map<std::string, int> per_role;
    std::vector<BarrierSpec> done; ///< conditions for the job to be done
    Duration done_hold{};
    bool approve = false;            ///< nothing starts before its plan is approved
    bool approve_by_another = false; ///< by another user than the one who submitted it
};

/// `invalid` has all errors at once, each with the path of its field ("spec.tasks[2].wait[0].count").
Result<JobSpec> read_job(const json::object& spec);
/// Reads as much as possible and adds all errors. False: the tasks are not known, and there is nothing more to validate.
bool read_job(const json::object& spec, JobSpec& job, std::vector<FieldError>& errors);
/// The names of all fields that a task may have.
std::vector<std::string_view> known_task_fields();

/// The texts between the braces of all `${...}` in a value. `$${...}` is not a reference: it becomes `${...}`.
std::vector<std::string> references_in(const json::value& value);
/// The first `${` without a `}`, with the text after it; nothing: all are closed.
std::optional<std::string> unclosed_reference(const json::value& value);

} // namespace orrery::jobs
