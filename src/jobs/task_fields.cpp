#include "jobs/task_fields.h"

/// The fields of a job's spec as tables, for OpenAPI and `explain`. A test compares them with what `job_file.cpp` reads.
namespace orrery::jobs {

namespace {

using namespace resource;

/// One, or a list of them.
Field several(std::string name, std::string doc, std::vector<Field> forms) {
    auto item = any(name, "One of them.").forms(forms);
    auto all = std::move(forms);
    all.push_back(list(name, "Several.", std::move(item)));
    return any(std::move(name), std::move(doc)).forms(std::move(all));
}

Field names(std::string name, std::string doc) { return several(std::move(name), std::move(doc), {text("name", "A name.")}); }

Field share(std::string name, std::string doc) {
    return any(std::move(name), std::move(doc)).forms({integer("number", "A number."), text("share", "A share, as in 10%.")});
}

Field service_fields(Field object) {
    return std::move(object)
        .with(text("service", "The service's name; NAME:TAG for one of its tags.").required())
        .with(text("tag", "Only instances that have this tag."));
}

Field run_field(std::string name, std::string doc) {
    return any(std::move(name), std::move(doc))
        .forms(
            {text("script", "A script, run over SSH on the task's node."),
             list("blocks", "Blocks, applied over SSH.", any("block", "One.")),
             map("executor", "One executor and its body, as in {ansible: {playbook: site.yml}}: ssh, ansible, puppet, http, local.",
                 any("body", "As the executor wants it; see docs/executors.md."))
                 .between(1, 1)});
}

Field batch_field() {
    return any("batch", "Run on some nodes at a time.")
        .forms({integer("number", "Nodes at a time."), text("share", "A share of the nodes, such as 10%."),
                object("batch", "In detail.")
                    .with(integer("canary", "The size of a first wave, whose failure stops the rest.").between(0, 100'000))
                    .with(several("serial", "The sizes of the batches, one after the other; the last is repeated.",
                                  {integer("number", "A number."), text("share", "A share, as in 10%.")}))
                    .with(share("max_fail", "The failures after which nothing more is started."))
                    .with(duration("hold", "Time between two batches."))
                    .with(text("through", "A later task up to which a node belongs to its batch."))});
}

} // namespace

static Field barrier_timing(Field barrier) {
    return std::move(barrier)
        .with(duration("hold", "For how long without a break."))
        .with(duration("deadline", "How long to wait at most."))
        .with(text("on_timeout", "What happens then.").one_of({"fail", "ask", "continue"}).default_value("fail"));
}

static Field barrier_field(std::string name, std::string doc) {
    auto service =
        service_fields(object("barrier", "In detail."))
            .with(text("state", "What its instances must be.").one_of({"registered", "usable", "passing"}).default_value("passing"))
            .with(any("count", "How many of them.")
                      .forms({integer("number", "A number."), text("expression", "all, or hosts(ROLE).")}));
    auto records = object("records", "Records of a DNS name instead of a service.")
                       .with(text("dns", "The name.").required())
                       .with(text("type", "Their type.").one_of({"A", "AAAA", "SRV"}).default_value("A"))
                       .with(integer("count", "How many of them.").between(1, 1'000'000));
    return several(std::move(name), std::move(doc),
                   {text("service", "A service's name, as in mysql or glance:lb."), barrier_timing(std::move(service)),
                    barrier_timing(std::move(records))});
}

std::vector<Field> approve_forms() {
    return {
        boolean("approve", "By any operator."),
        object("approve", "With a condition.").with(boolean("by_another", "Not by the user who submitted the job.").required())};
}

Field task_fields() {
    return object("task", "A task.")
        .with(text("name", "Unique within the job.").required().between(1, 128))
        .with(
            any("on", "The nodes it runs on; without it, it runs on the server.")
                .forms({text("role", "Nodes whose label `role` is this."), list("nodes", "Nodes by name.", text("node", "A name.")),
                        object("on", "In detail.")
                            .with(text("role", "Nodes whose label `role` is this."))
                            .with(text("labels", "A label selector, as in role=db,zone!=b."))
                            .with(names("nodes", "Nodes by name."))}))
        .with(boolean("together", "Run once for all nodes, not once for each."))
        .with(boolean("same_host", "The tasks in `after` are waited for on the same node only."))
        .with(several("after", "Tasks that must have succeeded before.",
                      {text("task", "A task's name."), object("after", "In detail.")
                                                           .with(text("task", "A task's name.").required())
                                                           .with(boolean("same_host", "Wait for it on the same node only."))}))
        .with(barrier_field("wait", "Services that must be there before."))
        .with(run_field("run", "What it does; without it, it only waits."))
        .with(run_field("check", "Runs first: where it succeeds, there is nothing to do, and `run` is skipped."))
        .with(run_field("verify", "Runs after `run`: the task succeeds only if `verify` does."))
        .with(run_field("undo", "Takes it back, when the job is cancelled."))
        .with(map("with", "Values for `run`; ${...} is bound when the task starts.", any("value", "Any value.")))
        .with(map("env", "Variables of the environment.", text("value", "A value.")))
        .with(names("artefacts", "Absolute paths of files to fetch from its nodes when it has ended."))
        .with(any("retries", "How often it is tried again when it fails.")
                  .forms({integer("times", "The number of retries.").between(0, 100),
                          object("retries", "In detail.")
                              .with(integer("times", "The number of retries.").between(0, 100))
                              .with(duration("delay", "The delay before the first retry; it doubles with each."))
                              .with(duration("max_delay", "The maximum delay."))
                              .with(names("on", "Kinds of failure: connect, lost, timeout, failed, no_space."))}))
        .with(duration("timeout", "How long an attempt may take."))
        .with(text("lock", "Tasks with the same lock run one at a time, across all jobs.").between(0, 128))
        .with(integer("slots", "How many of the job's slots an attempt takes.").between(1, 100'000))
        .with(batch_field())
        .with(several(
            "rerun_on", "Services whose changes make it run again after the job has converged.",
            {text("service", "A service's name."), service_fields(object("rerun_on", "In detail."))
                                                       .with(duration("debounce", "Wait until nothing has changed for this time."))
                                                       .with(duration("min_interval", "Time from one run to the next at least."))}))
        .with(any("approve", "Wait for approval. {by_another: true}: by another user than the one who submitted the job.")
                  .forms(approve_forms()))
        .with(boolean("idempotent", "It may run again where the outcome of an attempt is unknown."))
        .with(any("rolling", "Obey the RollingRule of the node's role.")
                  .forms({boolean("rolling", "For this task."), text("through", "Up to this later task.")}))
        .with(several(
            "provides", "Services that it makes available on its nodes.",
            {text("service", "A service's name, as in mysql or glance:real."), service_fields(object("provides", "In detail."))}));
}

Field tasks_field() {
    return any("tasks", "The tasks: a list, or a map from names to tasks.")
        .forms({list("tasks", "Tasks.", task_fields()),
                map("tasks", "Tasks by name.", any("task", "As in the list, without its name."))});
}

Field limits_field() {
    auto limits =
        object("limits", "In detail.")
            .with(integer("slots", "Attempts in all.").between(1, 1'000'000))
            .with(integer("per_host", "Attempts on one node.").between(1, 1'000))
            .with(map("per_role", "Attempts on nodes of a role.", integer("number", "Attempts at once.").between(0, 100'000)));
    return any("limits", "How much of it may run at once.").forms({std::move(limits)});
}

Field done_field() {
    auto barriers = barrier_field("done", "");
    auto forms = barriers.forms();
    forms.push_back(object("done", "In detail.")
                        .with(barrier_field("services", "The services."))
                        .with(duration("hold", "For how long without a break.")));
    return any("done", "What must hold for the job to be done: services, and how many instances of them.").forms(std::move(forms));
}

} // namespace orrery::jobs
