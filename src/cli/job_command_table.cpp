#include "cli/command_options.h"
#include "cli/commands.h"

/// The table of the commands for jobs.
namespace orrery::cli {

namespace {

Argument job() { return {"JOB", "the name of the job", Count::one, Means::job}; }
Argument task() { return {"TASK", "the task, as in mysql@db-1", Count::one, Means::task}; }
Option structured() { return output({"table", "yaml", "json"}); }

/// Start a job.
std::vector<Command> submit_table() {
    return {
        {.path = "job submit",
         .summary = "Submit a job",
         .about = "The server checks the whole job first and reports all errors at once; a job with errors does not start.",
         .arguments = {},
         .options = {files("a file with one document of kind Job, or - for standard input"),
                     {"--name", "NAME", "the name of the job, instead of the name in the file"},
                     {"--wait", "", "watch the job until it is done; the exit code reports its result"},
                     dry_run(),
                     reason()},
         .examples = {{"orrery job submit -f bring-up.yaml --wait", "submit and watch"},
                      {"orrery job submit -f upgrade.yaml --name upgrade-2 --reason 'CVE-2026-1'", "again, with a reason"}},
         .run = run_job_submit},
        {.path = "job plan",
         .summary = "Show what a job would do, without submitting it",
         .about =
             "Shows which task runs on which node, the dynamic values as of now, and a prediction of the duration: the scheduler\n"
             "runs on a virtual clock with the durations of earlier runs.",
         .arguments = {},
         .options = {files("a file with one document of kind Job, or - for standard input"),
                     {"--name", "NAME", "the name of the job, instead of the name in the file"},
                     {"--template", "NAME", "plan a run of this JobTemplate instead of a file"},
                     parameter(),
                     {"--simulate", "", "show the predicted start and end of each task"},
                     {"--preview", "", "ask each task what it would change (dry run on the nodes)"},
                     {"--latency", "DURATION", "assumed time from the end of a task until its service is visible (default: 1s)"},
                     {"--unknown", "DURATION", "assumed duration of tasks that never ran (default: 10s)"},
                     structured()},
         .examples = {{"orrery job plan -f bring-up.yaml --simulate", "makespan and critical path"}},
         .run = run_job_plan},
    };
}

/// Follow a job.
std::vector<Command> progress_table() {
    return {
        {.path = "job list",
         .summary = "List jobs",
         .about = {},
         .arguments = {},
         .options = {{"--state",
                      "STATE",
                      "only jobs in this state",
                      {"planned", "running", "converged", "succeeded", "failed", "cancelling", "cancelled", "undoing", "undone",
                       "undo_failed", "refused"}},
                     output({"table", "wide", "yaml", "json", "name"})},
         .examples = {{"orrery job list --state undo_failed", "jobs whose undo needs attention"}},
         .run = run_job_list},
        {.path = "job show",
         .summary = "Show a job and its tasks",
         .about = {},
         .arguments = {job()},
         .options = {{"--state",
                      "STATE",
                      "only tasks in this state",
                      {"pending", "waiting", "ready", "running", "succeeded", "failed", "lost", "cancelled", "skipped", "undone",
                       "undo_failed"}},
                     {"--task", "NAME", "only tasks with this name"},
                     {"--node", "NAME", "only tasks on this node"},
                     structured()},
         .examples = {{"orrery job show bring-up --state failed", "the tasks that failed"}},
         .run = run_job_show},
        {.path = "job graph",
         .summary = "Draw the graph of a job",
         .about = {},
         .arguments = {job()},
         .options = {output({"dot", "svg", "json"})},
         .examples = {{"orrery job graph bring-up -o svg > bring-up.svg", "a picture"},
                      {"orrery job graph bring-up | dot -Tpdf > bring-up.pdf", "with Graphviz"}},
         .run = run_job_graph},
        {.path = "job watch",
         .summary = "Watch a job until it is done",
         .about =
             "Shows running tasks, the message of each waiting task, and the critical path. Stopping the command does not stop\n"
             "the job.",
         .arguments = {job()},
         .options = {},
         .examples = {{"orrery job watch bring-up", "live"}},
         .run = run_job_watch},
        {.path = "job wait",
         .summary = "Wait until a job is done, and list what is missing",
         .about = "The exit code is 0 if the job succeeded or converged, 1 otherwise.",
         .arguments = {job()},
         .options = {{"--now", "", "do not wait; list what is missing now"}, structured()},
         .examples = {{"orrery job wait bring-up", "in a script"}, {"orrery job wait bring-up --now", "what is missing"}},
         .run = run_job_wait},
    };
}

/// Inspect a task.
std::vector<Command> task_table() {
    return {
        {.path = "job logs",
         .summary = "Show the output of a task",
         .about = {},
         .arguments = {job(), task()},
         .options = {{"-f,--follow", "", "continue until the attempt ends"},
                     {"--attempt", "N", "an earlier attempt"},
                     {"--steps", "", "print one line for each step of a playbook or manifest instead of the text"},
                     {"--phase", "PHASE", "another phase of the attempt", {"check", "run", "verify", "undo"}}},
         .examples = {{"orrery job logs bring-up mysql@db-1 -f", "live"}},
         .run = run_job_logs},
        {.path = "job artefacts",
         .summary = "List or save the files that a task left on its nodes",
         .about =
             "The server fetches the files in `artefacts` of a task when an attempt ends, whether or not it succeeded, and keeps\n"
             "those of the last attempts. --save writes them to FOLDER/NODE/PATH.",
         .arguments = {job(), task()},
         .options = {{"--attempt", "N", "an earlier attempt"}, {"--save", "FOLDER", "save the files in this folder"}, structured()},
         .examples = {{"orrery job artefacts bring-up mysql@db-1", "list"},
                      {"orrery job artefacts bring-up mysql@db-1 --save logs", "save"}},
         .run = run_job_artefacts},
        {.path = "job why",
         .summary = "Explain the state of a task",
         .about = "Shows the condition that the task waits for, the instances of the service, who holds the slot or lock that it\n"
                  "needs, and the tasks that block it.",
         .arguments = {job(), task()},
         .options = {structured()},
         .examples = {{"orrery job why bring-up keystone@oc-1", "why a task waits"}},
         .run = run_job_why},
    };
}

/// Control a job.
std::vector<Command> control_table() {
    return {
        {.path = "job approve",
         .summary = "Approve the plan of a job, or a task that waits for approval",
         .about = "The digest names the plan that you reviewed; the server approves no other plan.",
         .arguments = {job(), {"TASK", "a task that waits for approval", Count::optional, Means::task}},
         .options = {{"--digest", "DIGEST", "the digest of the plan, as submit, plan and show print it"}, reason()},
         .examples = {{"orrery job approve upgrade --digest 1f0c22d09b3a4c55", "the whole plan"}},
         .run = run_job_approve},
        {.path = "job pause",
         .summary = "Pause a job: start no further task",
         .about = {},
         .arguments = {job()},
         .options = {reason()},
         .examples = {{"orrery job pause upgrade --reason 'users complain'", "running tasks continue"}},
         .run = run_job_pause},
        {.path = "job resume",
         .summary = "Resume a paused job",
         .about = {},
         .arguments = {job()},
         .options = {reason()},
         .examples = {{"orrery job resume upgrade", "start further tasks"}},
         .run = run_job_resume},
        {.path = "job cancel",
         .summary = "Cancel a job: kill running tasks and undo finished ones",
         .about = {},
         .arguments = {job()},
         .options = {{"--no-undo", "", "do not undo finished tasks"}, reason()},
         .examples = {{"orrery job cancel upgrade", "with undo, in reverse order"}},
         .run = run_job_cancel},
        {.path = "job undo",
         .summary = "Undo a job that is done, such as a failed one",
         .about = "Runs `undo` of every task that ran, in reverse order. After an undo that failed, runs only those that are not\n"
                  "undone yet.",
         .arguments = {job()},
         .options = {reason()},
         .examples = {{"orrery job undo upgrade", "revert a failed upgrade"}},
         .run = run_job_undo},
        {.path = "job retry",
         .summary = "Run failed tasks again, and the tasks that were skipped because of them",
         .about = {},
         .arguments = {job(), {"TASK", "one task (default: all that failed)", Count::optional, Means::task}},
         .options = {reason()},
         .examples = {{"orrery job retry bring-up", "only failed and skipped tasks"}},
         .run = run_job_retry},
    };
}

} // namespace

std::vector<Command> job_commands() { return concatenated({submit_table(), progress_table(), task_table(), control_table()}); }

} // namespace orrery::cli
