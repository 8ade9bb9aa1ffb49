#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/render.h"
#include "cli/session.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>

#include <ostream>

/// Machines, and the preview of plans.
namespace orrery::cli {

namespace {

constexpr std::size_t max_import_file = 4U << 20U;
/// Machines of one line; -o json has all.
constexpr std::size_t max_named_machines = 20;

bool prints_document(Invocation& invocation, const json::value& value) {
    const auto form = invocation.text("output", "table");
    if (form == "json") invocation.streams.out << to_pretty_json(value) << '\n';
    if (form == "yaml") invocation.streams.out << to_yaml(value);
    return form == "json" || form == "yaml";
}

const json::array& fleet_list(const json::value& value, std::string_view path) {
    static const json::array none;
    const auto* found = at_path(value, path);
    return found != nullptr && found->is_array() ? found->get_array() : none;
}

std::string fleet_text(const json::value& value, std::string_view path) {
    const auto* found = at_path(value, path);
    return found == nullptr ? std::string() : printable(value_text(*found));
}

/// "a, b, c and 7 more"
std::string machine_names(const json::array& names) {
    std::string out;
    std::size_t shown = 0;
    for (const auto& name : names) {
        if (shown == max_named_machines) return fmt::format("{} and {} more", out, names.size() - shown);
        out += fmt::format("{}{}", shown++ == 0 ? "" : ", ", printable(value_text(name)));
    }
    return out;
}

void print_role(Invocation& invocation, const json::value& role) {
    auto& out = invocation.streams.out;
    const auto image = fleet_text(role, "image");
    out << fmt::format("\nrole {} (version {}, flavor {}{}): {} of {} machines\n", fleet_text(role, "role"),
                       fleet_text(role, "version"), fleet_text(role, "flavor"), image.empty() ? "" : ", image " + image,
                       fleet_text(role, "assigned"), fleet_text(role, "count"));
    const auto& machines = fleet_list(role, "machines");
    if (machines.empty()) return;
    Table table({"MACHINE", "CHANGE", "DOMAIN", "COST", "SURPLUS", "SCARCITY", "BENCHMARK"});
    for (const auto& machine : machines) {
        auto change = fleet_text(machine, "change");
        const auto style = change == "add" ? Style::green : change == "move" ? Style::yellow : Style::plain;
        if (change == "move") change += " from " + fleet_text(machine, "from");
        if (fleet_text(machine, "pinned") == "true") change += " (pinned)";
        table.add({{fleet_text(machine, "machine")},
                   {change, style},
                   {fleet_text(machine, "failure_domain")},
                   {fleet_text(machine, "cost.total")},
                   {fleet_text(machine, "cost.surplus")},
                   {fleet_text(machine, "cost.scarcity")},
                   {fleet_text(machine, "cost.benchmark")}});
    }
    out << table.render(invocation.streams.width, invocation.streams.colour());
}

void print_rejected(std::ostream& out, const json::array& rejected) {
    if (!rejected.empty()) out << "\nrejected:\n";
    for (const auto& group : rejected) {
        out << fmt::format("  {}\n", machine_names(fleet_list(group, "machines")));
        for (const auto& reason : fleet_list(group, "reasons")) {
            const auto role = fleet_text(reason, "role");
            out << fmt::format("    {}{}\n", role.empty() ? "" : "role " + role + ": ", fleet_text(reason, "message"));
        }
    }
}

} // namespace

Result<int> run_fleet_import(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(auto text, read_file(invocation.streams, invocation.text("FILE"), max_import_file));
    auto sent =
        api->call("POST", "/v1/fleet/import" + write_query(invocation), json::value(json::object{{"file", std::move(text)}}));
    if (!sent.ok() && sent.error().code == Code::invalid)
        return std::move(sent).error().within(invocation.text("FILE") == "-" ? "standard input" : invocation.text("FILE"));
    TRY(const auto answer, std::move(sent));
    if (prints_document(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    const bool dry_run = fleet_text(answer.body, "dry_run") == "true";
    for (const auto& machine : fleet_list(answer.body, "machines")) {
        const auto outcome = fleet_text(machine, "outcome");
        if (outcome == "unchanged" && invocation.quiet()) continue;
        const auto other = fleet_text(machine, "name_in_file");
        out << fmt::format("machine/{} {}{}\n", fleet_text(machine, "machine"),
                           paint(outcome, style_of_outcome(outcome), invocation.streams.colour()),
                           other.empty() ? "" : fmt::format(" ({} in the file)", other));
    }
    out << fmt::format("{} created, {} updated, {} unchanged{}\n", fleet_text(answer.body, "created"),
                       fleet_text(answer.body, "updated"), fleet_text(answer.body, "unchanged"),
                       dry_run ? " (dry run: nothing was changed)" : "");
    if (const auto& absent = fleet_list(answer.body, "absent"); !absent.empty())
        out << fmt::format("in the inventory but not in the file: {}\n", machine_names(absent));
    return exit_code::ok;
}

Result<int> run_fleet_flavors(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/fleet/flavor-suggestions"));
    auto& out = invocation.streams.out;
    const auto form = invocation.text("output", "table");
    if (form == "json") {
        out << to_pretty_json(answer.body) << '\n';
        return exit_code::ok;
    }
    if (form == "yaml") { // documents that `apply` reads
        for (bool first = true; const auto& one : fleet_list(answer.body, "flavors")) {
            const auto* spec = at_path(one, "spec");
            out << (std::exchange(first, false) ? "" : "---\n")
                << to_yaml(json::object{
                       {"kind", "Flavor"}, {"name", text_of(one, "name")}, {"spec", spec == nullptr ? json::value() : *spec}});
        }
        return exit_code::ok;
    }
    Table table({"FLAVOR", "CPUS", "MEMORY_MB", "LOCAL_GB", "ARCH", "MACHINES"});
    for (const auto& one : fleet_list(answer.body, "flavors"))
        table.add({{fleet_text(one, "name")},
                   {fleet_text(one, "spec.cpus")},
                   {fleet_text(one, "spec.memory_mb")},
                   {fleet_text(one, "spec.local_gb")},
                   {fleet_text(one, "spec.cpu_arch")},
                   {machine_names(fleet_list(one, "machines"))}});
    if (table.empty())
        out << "every machine has a flavor\n";
    else
        out << table.render(invocation.streams.width, invocation.streams.colour());
    if (const auto& unknown = fleet_list(answer.body, "not_introspected"); !unknown.empty())
        out << fmt::format("not introspected: {}\n", machine_names(unknown));
    return exit_code::ok;
}

Result<int> run_fleet_outliers(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->get("/v1/fleet/outliers"));
    if (prints_document(invocation, answer.body)) return exit_code::ok;
    auto& out = invocation.streams.out;
    Table table({"MACHINE", "VERDICT", "EVIDENCE"});
    for (const auto& one : fleet_list(answer.body, "machines")) {
        const auto verdict = fleet_text(one, "verdict");
        table.add({{fleet_text(one, "machine")},
                   {verdict, verdict == "slow" ? Style::red : Style::yellow},
                   {fleet_text(one, "message")}});
    }
    if (!table.empty()) out << table.render(invocation.streams.width, invocation.streams.colour());
    out << fmt::format("{} machines measured, {} compared, {} deviate\n", fleet_text(answer.body, "measured"),
                       fleet_text(answer.body, "compared"), table.size());
    return exit_code::ok;
}

Result<int> run_plan_preview(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    TRY(const auto answer, api->call("POST", fmt::format("/v1/plans/{}/preview", net::percent_encode(invocation.text("PLAN")))));
    const auto& body = answer.body;
    const bool feasible = fleet_text(body, "feasible") == "true";
    const int code = feasible ? exit_code::ok : exit_code::other;
    if (prints_document(invocation, body)) return code;
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    if (feasible)
        out << paint(fleet_text(body, "message"), Style::green, colour) << '\n';
    else
        out << paint(fmt::format("plan {} is infeasible", fleet_text(body, "plan")), Style::red, colour) << '\n';
    for (const auto& problem : fleet_list(body, "problems")) out << fmt::format("  {}\n", printable(value_text(problem)));
    for (const auto& warning : fleet_list(body, "warnings")) out << fmt::format("warning: {}\n", printable(value_text(warning)));
    for (const auto& role : fleet_list(body, "roles")) print_role(invocation, role);
    for (const auto& machine : fleet_list(body, "released"))
        out << fmt::format("\nreleased: {} from role {}\n", fleet_text(machine, "machine"), fleet_text(machine, "role"));
    if (const auto& spare = fleet_list(body, "spare"); !spare.empty()) out << fmt::format("\nspare: {}\n", machine_names(spare));
    print_rejected(out, fleet_list(body, "rejected"));
    out << fmt::format("\ndigest {}\n", fleet_text(body, "digest"));
    return code;
}

std::vector<Command> fleet_commands() {
    return {
        {.path = "fleet import",
         .summary = "Import machines from a file: instackenv JSON or CSV",
         .about = "A machine is known by the address of its BMC, so that the same file can be imported again. Passwords go into\n"
                  "Secrets. All errors of the file are reported at once, and then nothing is changed. Machines that the file does\n"
                  "not have are reported and stay.",
         .arguments = {{"FILE", "the file, - for standard input", Count::one, Means::file}},
         .options = {dry_run(), reason(), output({"table", "yaml", "json"})},
         .examples = {{"orrery fleet import instackenv.json --dry-run", "check the file"},
                      {"orrery fleet import rack-12.csv --reason 'rack 12 arrived'",
                       "lines of pm_type,pm_addr,pm_user,pm_password,mac"}},
         .run = run_fleet_import},
        {.path = "fleet flavors",
         .summary = "Suggest flavors for hardware that no flavor describes",
         .about = {},
         .arguments = {},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery fleet flavors", "list them"},
                      {"orrery fleet flavors -o yaml | orrery apply -f -", "create them all"}},
         .run = run_fleet_flavors},
        {.path = "fleet outliers",
         .summary = "List machines whose benchmarks deviate from those of identical machines",
         .about = "Compares the newest benchmark of each machine with the median of its hardware class. Machines that are not\n"
                  "listed are normal, or there are fewer than three of their class.",
         .arguments = {},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery fleet outliers", "slow machines, with the evidence"}},
         .run = run_fleet_outliers},
        {.path = "plan preview",
         .summary = "Preview a plan: which machine gets which role, at what cost, and why the others do not",
         .about = "Changes nothing. The exit code is 0 if the plan is feasible, 1 otherwise. The digest covers all inputs: it\n"
                  "changes when one of them does.",
         .arguments = {{"PLAN", "the Plan's name"}},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery plan preview cloud", "machines by role, changes, rejected machines"}},
         .run = run_plan_preview},
    };
}

} // namespace orrery::cli
