#include "cli/command_options.h"
#include "cli/commands.h"

/// The table of the commands for resources of any kind.
namespace orrery::cli {

namespace {

/// From files to the server.
std::vector<Command> apply_table() {
    return {
        {.path = "apply",
         .summary = "Create or update resources from files",
         .about =
             "Reads YAML or JSON with one or more documents. Resources that others refer to are written first. Continues after\n"
             "an error of one document; stops at an error that would stop all, such as a lost connection. A document with a\n"
             "`revision`, as \"get -o yaml\" prints it, is rejected if the resource changed since that revision.",
         .arguments = {},
         .options = {files("a file, a folder (all *.yaml, *.yml and *.json in it) or - for standard input; repeatable"), dry_run(),
                     reason()},
         .examples = {{"orrery apply -f site/", "everything in a folder"},
                      {"orrery apply -f nodes.yaml --reason 'rack 12 arrived'", "with a reason for the audit trail"},
                      {"orrery get node n1 -o yaml | sed 's/port: 22$/port: 2222/' | orrery apply -f -", "change one field"}},
         .run = run_apply},
        {.path = "diff",
         .summary = "Show what apply would change",
         .about = "The exit code is 10 if there are differences, 0 if there are none.",
         .arguments = {},
         .options = {files("a file, a folder or - for standard input; repeatable")},
         .examples = {{"orrery diff -f site/", "compare a folder with the server"}},
         .run = run_diff},
    };
}

/// Resources as they are.
std::vector<Command> get_table() {
    return {
        {.path = "get",
         .summary = "List resources, or show some by name",
         .about =
             "Tables have at most 1000 rows unless --all or --limit is given; yaml, json and name print everything. --sort reads\n"
             "all resources before --limit applies.",
         .arguments = {{"KIND", "a kind (\"orrery kinds\" lists them), or KIND/NAME", Count::one, Means::kind},
                       {"NAME", "names (default: all resources of the kind)", Count::any, Means::name}},
         .options = {output({"table", "wide", "yaml", "json", "name"}),
                     labels(),
                     {"--field",
                      "FIELD=VALUE",
                      "only resources with this value of an indexed field; repeatable",
                      {},
                      Means::anything,
                      true},
                     {"--sort", "PATH", "sort by a field such as spec.address, name or age; -PATH sorts in reverse"},
                     {"--limit", "N", "show at most N resources"},
                     {"--all", "", "show all resources"},
                     {"-w,--watch", "", "show changes as they happen, like \"orrery watch\""},
                     {"--ignore-not-found", "", "a name that does not exist is not an error"}},
         .examples = {{"orrery get nodes", "a table of all nodes"},
                      {"orrery get nodes -l role=compute --sort -age -o wide", "with more columns, the oldest first"},
                      {"orrery get node n1 -o yaml", "one node, to edit and apply"}},
         .run = run_get},
        {.path = "describe",
         .summary = "Show all fields of a resource and its recent events",
         .about = {},
         .arguments = {{"KIND", "a kind, or KIND/NAME", Count::one, Means::kind}, {"NAME", "names", Count::any, Means::name}},
         .options = {},
         .examples = {{"orrery describe node n1", "a node"}, {"orrery describe node/n1", "the same"}},
         .run = run_describe},
    };
}

/// Single resources.
std::vector<Command> change_table() {
    return {
        {.path = "edit",
         .summary = "Edit a resource in your editor",
         .about =
             "Opens kind, name, labels and spec as YAML in $VISUAL, $EDITOR or vi, and replaces exactly the revision that it\n"
             "read. If the server rejects the text, or the resource changed meanwhile, the editor opens again with the errors as\n"
             "comments. Save the file unchanged to cancel.",
         .arguments = {{"KIND", "a kind, or KIND/NAME", Count::one, Means::kind},
                       {"NAME", "the name of the resource", Count::optional, Means::name}},
         .options = {dry_run(), reason()},
         .examples = {{"orrery edit node/n1", "with $EDITOR"},
                      {"EDITOR='code --wait' orrery edit node n1 --reason 'new port'", "with another editor, and a reason"}},
         .run = run_edit},
        {.path = "delete",
         .summary = "Delete resources",
         .about =
             "A resource that others refer to is not deleted; the error names them. With files, resources that refer to others\n"
             "are deleted first.",
         .arguments = {{"RESOURCE", "a kind and names, or KIND/NAME", Count::any, Means::kind}},
         .options = {files("delete the resources in these files; repeatable"),
                     labels(),
                     {"--yes", "", "with -l: do not ask for confirmation"},
                     {"--ignore-not-found", "", "a resource that does not exist is not an error"},
                     dry_run(),
                     reason()},
         .examples = {{"orrery delete node n1 n2 --reason 'sold'", "two nodes"},
                      {"orrery delete node/n1 secret/site-key", "resources of different kinds"},
                      {"orrery delete -f site/", "all resources in a folder"},
                      {"orrery delete nodes -l rack=12", "all nodes with a label, after confirmation"}},
         .run = run_delete},
    };
}

/// Changes.
std::vector<Command> history_table() {
    return {
        {.path = "watch",
         .summary = "Show changes as they happen",
         .about =
             "On a terminal: a table that updates itself; otherwise one line for each change. Reconnects after a lost connection\n"
             "without missing a change. Ctrl-C stops it.",
         .arguments = {{"KIND", "a kind, or KIND/NAME", Count::one, Means::kind},
                       {"NAME", "only this resource", Count::optional, Means::name}},
         .options = {output({"table", "wide", "json", "name"}), labels(), count()},
         .examples = {{"orrery watch nodes", "all nodes"},
                      {"orrery watch node n1 -o json | jq .object.status", "one node, for a script"}},
         .run = run_watch},
        {.path = "events",
         .summary = "Show the audit trail: action, subject, actor and reason of each change",
         .about = "Shows the newest 50 events, the oldest first, unless --since, --limit or --all is given.",
         .arguments = {},
         .options = {{"--subject", "KIND/NAME", "only events of this resource"},
                     {"--context", "ID", "only events with this request id"},
                     {"--actor", "USER", "only events caused by this user"},
                     {"--since", "TIME", "from this time on: an age (1h, 7d) or a time (2026-11-16T04:42:52Z)"},
                     {"--until", "TIME", "up to this time, in the same form"},
                     {"-F,--follow", "", "continue with new events"},
                     {"--limit", "N", "show at most N events"},
                     {"--all", "", "show all events"},
                     count(),
                     output({"table", "wide", "yaml", "json", "name"})},
         .examples = {{"orrery events --subject node/n1 --since 1d", "events of a node since yesterday"},
                      {"orrery events --follow", "new events as they happen"}},
         .run = run_events},
    };
}

/// Secrets and kinds.
std::vector<Command> kind_table() {
    return {
        {.path = "secret create",
         .summary = "Create a Secret from files",
         .about =
             "Values come from files, never from the command line, which other users of the computer can read. The newline at\n"
             "the end of a one-line file is removed; other files are stored unchanged.",
         .arguments = {{"SECRET", "the name of the Secret"}},
         .options = {{"--from-file",
                      "KEY=FILE",
                      "a key and the file with its value, - for standard input; repeatable",
                      {},
                      Means::file,
                      true},
                     {"--description", "TEXT", "what the Secret is for"},
                     {"--replace", "", "replace an existing Secret and all its values"},
                     reason(),
                     dry_run()},
         .examples = {{"orrery secret create site-key --from-file private_key=$HOME/.ssh/id_ed25519", "an SSH key"},
                      {"pass show api | orrery secret create api --from-file token=-", "from another program"}},
         .run = run_secret_create},
        {.path = "kinds",
         .summary = "List the kinds of resources on this server",
         .about = {},
         .arguments = {},
         .options = {output({"table", "json"})},
         .examples = {{"orrery kinds", "all kinds"}},
         .run = run_kinds},
        {.path = "explain",
         .summary = "Explain a kind: its fields, their meaning, an example",
         .about = {},
         .arguments = {{"KIND", "a kind, or a field as in node.spec.ssh", Count::one, Means::kind}},
         .options = {},
         .examples = {{"orrery explain node", "all fields of a node"}, {"orrery explain node.spec.ssh", "some of them"}},
         .run = run_explain},
    };
}

} // namespace

std::vector<Command> resource_commands() {
    return concatenated({apply_table(), get_table(), change_table(), history_table(), kind_table()});
}

} // namespace orrery::cli
