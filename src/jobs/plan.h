#pragma once

#include "core/result.h"
#include "jobs/executor.h"
#include "jobs/job_file.h"
#include "jobs/membership.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::jobs {

/// One task of the spec on all its nodes: `count` tasks, numbered from `first`, in the order of `hosts`.
struct Group {
    std::uint32_t first = 0, count = 0;
    std::vector<std::uint32_t> hosts; ///< indexes into Plan::hosts, ascending; of a task with `together`, all nodes of the one task
    struct Edge {
        std::uint32_t group = 0;
        bool same_host = false;
    };
    std::vector<Edge> after, before;              ///< the groups that it depends on; the groups that depend on it
    std::vector<std::int64_t> wanted;             ///< by barrier of the spec: the number of members
    std::vector<std::uint32_t> waves;             ///< of a batch: the end of each wave, relative to `first`; empty: one wave
    std::optional<std::uint32_t> through;         ///< of a batch
    std::optional<std::uint32_t> rolling_through; ///< of a rolling task
    std::uint32_t depth = 0;                      ///< the length of the longest chain of groups after it
};

/// A node as the planner sees it.
struct PlanNode {
    std::string name;
    std::map<std::string, std::string> labels;
    bool maintenance = false;
};

/// A job with its tasks placed on nodes. Edges connect groups (or the tasks of two groups on the same node), so that the size of a
/// plan grows with the number of tasks, not of pairs of tasks. Immutable.
struct Plan {
    std::string name; ///< of the job
    JobSpec spec;
    std::vector<std::string> hosts, roles; ///< the nodes it works on, by name, and the role of each
    std::vector<Group> groups;             ///< one for each task of the spec
    std::uint32_t tasks = 0;
    std::vector<std::int64_t> done_wanted; ///< by condition of `done`: the number of members
    std::string digest;                    ///< of spec and placement: what an operator approves
    std::vector<std::string> warnings;

    static constexpr std::uint32_t none = 0xffffffff;
    std::uint32_t group_of(std::uint32_t task) const;
    /// The node of a task; `none` where it has no node of its own.
    std::uint32_t host_of(std::uint32_t task) const;
    std::uint32_t host_in(std::uint32_t group, std::uint32_t task) const {
        const auto& of = groups[group];
        return spec.tasks[group].together || of.hosts.empty() ? none : of.hosts[task - of.first];
    }
    /// The group's task on that node, or `none`.
    std::uint32_t task_on(std::uint32_t group, std::uint32_t host) const;
    /// "mysql@db-1", or "pools"
    std::string task_name(std::uint32_t task) const;
    /// The task of that name; "mysql" without a node where the group has one task.
    std::optional<std::uint32_t> find(std::string_view name) const;
    std::optional<std::uint32_t> find_group(std::string_view name) const;
};

/// Places a job on nodes. `invalid` has all errors at once: unknown names, cycles (with their path), missing nodes and executors,
/// invalid bodies, barriers that cannot open.
Result<Plan> expand(std::string name, JobSpec spec, const std::vector<PlanNode>& nodes, const Executors& executors,
                    const Membership* membership);

/// The keys of a Secret; nothing where the Secret does not exist.
using SecretKeys = std::function<std::optional<std::vector<std::string>>(const std::string& secret)>;

/// What a job is validated against when it is submitted.
struct Submission {
    const std::vector<PlanNode>& nodes;
    const Executors& executors;
    const Membership* membership = nullptr;
    SecretKeys secret_keys{};           ///< empty: references to secrets are not validated
    std::vector<FieldError> problems{}; ///< found elsewhere: see `missing_files`
};
/// The plan of a submitted spec, with its digest. Errors of the spec and of the graph are reported together, each with the name of
/// its task.
Result<Plan> plan_submission(std::string name, const json::object& spec, const Submission& with);

/// The fields of a job that name files which the server does not have, such as a playbook.
Task<std::vector<FieldError>> missing_files(Context ctx, const Executors& executors, const json::object& spec);

/// Waits, for some seconds at most, until the catalog has answered about the services that barriers and re-runs of a job name. An
/// external catalog is asked about a service when it is named first; a plan that is made before the answer has no evidence.
Task<Unit> await_services(Context ctx, Membership& membership, const json::object& spec);

/// The digest that an approval of this plan names.
std::string plan_digest(const json::object& spec, const Plan& plan);

/// The part of a plan that does not follow from its spec, as text: which nodes. `plan_from` makes the plan of both.
std::string placement_text(const Plan& plan);
Result<Plan> plan_from(std::string name, JobSpec spec, std::string_view placement);

} // namespace orrery::jobs
