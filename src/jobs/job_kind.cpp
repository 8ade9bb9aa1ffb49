#include "core/ids.h"
#include "core/json_fields.h"
#include "jobs/engine_state.h"
#include "jobs/job_migration.h"
#include "jobs/task_fields.h"

#include <fmt/format.h>

/// The kinds Job and RollingRule.
namespace orrery::jobs {

RollingRule rolling_rule(const json::object& spec) {
    RollingRule rule;
    if (const auto* limit = spec.if_contains("limit"); limit != nullptr && limit->is_int64())
        rule.limit = static_cast<int>(limit->get_int64());
    if (const auto* after = spec.if_contains("after"); after != nullptr && after->is_array())
        for (const auto& one : after->get_array())
            if (one.is_string()) rule.after.emplace_back(std::string_view(one.get_string()));
    if (const auto* paused = spec.if_contains("paused"); paused != nullptr && paused->is_bool()) rule.paused = paused->get_bool();
    rule.reason = text_at(spec, "reason");
    return rule;
}

std::map<std::string, RollingRule> rolling_rules_of(const resource::Resources& resources) {
    std::map<std::string, RollingRule> out;
    resource::ListQuery query;
    query.limit = 5000;
    for (;;) {
        auto page = resources.list(*resources.registry().find("RollingRule"), query);
        if (!page.ok()) return out;
        for (const auto& record : page->records)
            if (auto object = resource::from_stored(*record); object.ok()) out[object->name] = rolling_rule(object->spec);
        if (page->next.empty()) return out;
        query.after = page->next;
    }
}

namespace {

void add_job_spec(resource::Kind& job) {
    using namespace resource;
    job.spec(text("description", "Its purpose.").format(Format::one_line).between(0, 1024))
        .spec(tasks_field().required())
        .spec(limits_field())
        .spec(done_field())
        .spec(any("approve", "Start nothing before the plan is approved by its digest. {by_another: true}: by another user than "
                             "the one who submitted the job.")
                  .forms(approve_forms()))
        .spec(text("template", "The JobTemplate of which it is a run.").format(Format::name).indexed())
        .spec(text("schedule", "The schedule of the template that started it. Absent: a user started it."))
        .spec(time("due_at", "When the scheduled run was due."))
        .spec(any("parameters", "Values of ${param.NAME}, by name."));
}

void add_job_status(resource::Kind& job) {
    using namespace resource;
    job.status(text("uid", "Its unique id."))
        .status(text("submitted_by", "The actor of the request that submitted it."))
        .status(text("context", "Id of the request that submitted it. Its log lines, events, tasks and requests carry it."))
        .status(text("state", "planned, running, converged, succeeded, failed, cancelling, cancelled, undoing, undone, "
                              "undo_failed or refused."))
        .status(text("digest", "Digest of its plan."))
        .status(integer("nodes", "Number of nodes that it works on.").renamed_from("machines"))
        .status(any("tasks", "Number of tasks in each state."))
        .status(text("progress", "Tasks that have ended, of all tasks."))
        .status(boolean("paused", "Whether an operator has paused it."))
        .status(any("rolling_slots",
                    "Role and node of each node whose change failed: it counts against the RollingRule of its role until "
                    "the job is retried, undone or deleted.")
                    .renamed_from("rolling_held"))
        .status(boolean("cleaned", "Whether it has ended and its attempts left nothing behind on nodes that can be reached."))
        .status(text("message", "Why it is in its state.").renamed_from("words"))
        .status(any("problems", "Why it was refused, by field."))
        .status(time("started_at", "When it was started.").renamed_from("began_at"))
        .status(time("ended_at", "When it ended."));
}

/// Warnings of a plan for the response to the submission; `orrery job plan` lists all.
json::array warnings_of(const Plan& plan) {
    constexpr std::size_t max_shown = 20;
    json::array out;
    for (const auto& warning : plan.warnings) {
        if (out.size() == max_shown) {
            out.emplace_back(fmt::format("{} more; orrery job plan lists all of them", plan.warnings.size() - max_shown));
            break;
        }
        out.emplace_back(warning);
    }
    return out;
}

/// Validates a submitted job as a whole. A Job cannot be changed later.
Task<Unit> prepare_job(Context ctx, resource::Draft& draft, const Executors& executors, Membership& membership) {
    if (draft.before != nullptr) {
        if (draft.before->spec != draft.after.spec)
            co_return Error{Code::conflict, fmt::format("job {} was submitted and cannot be changed", draft.after.name),
                            "submit it under another name, or delete it after its end"};
        co_return Unit{};
    }
    CO_TRY(auto problems, co_await missing_files(ctx, executors, draft.after.spec));
    CO_TRY(std::ignore, co_await await_services(ctx, membership, draft.after.spec));
    std::vector<PlanNode> nodes;
    if (draft.resources != nullptr) nodes = nodes_of(*draft.resources);
    CO_TRY(const auto plan,
           plan_submission(draft.after.name, draft.after.spec,
                           {nodes, executors, &membership,
                            draft.resources != nullptr ? secret_keys_in(*draft.resources) : SecretKeys{}, std::move(problems)}));
    draft.after.status = json::object{{"uid", random_id()},
                                      {"context", ctx.id()},
                                      {"submitted_by", ctx.actor()},
                                      {"state", "planned"},
                                      {"digest", plan.digest},
                                      {"nodes", plan.hosts.size()},
                                      {"tasks", json::object{{"total", plan.tasks}, {"pending", plan.tasks}}},
                                      {"progress", fmt::format("0/{}", plan.tasks)}};
    if (!plan.warnings.empty()) draft.once["warnings"] = warnings_of(plan);
    co_return Unit{};
}

Result<Unit> check_job_removal(const resource::Removal& removal) {
    const auto state = text_at(removal.object.status, "state");
    if (const auto known = job_state_named(state); state == "refused" || (known && is_terminal(*known))) return Unit{};
    return Error{Code::conflict, fmt::format("job {} is {}", removal.object.name, state), "cancel it first"};
}

} // namespace

resource::Kind job_kind(const Executors& executors, Membership& membership) {
    using namespace resource;
    Kind job("Job", "jobs", "A graph of tasks over nodes. It runs once; its record is kept until it is deleted.");
    add_job_spec(job);
    add_job_status(job);
    job.column("NAME", "name")
        .column("STATE", "status.state")
        .column("PROGRESS", "status.progress")
        .column("NODES", "status.nodes")
        .column("MESSAGE", "status.message")
        .column("AGE", "age")
        .wide_column("DIGEST", "status.digest")
        .wide_column("CONTEXT", "status.context")
        .wide_column("DESCRIPTION", "spec.description")
        .also_called({"jo"})
        .example(R"(kind: Job
name: ntp
spec:
  description: time on all nodes
  tasks:
    - name: install
      on: {labels: role}
      run: apt-get install -y chrony
    - name: server
      on: time
      after: install
      run: systemctl enable --now chrony
      provides: ntp
    - name: clients
      on: compute
      wait: {service: ntp, count: 2, deadline: 10m}
      with: {servers: "${service.ntp.addresses}"}
      run: set-ntp-servers ${with.servers}
)");
    job.remedy_if_exists("submit it under another name (orrery job submit --name NAME), or delete the job after its end");
    job.migrate([](json::object& spec, json::object&) { migrate_job_spec(spec); });
    job.prepare(
        [&executors, &membership](Context ctx, Draft& draft) { return prepare_job(std::move(ctx), draft, executors, membership); });
    job.before_remove([](Removal& removal) { return check_job_removal(removal); });
    return job;
}

resource::Kind rolling_rule_kind() {
    using namespace resource;
    Kind rule("RollingRule", "rollingrules",
              "The number of nodes of a role that all jobs together may change at once. It is named after the role; \"default\" "
              "applies to roles without one.");
    rule.spec(integer("limit", "Nodes at once. 0: none, ever.").between(0, 100'000).required())
        .spec(list("after", "Roles whose nodes must be complete first, in the same job.", text("role", "A role.").between(1, 128)))
        .spec(
            boolean("paused", "Set by an operator to start no more changes; nothing else sets or clears it.").default_value(false))
        .spec(text("reason", "Why it is paused.").format(Format::one_line).between(0, 256))
        .column("NAME", "name")
        .column("LIMIT", "spec.limit")
        .column("AFTER", "spec.after")
        .column("PAUSED", "spec.paused")
        .column("AGE", "age")
        .example(R"(kind: RollingRule
name: compute
spec:
  limit: 3
  after: [controller]
)");
    return rule;
}

} // namespace orrery::jobs
