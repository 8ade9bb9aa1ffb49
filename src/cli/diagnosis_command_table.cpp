#include "cli/command_options.h"
#include "cli/commands.h"

/// The table of the commands for diagnosis.
namespace orrery::cli {

std::vector<Command> diagnosis_commands() {
    return {
        {.path = "why",
         .summary = "Explain why a resource is in its state, with the evidence",
         .about = "For jobs and their tasks, services, instances, nodes, load balancers, pools, members, plans and the hardware\n"
                  "that plans assign. --at works for load balancers, whose decisions are recorded.",
         .arguments = {{"SUBJECT", "the resource, as KIND/NAME", Argument::Count::one, Means::kind},
                       {"TASK", "for a job: a task, as in mysql@db-1", Argument::Count::optional, Means::task}},
         .options = {{"--task", "TASK", "for a job: a task"},
                     {"--client", "ADDRESS", "for a load balancer: the answer for this client address or network"},
                     {"--at", "TIME", "for a load balancer: at a past time, as an age (2h) or a time"},
                     output({"table", "yaml", "json"})},
         .examples = {{"orrery why service/keystone", "instances, checks, and tasks that wait for the service"},
                      {"orrery why job/bring-up mysql@db-1", "a task"},
                      {"orrery why loadbalancer/www --at 2h", "the answer two hours ago"}},
         .run = run_why},
        {.path = "logs",
         .summary = "Show log lines of the server and events in order of time",
         .about =
             "With --context or --job, also the tasks of the job and their output: everything with the id of the request that\n"
             "submitted the job. The server keeps its last 20,000 log lines in memory.",
         .arguments = {},
         .options = {{"--context", "ID", "only lines with this request id (header X-Request-Id)"},
                     {"--job", "NAME", "only lines with the context of this job", {}, Means::job},
                     {"--since", "TIME", "from this time on: an age (1h, 7d) or a time (2026-11-16T04:42:52Z)"},
                     {"--level", "LEVEL", "only this level and above", {"debug", "info", "warn", "error"}},
                     {"-f,--follow", "", "continue with new lines"},
                     {"--limit", "N", "show the newest N lines (default: 1000, at most 5000)"},
                     output({"table", "json"})},
         .examples = {{"orrery logs --job bring-up", "everything about one job"},
                      {"orrery logs --level warn --since 1h", "warnings and errors of the last hour"}},
         .run = run_logs},
    };
}

} // namespace orrery::cli
