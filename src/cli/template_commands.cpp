#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/job_render.h"
#include "cli/render.h"
#include "core/text.h"
#include "net/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ostream>
#include <utility>

/// JobTemplates: runs and their history.
namespace orrery::cli {

namespace {

std::string template_route(const std::string& name) { return "/v1/jobtemplates/" + net::percent_encode(name); }

std::string declared_type(const json::value& job_template, const std::string& parameter) {
    if (const auto* declared = at_path(job_template, "spec.parameters"); declared != nullptr && declared->is_array())
        for (const auto& one : declared->get_array())
            if (text_of(one, "name") == parameter) return text_of(one, "type");
    return {};
}

Error wrong_parameter(const std::string& name, std::string_view message) {
    Error error{Code::invalid, fmt::format("parameter {} {}", printable(name), message)};
    error.fields.push_back({"parameters." + name, std::string(message)});
    return error;
}

/// A text of the command line converted to the declared type. An unknown parameter stays a text; the server rejects it by name.
Result<json::value> typed_value(const std::string& name, const std::string& type, const std::string& text) {
    const auto *begin = text.data(), *end = text.data() + text.size();
    if (type == "integer") {
        std::int64_t number = 0;
        const auto [stopped, failed] = std::from_chars(begin, end, number);
        if (failed != std::errc{} || stopped != end) return wrong_parameter(name, "must be an integer");
        return json::value(number);
    }
    if (type == "number") {
        double number = 0;
        const auto [stopped, failed] = std::from_chars(begin, end, number);
        if (failed != std::errc{} || stopped != end) return wrong_parameter(name, "must be a number");
        return json::value(number);
    }
    if (type == "boolean") {
        if (text != "true" && text != "false") return wrong_parameter(name, "must be true or false");
        return json::value(text == "true");
    }
    if (type == "list") {
        json::array items;
        for (std::string_view rest(text); !rest.empty();) {
            const auto comma = std::min(rest.find(','), rest.size());
            items.emplace_back(rest.substr(0, comma));
            rest.remove_prefix(std::min(rest.size(), comma + 1));
        }
        return json::value(std::move(items));
    }
    return json::value(text);
}

std::string time_between(const json::value& job, std::string_view from, std::string_view until) {
    const auto *begin = at_path(job, from), *end = at_path(job, until);
    if (begin == nullptr || end == nullptr || !begin->is_string() || !end->is_string()) return {};
    const auto first = from_rfc3339(std::string_view(begin->get_string())),
               last = from_rfc3339(std::string_view(end->get_string()));
    return first.ok() && last.ok() ? to_text(*last - *first) : std::string();
}

/// "role=web at_once=2"
std::string parameters_text(const json::value& job) {
    std::string out;
    if (const auto* values = at_path(job, "spec.parameters"); values != nullptr && values->is_object())
        for (const auto& [name, value] : values->get_object())
            out += fmt::format("{}{}={}", out.empty() ? "" : " ", std::string_view(name), value_text(value));
    return out;
}

} // namespace

Result<json::object> template_parameters(Invocation& invocation, const std::string& job_template) {
    json::object out;
    const auto given = invocation.all("param");
    if (given.empty()) return out;
    TRY(auto* api, invocation.api());
    TRY(const auto read, api->get(template_route(job_template)));
    for (const auto& one : given) {
        const auto equals = one.find('=');
        if (equals == one.npos || equals == 0)
            return invocation.usage_error(fmt::format("\"{}\" is not NAME=VALUE", printable(one)), "write -p NAME=VALUE");
        const auto name = one.substr(0, equals);
        if (out.contains(name)) return wrong_parameter(name, "is given twice");
        TRY(out[name], typed_value(name, declared_type(read.body, name), one.substr(equals + 1)));
    }
    return out;
}

Result<int> run_job_run(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto name = invocation.text("TEMPLATE");
    TRY(auto parameters, template_parameters(invocation, name));
    json::object body{{"parameters", std::move(parameters)}};
    if (invocation.has("reason")) body["reason"] = invocation.text("reason");
    const bool dry_run = invocation.has("dry-run");
    TRY(const auto answer,
        api->call("POST", template_route(name) + "/run" + (dry_run ? "?dry_run=true" : ""), json::value(std::move(body))));
    const auto job = text_of(answer.body, "job");
    print_submission(invocation, job, answer.body);
    if (!invocation.has("wait") || dry_run) return exit_code::ok;
    return follow_to_end(invocation, job);
}

Result<int> run_job_history(Invocation& invocation) {
    TRY(auto* api, invocation.api());
    const auto name = invocation.text("TEMPLATE");
    std::vector<json::value> runs;
    for (std::string after;;) {
        TRY(const auto page, api->get(fmt::format("/v1/jobs?limit=500&template={}{}", net::percent_encode(name), after)));
        if (const auto* items = at_path(page.body, "items"); items != nullptr && items->is_array())
            runs.insert(runs.end(), items->get_array().begin(), items->get_array().end());
        const auto next = text_of(page.body, "continue");
        if (next.empty()) break;
        after = "&continue=" + net::percent_encode(next);
    }
    if (runs.empty()) { // an unknown template is an error
        TRY(std::ignore, api->get(template_route(name)));
    }
    std::sort(runs.begin(), runs.end(), [](const json::value& a, const json::value& b) {
        return std::pair(text_of(a, "created_at"), text_of(a, "name")) > std::pair(text_of(b, "created_at"), text_of(b, "name"));
    });
    const auto form = invocation.text("output", "table");
    if (form == "json" || form == "yaml") {
        const json::value all(json::object{{"kind", "JobList"}, {"items", json::array(runs.begin(), runs.end())}});
        invocation.streams.out << (form == "json" ? to_pretty_json(all) + "\n" : to_yaml(all));
        return exit_code::ok;
    }
    Table table({"JOB", "STATE", "SUBMITTED", "BY", "TOOK", "PARAMETERS"});
    for (const auto& run : runs) {
        const auto state = text_of(run, "status.state");
        const bool good = state == "succeeded" || state == "converged";
        const bool bad = state == "failed" || state == "refused" || state == "undo_failed";
        table.add({{printable(text_of(run, "name"))},
                   {state, good  ? Style::green
                           : bad ? Style::red
                                 : Style::plain},
                   {text_of(run, "created_at")},
                   {printable(text_of(run, "status.submitted_by"))},
                   {time_between(run, "status.started_at", "status.ended_at")},
                   {printable(parameters_text(run))}});
    }
    invocation.streams.out << table.render(invocation.streams.width, invocation.streams.colour());
    return exit_code::ok;
}

std::vector<Command> template_commands() {
    return {
        {.path = "job run",
         .summary = "Run a job template",
         .about = "Submits a new Job from the JobTemplate, with a generated name. The server checks the values against the "
                  "parameters that\n"
                  "the template declares. Write a list as a,b,c.",
         .arguments = {{"TEMPLATE", "the name of the JobTemplate"}},
         .options =
             {parameter(), {"--wait", "", "watch the job until it is done; the exit code reports its result"}, dry_run(), reason()},
         .examples = {{"orrery job run restart -p role=web -p at_once=2 --wait", "run and watch"},
                      {"orrery job run restart -p role=web --dry-run", "check only"}},
         .run = run_job_run},
        {.path = "job history",
         .summary = "List the runs of a job template, the newest first",
         .about = "The server keeps at most max_finished_runs finished runs of a template.",
         .arguments = {{"TEMPLATE", "the name of the JobTemplate"}},
         .options = {output({"table", "yaml", "json"})},
         .examples = {{"orrery job history restart", "time, user and parameters of each run"}},
         .run = run_job_history},
    };
}

} // namespace orrery::cli
