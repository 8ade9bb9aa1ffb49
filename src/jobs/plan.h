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

/// A task of the file for all its machines: `count` tasks, numbered from `first`, in the order of `hosts`.
struct Group {
    std::uint32_t first = 0, count = 0;
    std::vector<std::uint32_t> hosts; ///< of Plan::hosts, ascending; where the task runs `together`, all of them for the one task
    struct Edge {
        std::uint32_t group = 0;
        bool same_host = false;
    };
    std::vector<Edge> after, before;              ///< what it needs; what needs it
    std::vector<std::int64_t> wanted;             ///< of each of the spec's barriers: how many members
    std::vector<std::uint32_t> waves;             ///< of a batch: where each wave ends, relative to `first`; empty: all at once
    std::optional<std::uint32_t> through;         ///< of a batch
    std::optional<std::uint32_t> rolling_through; ///< of a rolling task
    std::uint32_t depth = 0;                      ///< the longest chain of groups that follow it
};

/// The machines there are.
struct Machine {
    std::string name;
    std::map<std::string, std::string> labels;
};

/// A job, with its tasks spread over machines. Edges are between groups (and by machine, where they say so), so that its size is
/// that of its tasks, not of what lies between them. Immutable.
struct Plan {
    std::string name; ///< of the job
    JobSpec spec;
    std::vector<std::string> hosts, roles; ///< the machines it touches, by name, and the role of each
    std::vector<Group> groups;             ///< one for each of the spec's tasks
    std::uint32_t tasks = 0;
    std::vector<std::int64_t> done_wanted; ///< of each of the spec's `done`
    std::string digest;                    ///< of all of it: what an approval is for
    std::vector<std::string> warnings;

    static constexpr std::uint32_t none = 0xffffffff;
    std::uint32_t group_of(std::uint32_t task) const;
    /// The machine of a task; `none` where it is not about one.
    std::uint32_t host_of(std::uint32_t task) const;
    std::uint32_t host_in(std::uint32_t group, std::uint32_t task) const {
        const auto& of = groups[group];
        return spec.tasks[group].together || of.hosts.empty() ? none : of.hosts[task - of.first];
    }
    /// The group's task on that machine, or `none`.
    std::uint32_t task_on(std::uint32_t group, std::uint32_t host) const;
    /// "mysql@db-1", or "pools"
    std::string task_name(std::uint32_t task) const;
    /// By that name; "mysql" alone where it has one task only.
    std::optional<std::uint32_t> find(std::string_view name) const;
    std::optional<std::uint32_t> find_group(std::string_view name) const;
};

/// Spreads a job over machines. All that is wrong at once: unknown names, cycles (with their path), machines that are not there,
/// executors that do not exist, bodies they refuse, barriers that nothing can open. `secret_exists` may be empty.
Result<Plan> expand(std::string name, JobSpec spec, const std::vector<Machine>& machines, const Executors& executors,
                    const Membership* membership, const std::function<bool(const std::string& secret)>& secret_exists = {});

/// What an approval of this plan names.
std::string plan_digest(const json::object& spec, const Plan& plan);

/// The part of a plan that does not follow from its spec: which machines. Text, and back; together with the spec it is the plan.
std::string placement_text(const Plan& plan);
Result<Plan> plan_from(std::string name, JobSpec spec, std::string_view placement);

} // namespace orrery::jobs
