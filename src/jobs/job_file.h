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

/// A job as a person writes it, read and checked as far as one file can be checked by itself. docs/jobs.md has all of it by
/// example.
namespace orrery::jobs {

/// How many members a barrier wants.
struct Count {
    enum class What {
        number, ///< so many
        hosts,  ///< as many as the plan has machines of `role`
        all,    ///< as many as the plan has machines that provide the service
    };
    What what = What::number;
    std::int64_t number = 1;
    std::string role;
    std::string text() const;
};

enum class OnTimeout : std::uint8_t {
    fail,
    ask,  ///< wait on for a person: `approve` goes on, `cancel` ends
    go_on ///< "continue": run as if it were met
};

/// "at least `count` of `service` (with `tag`) are `state`, for `hold`".
struct BarrierSpec {
    std::string service, tag;
    MemberState state = MemberState::passing;
    Count count;
    Duration hold{};
    std::optional<Duration> deadline;
    OnTimeout on_timeout = OnTimeout::fail;
    std::string text() const; ///< "3 of stmon passing"
};

struct AfterSpec {
    std::string task;
    bool same_host = false; ///< only that machine's own
};

struct ServiceRef {
    std::string service, tag;
    auto operator<=>(const ServiceRef&) const = default;
};

struct RerunSpec {
    ServiceRef of;
    Duration debounce = std::chrono::seconds(3);     ///< changes that come within it are one
    Duration min_interval = std::chrono::seconds(5); ///< between the starts of two runs
};

struct RetrySpec {
    int times = 0;
    Duration first = std::chrono::seconds(1); ///< doubles with each that follows
    Duration longest = std::chrono::minutes(1);
    std::vector<ErrorClass> on = {ErrorClass::connect, ErrorClass::lost, ErrorClass::timeout};
};

/// A number, or a share of a whole.
struct Share {
    std::int64_t number = 0;
    bool percent = false;
    /// At least 1 where it is a share of something and not 0 %.
    std::int64_t of(std::int64_t whole) const;
};

struct BatchSpec {
    int canary = 0;            ///< so many first, alone
    std::vector<Share> serial; ///< then waves of these sizes; the last is repeated
    Share max_fail;            ///< more failures than this stop the rest
    Duration hold{};           ///< between waves
    std::string through;       ///< a wave is over when this task is, on the wave's machines; empty: the task itself
};

struct OnSpec {
    enum class What { server, nodes, labels };
    What what = What::server;
    std::vector<std::string> nodes;
    std::string labels; ///< a selector; `role: db` is "role=db"
};

struct RunSpec {
    std::string executor; ///< empty: there is nothing to run
    json::value body;
    bool given() const { return !executor.empty(); }
};

struct TaskSpec {
    std::string name;
    std::string path; ///< where it stands in the file: "spec.tasks[2]", "spec.tasks.mysql"
    OnSpec on;
    bool together = false; ///< one run for all machines instead of one each
    std::vector<AfterSpec> after;
    std::vector<BarrierSpec> wait;
    RunSpec check, run, verify, undo;
    json::object with;
    std::map<std::string, std::string> environment;
    std::vector<std::string> artefacts; ///< files to fetch from its machines afterwards
    RetrySpec retries;
    Duration timeout = std::chrono::minutes(30);
    std::string lock;
    int slots = 0; ///< how many of it at once; 0: no limit of its own
    std::optional<BatchSpec> batch;
    std::vector<RerunSpec> rerun_on;
    bool approve = false;
    bool idempotent = false;
    bool rolling = false; ///< counts against the limit of its machine's role, until `rolling_through` is over there
    std::string rolling_through;
    std::vector<ServiceRef> provides;
};

struct JobSpec {
    std::string description;
    std::vector<TaskSpec> tasks;
    int slots = 1000; ///< tasks of this job at once
    int per_host = 1; ///< tasks of any job on one machine at once
    std::map<std::string, int> per_role;
    std::vector<BarrierSpec> done; ///< what must hold for the job to be done
    Duration done_hold{};
    bool approve = false; ///< nothing begins before its plan is approved
};

/// All that is wrong at once: `invalid`, with the path of each field ("spec.tasks[2].wait[0].count").
Result<JobSpec> read_job(const json::object& spec);

/// The `${...}` in a text or in all texts of a value: what stands between the braces. `$${...}` is none: it becomes `${...}`.
std::vector<std::string> references_in(const json::value& value);

} // namespace orrery::jobs
