#include "cli/command_options.h"
#include "cli/commands.h"

/// The table of the commands for load balancing.
namespace orrery::cli {

namespace {

Argument load_balancer() { return {"NAME", "a load balancer, or its domain name"}; }

/// Decisions.
std::vector<Command> decision_table() {
    return {
        {.path = "gslb why",
         .summary = "Explain the answer of a load balancer",
         .about =
             "Shows the answer for a client, its pool, the health of every pool and member, and which changes are withheld and\n"
             "until when. --at evaluates a past decision again from its record.",
         .arguments = {load_balancer()},
         .options = {{"--client", "ADDRESS", "the answer for this client address or network"},
                     {"--at", "TIME", "at a past time: an age (2h) or a time"},
                     output({"table", "yaml", "json"})},
         .examples = {{"orrery gslb why www.gslb.example", "now"},
                      {"orrery gslb why www --client 198.51.100.0/24 --at 2h", "for one office, two hours ago"}},
         .run = run_gslb_why},
        {.path = "gslb whatif",
         .summary = "Predict the answer of a load balancer after a change",
         .about =
             "Shows the share of clients of each site and whether the members have the capacity for it. The exit code is 0 only\n"
             "if the change is safe.",
         .arguments = {load_balancer()},
         .options = {{"--drain", "POOL", "a pool or member gets no new clients; repeatable", {}, Means::anything, true},
                     {"--down", "MEMBER", "a member fails; repeatable", {}, Means::anything, true},
                     output({"table", "yaml", "json"})},
         .examples = {{"orrery gslb whatif www --drain eu", "before maintenance of a site"},
                      {"orrery gslb whatif www --down eu-1 --down eu-2", "if two members fail"}},
         .run = run_gslb_whatif},
        {.path = "gslb watch",
         .summary = "Show decisions as they are made",
         .about = "Shows every change of an answer and every change that is withheld, with its trigger.",
         .arguments = {{"NAME", "only this load balancer", Count::optional}},
         .options = {count(), output({"table", "yaml", "json"})},
         .examples = {{"orrery gslb watch", "all load balancers"}},
         .run = run_gslb_watch},
    };
}

/// Vantage points, failback, import.
std::vector<Command> gslb_operation_table() {
    return {
        {.path = "gslb vantages",
         .summary = "List vantage points and whether each counts towards quorum",
         .about = "Vantage points are this server, the servers that share its store, nodes that probe over SSH, and checkers. The\n"
                  "message of a quarantined vantage point is the cause.",
         .arguments = {},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery gslb vantages", "all vantage points"}},
         .run = run_gslb_vantages},
        {.path = "gslb failback",
         .summary = "Let clients return to the pools that they left",
         .about = "For load balancers whose failback is manual or waits for a time.",
         .arguments = {load_balancer()},
         .options = {},
         .examples = {{"orrery gslb failback www", "after a repair"}},
         .run = run_gslb_failback},
        {.path = "gslb import",
         .summary = "Convert the configuration of another load balancer to resources",
         .about =
             "gdnsd: the config file, then zone files named after their zones. powerdns: a zone file with LUA records. route53:\n"
             "the JSON output of list-resource-record-sets, then that of list-health-checks. Prints resources to standard output\n"
             "and warnings about everything that has no equivalent to standard error. Contacts no server; review the output\n"
             "before you apply it.",
         .arguments = {{"FORMAT", "the format of the files", Count::one, Means::anything, {"gdnsd", "powerdns", "route53"}},
                       {"FILE", "files", Count::some, Means::file}},
         .options = {{"--origin", "ZONE", "powerdns: the zone (default: the name of the file)"}},
         .examples = {{"orrery gslb import gdnsd /etc/gdnsd/config /etc/gdnsd/zones/example.org > site.yaml", "then apply it"}},
         .run = run_gslb_import},
    };
}

} // namespace

std::vector<Command> gslb_commands() { return concatenated({decision_table(), gslb_operation_table()}); }

} // namespace orrery::cli
