#pragma once

#include "jobs/live_job.h"
#include "jobs/values.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orrery::jobs {

/// Binds the values of a task and makes the Attempt that its executor gets. Private to the engine.
class AttemptBuilder {
public:
    explicit AttemptBuilder(EngineContext& engine) : engine_(engine) {}

    /// The node as executors see it; read from the store once.
    Result<std::shared_ptr<const Target>> target(const std::string& node);
    void add_target(std::shared_ptr<const Target> target) { targets_.try_emplace(target->node.name, target); }
    void forget_target(const std::string& node) { targets_.erase(node); }
    void forget_targets() { targets_.clear(); }

    /// Binds the inputs of a task that is about to start, and returns their digest. `unavailable`: not known now, or the node is in
    /// maintenance.
    Result<std::uint64_t> prepare(JobRun& run, std::uint32_t task, Phase phase);
    /// `records`: null for a job that is only planned.
    Scope scope_for(const Plan& plan, const std::vector<TaskRecord>* records, std::uint32_t task,
                    std::shared_ptr<const Target> target) const;
    /// `with`: the values that were bound when the intent was journalled, or null. `missing`: filled with the secrets that do not
    /// exist any more; null: a missing secret is an error.
    Result<Attempt> make_attempt(const Plan& plan, const std::vector<TaskRecord>* records, std::string_view uid, std::uint32_t task,
                                 Phase phase, const json::object* with, std::vector<std::string>* missing = nullptr);
    /// The first secret of an attempt that changed after `since`, when the attempt was started; empty: none.
    std::string changed_secret(const Attempt& attempt, const std::vector<std::string>& missing, std::int64_t since) const;

private:
    Result<Unit> reveal_named(const TaskSpec& spec, const RunSpec& run, Secrets& secrets, std::vector<std::string>* missing) const;
    Result<Unit> fill_in(Attempt& attempt, const Plan& plan, const std::vector<TaskRecord>* records, std::uint32_t task,
                         Phase phase, std::shared_ptr<const Target> at, const json::object* with,
                         std::vector<std::string>* missing) const;
    Result<Unit> bind_values(Attempt& attempt, const SeparatedBody& separated, Scope scope, const TaskSpec& spec, Phase phase,
                             const json::object* with) const;

    EngineContext& engine_;
    std::unordered_map<std::string, std::shared_ptr<const Target>> targets_; ///< nodes of jobs, as stored
};

} // namespace orrery::jobs
