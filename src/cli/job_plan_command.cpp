#include "cli/commands.h"
#include "cli/job_render.h"
#include "cli/render.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

/// job plan: what a job would do.
namespace orrery::cli {

namespace {

/// "web-1,web-2,web-3 and 4 more"
std::string nodes_text(const json::array& names) {
    if (names.empty()) return "(server)";
    std::string out;
    for (std::size_t i = 0; i < names.size() && i < 3; ++i) out += (out.empty() ? "" : ",") + value_text(names[i]);
    return names.size() > 3 ? fmt::format("{} and {} more", out, names.size() - 3) : out;
}

void print_tasks(Invocation& invocation, const json::value& plan) {
    Table table({"TASK", "ON", "AFTER", "WAITS FOR", "RUNS"});
    for (const auto& task : list_at(plan, "tasks")) {
        std::vector<std::string> after, waits;
        for (const auto& edge : list_at(task, "after")) after.push_back(text_of(edge, "task"));
        for (const auto& barrier : list_at(task, "wait")) waits.push_back(text_of(barrier, "barrier"));
        table.add({{printable(text_of(task, "name"))},
                   {printable(nodes_text(list_at(task, "nodes")))},
                   {printable(fmt::format("{}", fmt::join(after, ",")))},
                   {printable(fmt::format("{}", fmt::join(waits, ", ")))},
                   {printable(text_of(task, "executor"))}});
    }
    invocation.streams.out << table.render(invocation.streams.width, invocation.streams.colour());
}

void print_simulation(Invocation& invocation, const json::value& plan, const json::value& simulation) {
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    if (invocation.has("simulate")) {
        Table times({"TASK", "STARTS", "ENDS"});
        for (const auto& task : list_at(simulation, "tasks"))
            times.add(
                {{printable(text_of(task, "name"))}, {milliseconds_text(task, "start_ms")}, {milliseconds_text(task, "end_ms")}});
        out << times.render(invocation.streams.width, colour);
    }
    const auto max_running = shown_at(simulation, "max_running");
    out << fmt::format("predicted: {} after {}, at most {} task{} at once\n", text_of(simulation, "end"),
                       milliseconds_text(simulation, "makespan_ms"), max_running, max_running == "1" ? "" : "s");
    if (const auto& never = list_at(plan, "never_ran"); !never.empty())
        out << fmt::format("  tasks that never ran before: {}; the prediction assumes {} for each\n", never.size(),
                           invocation.text("unknown", "10s"));
    out << "critical path:\n";
    for (const auto& step : list_at(simulation, "critical_path")) {
        const auto message = printable(text_of(step, "message"));
        out << fmt::format("  {:>8} – {:<8} {}{}{}\n", milliseconds_text(step, "start_ms"), milliseconds_text(step, "end_ms"),
                           printable(text_of(step, "task")), message.empty() ? "" : "  (", message.empty() ? "" : message + ")");
    }
    for (const auto& stuck : list_at(simulation, "stuck"))
        out << paint("  never ends: ", Style::red, colour) << printable(value_text(stuck)) << '\n';
}

void print_previews(Invocation& invocation, const json::value& plan) {
    auto& out = invocation.streams.out;
    const bool colour = invocation.streams.colour();
    for (const auto& preview : list_at(plan, "previews")) {
        out << fmt::format("{}: {} {}\n", printable(text_of(preview, "task")), text_of(preview, "change"),
                           printable(text_of(preview, "message")));
        for (const auto& difference : list_at(preview, "differences"))
            out << fmt::format("  {}\n", printable(text_of(difference, "name")))
                << paint("  - " + printable(text_of(difference, "before")), Style::red, colour) << '\n'
                << paint("  + " + printable(text_of(difference, "after")), Style::green, colour) << '\n';
    }
}

std::string plan_query(const Invocation& invocation) {
    std::string out;
    const auto add = [&](std::string_view name, std::string_view value) {
        out += fmt::format("{}{}={}", out.empty() ? "?" : "&", name, net::percent_encode(value));
    };
    if (invocation.has("preview")) add("preview", "true");
    if (invocation.has("latency")) add("latency", invocation.text("latency"));
    if (invocation.has("unknown")) add("unknown", invocation.text("unknown"));
    return out;
}

/// The plan of the file or the template on the command line.
Result<Answer> fetch_plan(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    if (!invocation.has("template")) {
        TRY(const auto document, job_document(invocation));
        auto answer = api->call("POST", "/v1/job-plans" + plan_query(invocation), document.value);
        if (!answer.ok()) return document.about(std::move(answer).error());
        return answer;
    }
    if (invocation.has("file")) return invocation.usage_error("--file and --template exclude each other", "give one of them");
    const auto name = invocation.text("template");
    TRY(auto parameters, template_parameters(invocation, name));
    return api->call("POST", fmt::format("/v1/jobtemplates/{}/plan{}", net::percent_encode(name), plan_query(invocation)),
                     json::object{{"parameters", std::move(parameters)}});
}

} // namespace

Result<int> run_job_plan(Invocation& invocation) {
    TRY(const auto answer, fetch_plan(invocation));
    const auto& plan = answer.body;
    if (print_structured(invocation, plan)) return exit_code::ok;
    auto& out = invocation.streams.out;
    out << fmt::format("plan {} of job {}: {}\n", text_of(plan, "digest"), printable(text_of(plan, "name")),
                       extent_text(shown_at(plan, "total"), shown_at(plan, "nodes")));
    for (const auto& warning : list_at(plan, "warnings"))
        out << paint("warning: ", Style::yellow, invocation.streams.colour()) << printable(value_text(warning)) << '\n';
    print_tasks(invocation, plan);
    if (const auto* values = at_path(plan, "values"); values != nullptr && values->is_object() && !values->get_object().empty()) {
        out << "values as of now:\n";
        for (const auto& [task, value] : values->get_object())
            out << fmt::format("  {}: {}\n", printable(std::string_view(task)), printable(to_json_text(value)));
    }
    if (const auto* simulation = at_path(plan, "simulation")) print_simulation(invocation, plan, *simulation);
    print_previews(invocation, plan);
    return exit_code::ok;
}

} // namespace orrery::cli
